"""What a server asks a person, for a client to show: words without what nobody sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.json_types import encode_json
from nacre.mcp_client.upstream import UpstreamRefusal
from nacre.mcp_server.display import is_invisible, visible_lines

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue

# Keys of words that are only read; all else is a name or a value, which has to come back as it is.
_WORDS: Final = frozenset(("message", "title", "description", "enumNames"))
# MCP has flat forms.
_MAX_LEVELS: Final = 16
_MAX_BYTES: Final = 64 * 1024


def clean_question(params: JsonObject) -> JsonObject:
    """The parameters of an elicitation, cleaned; raises UpstreamRefusal."""
    size_bytes = len(encode_json(params))
    if size_bytes > _MAX_BYTES:
        raise UpstreamRefusal(f"the question has {size_bytes} bytes; the most is {_MAX_BYTES}")
    return {key: _clean(it, key, _MAX_LEVELS) for key, it in params.items()}


def _clean(value: JsonValue, key: str, levels_left: int) -> JsonValue:
    if levels_left == 0:
        raise UpstreamRefusal(f"the question is nested more than {_MAX_LEVELS} levels deep")
    match value:
        case str() if key in _WORDS:
            return visible_lines(value)
        case str():
            return _exact(value)
        case list():
            return [_clean(it, key, levels_left - 1) for it in value]
        case dict():
            return {_exact(name): _clean(it, name, levels_left - 1) for name, it in value.items()}
        case _:
            return value


def _exact(text: str) -> str:
    if any(is_invisible(it) and it not in "\n\t" for it in text):
        raise UpstreamRefusal(
            "a name or value in the question has characters that cannot be seen: "
            f"{text[:80].encode('ascii', 'backslashreplace').decode()}"
        )
    return text
