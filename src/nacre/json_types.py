"""JSON values: types, a strict encoder and a strict decoder."""

from __future__ import annotations

import json
import json.encoder
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar, cast

from nacre.lazy_exports import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
JsonObject: TypeAlias = dict[str, JsonValue]

# Far below the stack limits of both parsers, far above the needs of real data.
MAX_JSON_DEPTH = 256

# A longer text is worth the import of a faster decoder.
_MAX_SLOW_BYTES: Final = 1 << 16

_Json = TypeVar("_Json")
_Container: TypeAlias = dict[object, object] | list[object]
_CONTAINERS = (dict, list, tuple)
_SCALARS = (str, int, float, type(None))
_EXACT_SCALARS = frozenset((*_SCALARS, bool))
_PLAIN_KEY = lazy_pattern(r"[A-Za-z_$][\w$]*", re.ASCII)
_MAX_SHOWN_KEY = 60


class NotJsonError(ValueError):
    """A value cannot be encoded, or bytes are not JSON; `path` says where (`$.a[3]`)."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path} {self.problem}"


class TooLargeError(NotJsonError):
    """A value has too many bytes or parts."""

    def __init__(self, problem: str) -> None:
        super().__init__("$", problem)


def encode_json(value: object) -> bytes:
    """Encode as compact UTF-8; raises NotJsonError that names the part that is not JSON.

    As in `json.dumps`, a tuple becomes an array, and numbers, booleans and None can be keys.
    Half a surrogate pair has no UTF-8 form and becomes U+FFFD.
    """
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        _explain(value)
        # No part is at fault: the caller is near the stack limit, or a subclass is odd.
        raise NotJsonError("$", f"cannot be written as JSON: {error}") from error
    if len(text) > MAX_JSON_DEPTH:
        _refuse_if_too_deep(value, openings=text.count("[") + text.count("{"))
    return _to_utf8(text)


def encode_json_slowly(value: JsonValue) -> bytes:
    """Encode a valid value in many steps, between which other threads can run."""
    return _to_utf8("".join(_ENCODER.iterencode(value)))


def decode_json(data: bytes, *, max_parts: int | None = None) -> JsonValue:
    """Decode strict JSON; `encode_json` accepts every value returned here.

    Raises NotJsonError for anything but strict JSON in UTF-8, for too deep nesting, and for numbers
    that are too large for Python. Half a surrogate pair (`"\\ud800"`) becomes U+FFFD. Raises
    TooLargeError before it decodes more than `max_parts` parts.
    """
    # A text has fewer parts than bytes.
    if max_parts is not None and len(data) > max_parts and has_too_many_parts(data, max_parts):
        raise TooLargeError(f"has more than {max_parts:,} parts")
    if len(data) > _MAX_SLOW_BYTES:
        value = _decode_fast(data)
        if value is not None:
            return value
    try:
        value = _decode(data.decode())
        if len(data) > MAX_JSON_DEPTH:
            _refuse_if_too_deep(value, openings=_count_bytes(data, _OPENINGS))
        if b"\\ud" in data or b"\\uD" in data:
            value = _decode(_to_utf8(_encode(value)).decode())
    except NotJsonError:
        raise
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise NotJsonError("$", f"is not JSON: {error}") from error
    return value


def _decode_fast(data: bytes) -> JsonValue:
    """Decode several times faster; None if the slower decoder has to say what is wrong."""
    # Imported here, because few processes have large values.
    import msgspec

    try:
        value = cast("JsonValue", msgspec.json.decode(data))
    except (msgspec.DecodeError, ValueError, RecursionError):
        # Not JSON, or half a surrogate pair.
        return None
    _refuse_if_too_deep(value, openings=_count_bytes(data, _OPENINGS))
    return value


def replace_surrogates(text: str) -> str:
    """Replace each half of a surrogate pair, which has no UTF-8 form, by U+FFFD."""
    return text if text.isascii() else _to_utf8(text).decode()


def copy_json(value: _Json) -> _Json:
    """Copy a JSON value; several times faster than `copy.deepcopy`."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        copy = {
            key: member if type(member) in _EXACT_SCALARS else copy_json(member)
            for key, member in members.items()
        }
        return cast("_Json", copy)
    if isinstance(value, list):
        return cast("_Json", [copy_json(item) for item in cast("list[object]", value)])
    return value


