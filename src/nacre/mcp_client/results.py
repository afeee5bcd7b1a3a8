"""Limits the size of a server's result: large parts are replaced by a description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.json_types import NotJsonError, encode_json
from nacre.large_json import is_small, measure_large, run_in_json_thread
from nacre.mcp_client.upstream import RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nacre.json_types import JsonObject, JsonValue

_INVALID_RESULT: Final = -32603
_LISTS_OF_PARTS: Final = ("content", "contents", "messages")
# Members up to this size are not omitted. They describe a part: `type`, `mimeType`, `uri`, `name`.
_SMALL_BYTES: Final = 1024
_MAX_SUMMARY_BYTES: Final = 8 * _SMALL_BYTES


async def limit_result_size(result: JsonObject, *, max_bytes: int) -> JsonObject:
    """Call `shorten_result`, in a thread if the result is large."""
    if is_small(result):
        return shorten_result(result, max_bytes=max_bytes)
    return await run_in_json_thread(lambda: shorten_result(result, max_bytes=max_bytes))


def shorten_result(result: JsonObject, *, max_bytes: int) -> JsonObject:
    """Return the result, or a copy in which large parts are replaced by a description.

    The largest part is replaced first, until the result fits. Raises RpcError if it is not JSON.
    """
    try:
        total_bytes = _size_bytes(result)
    except NotJsonError as error:
        raise RpcError(_INVALID_RESULT, f"the result is not JSON: {error}") from error
    if total_bytes <= max_bytes:
        return result
    left_bytes = total_bytes
    copy, parts = _split_parts(result)
    for part in sorted(parts, key=lambda part: part.size_bytes, reverse=True):
        if left_bytes <= max_bytes:
            return copy
        summary = _summarize(part.value, size_bytes=part.size_bytes)
        left_bytes += _size_bytes(summary) - part.size_bytes
        part.replace(summary)
    if left_bytes <= max_bytes:
        return copy
    return {"omitted": f"a result of {total_bytes:,} bytes in {len(parts):,} parts"}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    value: JsonValue
    size_bytes: int
    replace: Callable[[JsonValue], None]


def _split_parts(result: JsonObject) -> tuple[JsonObject, list[_Part]]:
    copy = dict(result)
    return copy, list(_parts_of(copy))


def _parts_of(copy: JsonObject) -> Iterator[_Part]:
    for key, value in copy.items():
        if key in _LISTS_OF_PARTS and isinstance(value, list):
            items = copy[key] = list(value)
            for index, item in enumerate(items):
                yield _part(
                    item, lambda new, items=items, index=index: _replace_item(items, index, new)
                )
        else:
            yield _part(value, lambda new, key=key: copy.update({key: new}))


def _part(value: JsonValue, replace: Callable[[JsonValue], None]) -> _Part:
    return _Part(value=value, size_bytes=_size_bytes(value), replace=replace)


def _replace_item(items: list[JsonValue], index: int, value: JsonValue) -> None:
    items[index] = value


def _summarize(value: JsonValue, *, size_bytes: int) -> JsonValue:
    """Return the small members of a part, and a description of the omitted ones."""
    if size_bytes <= _SMALL_BYTES:
        return value
    if not isinstance(value, dict):
        return {"omitted": _describe_size("value", value, size_bytes)}
    kind = value.get("type")
    label = kind if isinstance(kind, str) and len(kind) < _SMALL_BYTES else "value"
    summary = _without_large_members(value, label)
    if _size_bytes(summary) <= _MAX_SUMMARY_BYTES:
        return summary
    # There are too many small members.
    return {"omitted": f"{label} of {size_bytes:,} bytes in {len(value):,} members"}


def _without_large_members(part: JsonObject, label: str) -> JsonObject:
    small: JsonObject = {}
    omitted: list[str] = []
    for key, member in part.items():
        size_bytes = _size_bytes(member)
        if size_bytes <= _SMALL_BYTES:
            small[key] = member
        elif isinstance(member, dict):
            small[key] = _summarize(member, size_bytes=size_bytes)
        else:
            subject = label if key in ("data", "blob") and label != "value" else key[:80]
            omitted.append(
                _describe_size(subject, member, size_bytes, is_base64=key in ("data", "blob"))
            )
    if omitted:
        small["omitted"] = ", ".join(omitted)[:_SMALL_BYTES]
    return small


def _describe_size(
    subject: str, value: JsonValue, size_bytes: int, *, is_base64: bool = False
) -> str:
    if not isinstance(value, str):
        return f"{subject} of {size_bytes:,} bytes"
    if is_base64:
        return f"{subject} of {len(value.rstrip('=')) * 3 // 4:,} bytes"
    return f"{subject} of {len(value):,} characters"


def _size_bytes(value: JsonValue) -> int:
    # Without a limit: the message that contained it had one.
    return len(encode_json(value)) if is_small(value) else measure_large(value)
