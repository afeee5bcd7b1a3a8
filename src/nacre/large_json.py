"""Large JSON values: measured first, then converted in a thread while the event loop runs.

A thread alone does not keep the loop running, because only one thread at a time can run Python.
So all large values share one thread, and the loop competes with no other. Its steps in Python are
interrupted after milliseconds. A step in C is not, so it gets a limited number of values and bytes.
New memory counts too: to find 16 MB of it at once takes 50 ms on some machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain, islice
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
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nacre.json_types import JsonValue

MAX_VALUE_BYTES: Final = 16 << 20
"""The largest result of a tool, encoded."""
MAX_VALUES: Final = 2_000_000
"""The most nested values in the result of a tool."""
MAX_LOOP_BYTES: Final = 1 << 18
"""Anything larger is converted in the thread."""
_MAX_LOOP_VALUES: Final = 5_000

_OTHER_SCALARS: Final = frozenset((int, bool, float, type(None)))
# `type` of an `Any` has an unknown type.
_type_of: Callable[[object], type[object]] = type
_MAX_FLAT_MEMBERS: Final = 16
_MAX_FLAT_CHARACTERS: Final = 1_000
_STEP_VALUES: Final = 20_000
# Most large results are a long list or text, or an object with a few members, of which one is long.
_MAX_STEP_LEVELS: Final = 3
_MAX_STEP_MEMBERS: Final = 100
_MAX_STEP_ITEMS: Final = 16
# How much one step encodes, about: in a millisecond.
_PIECE_BYTES: Final = 1 << 18
_MAX_STEP_GROWTH: Final = 16

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


@dataclass(frozen=True, slots=True)
class CheckedJson:
    """A JSON value whose types and size were checked, as those of a tool's result."""

    value: JsonValue


async def encode_off_loop(value: object) -> bytes:
    """Encode as `encode_json` does. Raises TooLargeError before a large value is encoded.

    The check of a large value takes longer than its encoding. A CheckedJson is not checked again.
    """
    inner = _unwrap(value)
    if is_small(inner):
        return encode_json(inner)
    return await run_in_json_thread(encode_large, value)


async def encode_pieces_off_loop(value: object) -> list[bytes]:
    """Encode as `encode_off_loop` does, in pieces, which need not be joined."""
    inner = _unwrap(value)
    if is_small(inner):
        return [encode_json(inner)]
    return await run_in_json_thread(_encode_pieces_of, value)


def _unwrap(value: object) -> object:
    return value.value if isinstance(value, CheckedJson) else value


async def decode_off_loop(data: bytes, *, max_parts: int = MAX_PARTS) -> JsonValue:
    """Decode as `decode_json` does, with a limit on the parts of the text."""
    decode = partial(decode_json, data, max_parts=max_parts)
    return decode() if len(data) <= MAX_LOOP_BYTES else await run_in_json_thread(decode)


async def copy_off_loop(value: _Result) -> _Result:
    """Copy a JSON value as `copy_json` does."""
    if _is_flat(value):
        # Most calls copy several such objects, so this is without `cast`.
        flat: Any = value
        return flat.copy()
    return copy_json(value) if is_small(value) else await run_in_json_thread(copy_json, value)


def encode_large(value: object, *, max_bytes: float = MAX_VALUE_BYTES) -> bytes:
    """Encode a large value. Raises TooLargeError before it is encoded."""
    # Other threads run meanwhile, because all pieces are `bytes`.
    return b"".join(_encode_pieces_of(value, max_bytes))


def measure_large(value: object) -> int:
    """The size of a large value, encoded."""
    return sum(map(len, _encode_pieces_of(value, math.inf)))


def _encode_pieces_of(value: object, max_bytes: float = MAX_VALUE_BYTES) -> list[bytes]:
    if isinstance(value, CheckedJson):
        return _encode_pieces(value.value)
    return _encode_pieces(value) if is_plain(value, max_bytes=max_bytes) else [encode_json(value)]