def _finite_float(literal: str) -> float:
    number = float(literal)
    if math.isinf(number):
        raise ValueError(f"the number {literal[:_MAX_SHOWN_KEY]} is too large")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def make_encoder(encoder: json.JSONEncoder) -> Callable[[object], str]:
    """Return a faster `encode` of an encoder for compact JSON: with less Python for each call.

    Without `check_circular`, it also uses one encoder in C for all calls.
    """
    make = cast("Any", json.encoder).c_make_encoder
    if make is None:
        return encoder.encode
    is_ascii = encoder.ensure_ascii
    quote = json.encoder.encode_basestring_ascii if is_ascii else json.encoder.encode_basestring
    options = (encoder.default, quote, None, ":", ",", False, False, encoder.allow_nan)
    if encoder.check_circular:
        return lambda value: "".join(make({}, *options)(value, 0))
    encode = make(None, *options)
    return lambda value: "".join(encode(value, 0))


# Created once: `json.dumps` and `json.loads` with options create one per call.
_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_encode = make_encoder(_ENCODER)
_DECODER = json.JSONDecoder(parse_float=_finite_float, parse_constant=_refuse_constant)
_scan: Callable[[str, int], tuple[object, int]] = cast("Any", _DECODER).scan_once


def _decode(text: str) -> JsonValue:
    try:
        value, end = _scan(text, 0)
        if end == len(text):
            return cast("JsonValue", value)
    except StopIteration:
        pass
    # This skips spaces around the value, or says what is wrong.
    return cast("JsonValue", _DECODER.decode(text))


def _to_utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Through UTF-16, so that two adjacent halves become one character.
        halves = text.encode("utf-16-le", "surrogatepass")
        return halves.decode("utf-16-le", "replace").encode()


def _too_deep() -> NotJsonError:
    return NotJsonError("$", f"is nested more than {MAX_JSON_DEPTH} levels deep")


def _refuse_if_too_deep(value: object, *, openings: int) -> None:
    """Raise if a value without cycles is too deep; `openings` is at least its container count."""
    # A string may be full of brackets.
    if openings <= MAX_JSON_DEPTH or not isinstance(value, _CONTAINERS):
        return
    level = [cast("_Container", value)]
    for _ in range(MAX_JSON_DEPTH):
        # Inlined for speed: this is most of the cost of a large value on top of `json`.
        level = [
            part
            for container in level
            for part in (container.values() if isinstance(container, dict) else container)
            if type(part) not in _EXACT_SCALARS and isinstance(part, _CONTAINERS)
        ]
        if not level:
            return
    raise _too_deep()


def _explain(value: object) -> None:
    """Walk the value in order and raise NotJsonError at the first part that is not JSON."""
    # An explicit stack, each entry with the id of its container, handles any depth.
    todo: list[tuple[int, Iterator[tuple[str, object]]]] = [(0, iter([("$", value)]))]
    entered: set[int] = set()
    while todo:
        owner, parts = todo[-1]
        path, part = next(parts, (None, None))
        if path is None:
            todo.pop()
            entered.discard(owner)
        elif not _is_container(part):
            problem = _problem_with(part)
            if problem:
                raise NotJsonError(path, problem)
        elif id(part) in entered:
            raise NotJsonError(path, "is a part of itself")
        elif len(todo) > MAX_JSON_DEPTH:
            raise _too_deep()
        else:
            entered.add(id(part))
            todo.append((id(part), _parts(path, part)))


def _is_container(part: object) -> bool:
    return isinstance(part, _CONTAINERS)


def _parts(path: str, container: object) -> Iterator[tuple[str, object]]:
    if not isinstance(container, dict):
        for index, part in enumerate(cast("list[object]", container)):
            yield f"{path}[{index}]", part
        return
    for key, part in cast("dict[object, object]", container).items():
        problem = _problem_with(key)
        if problem:
            raise NotJsonError(path, f"has a key that {problem}")
        yield _member_path(path, str(key)), part


