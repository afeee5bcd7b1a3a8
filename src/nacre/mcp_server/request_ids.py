"""The id of a request that could not be read, so that whoever waits for an answer gets one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from nacre.json_types import NotJsonError, decode_json

if TYPE_CHECKING:
    from nacre.json_types import JsonValue

EDGE_BYTES: Final = 1024
"""How much of a line's start and end is looked at. Clients write an id first or last."""

_MAX_DIGITS: Final = 18
_PAIR: Final = (
    rb'"(?:jsonrpc|method|id)"\s{0,9}:\s{0,9}'
    rb'(?:"(?:[^"\\]|\\.){0,200}"|-?[0-9]{1,%d})' % _MAX_DIGITS
)
_BETWEEN: Final = rb"\s{0,9},\s{0,9}"
_FIRST_PAIRS: Final = re.compile(rb"\s{0,9}\{\s{0,9}(%s(?:%s%s){0,2})" % (_PAIR, _BETWEEN, _PAIR))
_LAST_PAIRS: Final = re.compile(
    rb",\s{0,9}(%s(?:%s%s){0,2})\s{0,9}\}\s{0,9}$" % (_PAIR, _BETWEEN, _PAIR)
)


def request_id_of(message: JsonValue) -> int | str | None:
    """Of a message that is JSON; None for what is no request."""
    if not isinstance(message, dict) or "method" not in message:
        # An answer has an id of ours: a request of the client's own may have the same.
        return None
    found = message.get("id")
    return found if isinstance(found, (int, str)) and not isinstance(found, bool) else None


def request_id_at_edges(start: bytes, end: bytes) -> int | str | None:
    """Of a line of which only the first and the last bytes are known."""
    found = (_FIRST_PAIRS.match(start), _LAST_PAIRS.search(end))
    pairs = b",".join(match.group(1) for match in found if match is not None)
    try:
        return request_id_of(decode_json(b"{%s}" % pairs))
    except NotJsonError:
        return None