def _encode_pieces(value: object) -> list[bytes]:
    # Imported here, because few processes have large values. It is 15 times faster than `json`.
    import msgspec

    try:
        return list(_join_small(_encode_in_steps(value, msgspec.json.encode)))
    except UnicodeEncodeError:
        # Half a surrogate pair. Encoded in Python, because `json` would do it in one step in C.
        return [encode_json_slowly(cast("JsonValue", value))]
    except (OverflowError, ValueError):
        # An integer that is too large. This says where.
        return [encode_json(value)]


def _join_small(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Join pieces to larger ones, whose memory is used again soon."""
    joined: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        joined.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES:
            yield b"".join(joined)
            joined, size = [], 0
    if joined:
        yield b"".join(joined)


def _encode_in_steps(
    value: object, encode: Callable[[object], bytes], *, levels: int = _MAX_STEP_LEVELS
) -> Iterator[bytes | memoryview]:
    """Encode a value in several steps: the event loop can run only between two steps in C."""
    if isinstance(value, str) and len(value) > _PIECE_BYTES:
        yield b'"'
        for start in range(0, len(value), _PIECE_BYTES):
            yield memoryview(encode(value[start : start + _PIECE_BYTES]))[1:-1]
        yield b'"'
    elif isinstance(value, list) and levels:
        yield from _encode_items(cast("list[object]", value), encode, levels)
    elif isinstance(value, dict) and levels:
        yield from _encode_members(cast("dict[str, object]", value), encode, levels)
    else:
        yield encode(cast("object", value))


def _encode_items(
    items: list[object], encode: Callable[[object], bytes], levels: int
) -> Iterator[bytes | memoryview]:
    at, count = 0, 1
    yield b"["
    while at < len(items):
        if at:
            yield b","
        size = 0
        if count == 1 or len(items) <= _MAX_STEP_ITEMS:
            count = 1
            for piece in _encode_in_steps(items[at], encode, levels=levels - 1):
                size += len(piece)
                yield piece
        else:
            inside = memoryview(encode(items[at : at + count]))[1:-1]
            size = len(inside)
            yield inside
        at += count
        count = _step_size(count, size)
    yield b"]"


def _step_size(count: int, size: int) -> int:
    """How many values to encode in the next step, after so many with this size."""
    fitting = count * _PIECE_BYTES // max(size, 1)
    return max(1, min(fitting, count * _MAX_STEP_GROWTH, _STEP_VALUES))


def _encode_members(
    members: dict[str, object], encode: Callable[[object], bytes], levels: int
) -> Iterator[bytes | memoryview]:
    separator = b""
    yield b"{"
    if len(members) <= _MAX_STEP_MEMBERS:
        for key, member in members.items():
            yield b"%b%b:" % (separator, encode(key))
            yield from _encode_in_steps(member, encode, levels=levels - 1)
            separator = b","
    else:
        left, count = iter(members.items()), _MAX_STEP_ITEMS
        while part := dict(islice(left, count)):
            inside = memoryview(encode(part))[1:-1]
            yield separator
            yield inside
            separator, count = b",", _step_size(count, len(inside))
    yield b"}"


# Values in memory.


def is_small(value: object) -> bool:
    """Whether the value can be converted on the event loop. Stops as soon as it is too large."""
    if _is_flat(value):
        return True
    left_bytes, left_values = MAX_LOOP_BYTES, _MAX_LOOP_VALUES
    todo: list[Any] = [value]
    for part in todo:
        kind = _type_of(part)
        if kind in _OTHER_SCALARS:
            continue
        if kind is str:
            left_bytes -= len(part)
        elif kind is dict:
            left_values -= 2 * len(part)
            if left_values >= 0:
                todo += part
                todo += part.values()
        elif isinstance(part, str):
            left_bytes -= len(part)
        else:
            inside = _values_inside(part)
            left_values -= len(inside)
            if left_values >= 0:
                todo += inside
        if left_bytes < 0 or left_values < 0:
            return False
    return True


def _is_flat(value: Any) -> bool:
    """Whether the value is an object with a few numbers and short texts, as most inputs are."""
    if _type_of(value) is not dict or len(value) > _MAX_FLAT_MEMBERS:
        return False
    for name, member in value.items():
        if _type_of(name) is not str or len(name) > _MAX_FLAT_CHARACTERS:
            return False
        kind = _type_of(member)
        if kind is str:
            if len(member) > _MAX_FLAT_CHARACTERS:
                return False
        elif kind not in _OTHER_SCALARS:
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
# Most results are that small, and the walk over many values is slow for them.
_MAX_FEW_VALUES: Final = 64
_MAX_FEW_CHARACTERS: Final = 1 << 16


def is_plain(value: object, *, max_bytes: float = MAX_VALUE_BYTES) -> bool:
    """Whether all parts have plain JSON types; False if that is not obvious.

    Raises TooLargeError as soon as the value is known to have too many values or bytes.
    """
    are_few_plain = _are_few_plain(value)
    if are_few_plain is not None:
        return are_few_plain
    level, walk = [value], _Walk(SizeLimit(max_bytes))
    for _ in range(MAX_JSON_DEPTH + 1):
        below: list[object] = []
        for start in range(0, len(level), _STEP_VALUES):
            part = level[start : start + _STEP_VALUES]
            if not walk.visit(part, below, is_first=start == 0):
                return False
        if not below:
            return True
        level = below
    return False


def _are_few_plain(value: object) -> bool | None:
    """Whether a few parts are plain; None if there are more, or one contains itself."""
    left_values, left_characters = _MAX_FEW_VALUES, _MAX_FEW_CHARACTERS
    todo: list[Any] = [value]
    while todo:
        part = todo.pop()
        kind = _type_of(part)
        if kind is str:
            left_characters -= len(part)
        elif kind is dict or kind is list:
            left_values -= len(part)
            if left_values < 0:
                return None
            if kind is dict:
                for key in part:
                    if type(key) is not str:
                        return False
                    left_characters -= len(key)
            todo += part.values() if kind is dict else part
        elif kind not in _OTHER_SCALARS or (kind is float and not math.isfinite(part)):
            return False
    return True if left_characters >= 0 else None


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

    def visit(self, values: list[object], below: list[object], *, is_first: bool) -> bool:
        """Whether the values are plain; adds what they contain to `below`."""
        kinds = set(map(type, values))
        if not kinds <= _PLAIN_TYPES:
            return False
        if float in kinds and not all(map(math.isfinite, _of_type(float, values, kinds))):
            return False
        self._size.count(0, sum(map(len, _of_type(str, values, kinds))))
        lists: list[list[object]] = _of_type(list, values, kinds)
        dicts: list[dict[object, object]] = _of_type(dict, values, kinds)
        if is_first and not self._note_new([*lists, *dicts]):
            return False
        return self._open(lists, dicts, below)

    def _note_new(self, containers: list[object]) -> bool:
        # A container that occurs twice may contain itself. The first values of each level show
        # that, except in a value that becomes too large anyway. To note all takes much longer.
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
        self._size.count(sum(map(len, lists)) + sum(map(len, dicts)), 0)
        below.extend(chain.from_iterable(lists))
        if not set(map(type, chain.from_iterable(dicts))) <= {str}:
            return False
        self._size.count(0, sum(map(len, cast("Iterable[str]", chain.from_iterable(dicts)))))
        below.extend(chain.from_iterable(map(dict[object, object].values, dicts)))
        return True


def _of_type(kind: type, values: list[object], kinds: set[type]) -> list[Any]:
    if kind not in kinds:
        return []
    return [value for value in values if type(value) is kind] if len(kinds) > 1 else values