def _problem_with(scalar: object) -> str:
    """Return why this is not a JSON scalar, or an empty string."""
    if not isinstance(scalar, _SCALARS):
        return f"is of type {type_name(scalar)}, which JSON does not have"
    if isinstance(scalar, float) and not math.isfinite(scalar):
        return f"is {float(scalar)!r}, which is not a JSON number"
    if isinstance(scalar, int):
        try:
            int.__repr__(scalar)
        except ValueError as error:
            return f"is too large an integer: {error}"
    return ""


def _member_path(path: str, key: str) -> str:
    shown = key if len(key) <= _MAX_SHOWN_KEY else f"{key[:_MAX_SHOWN_KEY]}…"
    if _PLAIN_KEY.fullmatch(shown):
        return f"{path}.{shown}"
    return f"{path}[{json.dumps(shown)}]"


def get_text(members: JsonObject, key: str) -> str:
    """The text of a member; empty if there is none."""
    value = members.get(key)
    return value if isinstance(value, str) else ""


def get_objects(members: JsonObject, key: str) -> list[JsonObject]:
    """The objects in a member that is a list; other values in it are left out."""
    value = members.get(key)
    return [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []


def describe_json_type(value: object) -> str:
    """The type of a JSON value in the words of JavaScript, with its article: "a string"."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case list() | tuple():
            return "an array"
        case _:
            return f"a {type_name(value)}"


def type_name(value: object) -> str:
    """Return the name of the value's type, with its module unless it is built in."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


# The size of encoded JSON.

MAX_PARTS: Final = 200_000
"""The number of opening brackets and commas outside of strings.

The decoder cannot be interrupted. It decodes megabytes of text quickly, but megabytes of brackets
take seconds.
"""

_OPENINGS: Final = (b"[", b"{")
_MARKS: Final = (*_OPENINGS, b",")
_PIECE_BYTES: Final = 64 * 1024
_ESCAPED: Final = lazy_pattern(rb"\\.")
# A string ends with its line at the latest, so a quote in an SSE comment hides nothing.
_TEXT: Final = lazy_pattern(rb'"[^"\r\n]*"?')


class PartCounter:
    """Counts the parts of JSON, or of a stream of events, that arrives in chunks."""

    def __init__(self) -> None:
        self.count = 0
        self._is_in_text = False
        self._is_escaping = False

    def feed(self, chunk: bytes) -> None:
        if not chunk:
            return
        # There are no backslashes outside of strings, so all escapes can be removed.
        plain = _ESCAPED.sub(b"", chunk[1:] if self._is_escaping else chunk)
        self._is_escaping = plain.endswith(b"\\")
        text = b'"' + plain if self._is_in_text else plain
        outside = _TEXT.sub(b"", text)
        self.count += sum(map(outside.count, _MARKS))
        last_line = text[max(text.rfind(b"\r"), text.rfind(b"\n")) + 1 :]
        self._is_in_text = last_line.count(b'"') % 2 == 1


def has_too_many_parts(data: bytes, max_parts: int = MAX_PARTS) -> bool:
    """Whether encoded JSON has more than `max_parts` parts.

    Takes up to a second, in small steps, so that other threads can run.
    """
    if _count_bytes(data, _MARKS) <= max_parts:
        return False
    counter = PartCounter()
    for start in range(0, len(data), _PIECE_BYTES):
        counter.feed(data[start : start + _PIECE_BYTES])
        if counter.count > max_parts:
            return True
    return False


def _count_bytes(data: bytes, wanted: tuple[bytes, ...]) -> int:
    """Count in small steps: in one step, megabytes take many milliseconds."""
    if len(data) <= _PIECE_BYTES:
        return sum(map(data.count, wanted))
    return sum(
        data.count(byte, start, start + _PIECE_BYTES)
        for start in range(0, len(data), _PIECE_BYTES)
        for byte in wanted
    )
