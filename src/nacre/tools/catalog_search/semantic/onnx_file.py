"""Writes ONNX models: the few messages of the format that a graph of our own needs.

The `onnx` package would be 30 MB for this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CONTRIB: Final = "com.microsoft"
"""The domain of the operators that ONNX Runtime adds."""

_IR_VERSION: Final = 9
_OPSETS: Final = {"": 17, CONTRIB: 1}
# Numbers of the element types in the format, by NumPy's names.
_ELEMENT_TYPES: Final = {"float32": 1, "int8": 3}
_FLOAT_ATTRIBUTE: Final = 1
_INT_ATTRIBUTE: Final = 2


class OnnxGraph:
    """A graph under construction: constants, and nodes in the order in which they run."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0

    def constant(self, values: NDArray[Any]) -> str:
        """The name of a constant with these values."""
        name = self._new_name()
        dimensions = b"".join(_number(1, size) for size in values.shape)
        element_type = _number(2, _ELEMENT_TYPES[values.dtype.name])
        tensor = dimensions + element_type + _text(8, name) + _field(9, values.tobytes())
        self._parts.append(_field(5, tensor))
        return name

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        *,
        outputs: int = 1,
        domain: str = "",
        **attributes: float,
    ) -> list[str]:
        """The names of what the operator gives; an empty input is one that is left out."""
        names = [self._new_name() for _ in range(outputs)]
        parts = [*(_text(1, each) for each in inputs), *(_text(2, each) for each in names)]
        parts += [_text(4, operator)]
        parts += [_field(5, _attribute(name, value)) for name, value in attributes.items()]
        self._parts.append(_field(1, b"".join(parts) + _text(7, domain)))
        return names

    def to_bytes(self, *, given: str, result: str, width: int) -> bytes:
        """The model; what is given and what comes out has the shape (1, any, width)."""
        ends = _field(11, _value(given, width)) + _field(12, _value(result, width))
        graph = b"".join(self._parts) + _text(2, "nacre") + ends
        opsets = (_text(1, domain) + _number(2, number) for domain, number in _OPSETS.items())
        versions = b"".join(_field(8, each) for each in opsets)
        return _number(1, _IR_VERSION) + versions + _field(7, graph)

    def _new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"


def _value(name: str, width: int) -> bytes:
    sizes = (_number(1, 1), _text(2, "any"), _number(1, width))
    shape = b"".join(_field(1, each) for each in sizes)
    tensor = _number(1, _ELEMENT_TYPES["float32"]) + _field(2, shape)
    return _text(1, name) + _field(2, _field(1, tensor))


def _attribute(name: str, value: float) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, _INT_ATTRIBUTE)
    import numpy as np

    return _text(1, name) + b"\x15" + np.float32(value).tobytes() + _number(20, _FLOAT_ATTRIBUTE)


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
