"""Large JSON values: measured first, then converted in a thread while the event loop runs.

A thread alone does not keep the loop running, because only one thread at a time can run Python.
So all large values share one thread, and the loop competes with no other. Its steps in Python are
interrupted after milliseconds. A step in C is not, so it gets a limited number of values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple, cast

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from nacre.json_types import (
    MAX_JSON_DEPTH,
    MAX_PARTS,
    TooLargeError,
    copy_json,
    decode_json,
    encode_json,
    encode_json_slowly,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nacre.json_types import JsonValue

MAX_VALUE_BYTES: Final = 16 << 20
"""The largest result of a tool, encoded."""
MAX_VALUES: Final = 2_000_000
"""The most nested values in the result of a tool."""
MAX_LOOP_BYTES: Final = 1 << 18
"""Anything larger is converted in the thread."""
_MAX_LOOP_VALUES: Final = 5_000

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("nacre_large_json")


async def run_in_json_thread(
    function: Callable[[*_Arguments], _Result], *arguments: *_Arguments
) -> _Result:
    """Call a function in the thread for large values."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(1)
        _limiter.set(limiter)
    return await anyio.to_thread.run_sync(function, *arguments, limiter=limiter)


async def encode_off_loop(value: object) -> bytes:
    """Encode as `encode_json` does. Raises TooLargeError before a large value is encoded."""
    return encode_json(value) if is_small(value) else await run_in_json_thread(encode_large, value)


async def decode_off_loop(data: bytes, *, max_parts: int = MAX_PARTS) -> JsonValue:
    """Decode as `decode_json` does, with a limit on the parts of the text."""
    decode = partial(decode_json, data, max_parts=max_parts)
    return decode() if len(data) <= MAX_LOOP_BYTES else await run_in_json_thread(decode)


async def copy_off_loop(value: _Result) -> _Result:
    """Copy a JSON value as `copy_json` does."""
    return copy_json(value) if is_small(value) else await run_in_json_thread(copy_json, value)


def encode_large(value: object, *, max_bytes: float = MAX_VALUE_BYTES) -> bytes:
    """Encode a large value. Raises TooLargeError before it is encoded."""
    if not is_plain(value, max_bytes=max_bytes):
        return encode_json(value)
    # Imported here, because few processes have large values. It is 15 times faster than `json`.
    import msgspec

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Half a surrogate pair. Encoded in Python, because `json` would do it in one step in C.
        return encode_json_slowly(cast("JsonValue", value))
    except (OverflowError, ValueError):
        # An integer that is too large. This says where.
        return encode_json(value)


# Values in memory.


def is_small(value: object) -> bool:
    """Whether the value can be converted on the event loop. Stops as soon as it is too large."""
    left_bytes, left_values = MAX_LOOP_BYTES, _MAX_LOOP_VALUES
    todo: list[object] = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            left_bytes -= len(part)
        elif not isinstance(part, (int, float, type(None))):
            inside = _values_inside(part)
            left_values -= len(inside)
            if left_values >= 0:
                todo.extend(inside)
        if left_bytes < 0 or left_values < 0:
            return False
    return True


def _values_inside(value: object) -> list[object] | tuple[object, ...]:
    if isinstance(value, (list, tuple)):
        return cast("list[object]", value)
    if isinstance(value, (dict, Mapping)):
        members = cast("Mapping[object, object]", value)
        return [*members, *members.values()]
    if isinstance(value, (set, frozenset)):
        return list(cast("set[object]", value))
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in fields(value)]
    # The fields of a pydantic model are here.
    return list(cast("dict[str, object]", getattr(value, "__dict__", {})).values())


_PLAIN_TYPES: Final = frozenset((str, int, bool, type(None), float, dict, list))
_STEP_VALUES: Final = 20_000


def is_plain(value: object, *, max_bytes: float = MAX_VALUE_BYTES) -> bool:
    """Whether all parts have plain JSON types; False if that is not obvious.

    Raises TooLargeError as soon as the value is known to have too many values or bytes.
    """
    level, walk = [value], _Walk(SizeLimit(max_bytes))
    for _ in range(MAX_JSON_DEPTH + 1):
        below: list[object] = []
        for start in range(0, len(level), _STEP_VALUES):
            if not walk.visit(level[start : start + _STEP_VALUES], below):
                return False
        if not below:
            return True
        level = below
    return False


class SizeLimit:
    """Counts the values and bytes of one value. The bytes are the least that it can have."""

    def __init__(self, max_bytes: float = MAX_VALUE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = self._values = 0

    def count(self, values: int, characters: int) -> None:
        self._values += values
        # Each value takes a character, and another one for the comma or bracket that follows.
        self._bytes += 2 * values + characters
        if self._bytes > self._max_bytes:
            raise TooLargeError(f"has more than {self._max_bytes} bytes")
        if self._values > MAX_VALUES:
            raise TooLargeError(f"has more than {MAX_VALUES} values")


class _Walk:
    """Checks the types of many values at once, mostly in C."""

    def __init__(self, size: SizeLimit) -> None:
        self._size = size
        self._seen: set[int] = set()

    def visit(self, values: list[object], below: list[object]) -> bool:
        """Whether the values are plain; adds what they contain to `below`."""
        kinds = set(map(type, values))
        if not kinds <= _PLAIN_TYPES:
            return False
        if float in kinds and not all(map(math.isfinite, _of_type(float, values))):
            return False
        self._size.count(0, sum(map(len, _of_type(str, values))) if str in kinds else 0)
        lists: list[list[object]] = _of_type(list, values) if list in kinds else []
        dicts: list[dict[object, object]] = _of_type(dict, values) if dict in kinds else []
        return self._note_new([*lists, *dicts]) and self._open(lists, dicts, below)

    def _note_new(self, containers: list[object]) -> bool:
        # A container that occurs twice may contain itself.
        ids = set(map(id, containers))
        if len(ids) < len(containers) or not ids.isdisjoint(self._seen):
            return False
        self._seen |= ids
        return True

    def _open(
        self,
        lists: list[list[object]],
        dicts: list[dict[object, object]],
        below: list[object],
    ) -> bool:
        # Counted before anything is copied.
        self._size.count(sum(map(len, [*lists, *dicts])), 0)
        below.extend(chain.from_iterable(lists))
        if not set(map(type, chain.from_iterable(dicts))) <= {str}:
            return False
        self._size.count(0, sum(map(len, cast("Iterable[str]", chain.from_iterable(dicts)))))
        below.extend(chain.from_iterable(map(dict[object, object].values, dicts)))
        return True


def _of_type(kind: type, values: list[object]) -> list[Any]:
    return [value for value in values if type(value) is kind]
