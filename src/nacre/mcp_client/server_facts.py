"""What a server says of itself when a connection is made, as far as it can be believed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue

_MAX_NAME_CHARACTERS: Final = 100
_MAX_INSTRUCTIONS_CHARACTERS: Final = 8_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerFacts:
    """Short enough to be shown, whatever the server sent."""

    protocol_version: str
    is_modern: bool
    """Whether the protocol is without handshake, of 2026-07-28 or later."""
    version: str = ""
    """Its name and version."""
    description: str = ""
    capabilities: JsonObject = field(default_factory=dict[str, "JsonValue"])

    def has(self, capability: str) -> bool:
        return isinstance(self.capabilities.get(capability), dict)


def read_facts(
    result: JsonObject, info: JsonValue, *, protocol_version: str, is_modern: bool
) -> ServerFacts:
    """From the result of `initialize` or `server/discover`, and the server's name in it."""
    told = info if isinstance(info, dict) else {}
    names = (_text(told.get("name")), _text(told.get("version")))
    capabilities = result.get("capabilities")
    return ServerFacts(
        protocol_version=protocol_version,
        is_modern=is_modern,
        version=" ".join(name[:_MAX_NAME_CHARACTERS] for name in names if name),
        description=(
            _text(result.get("instructions"))
            or _text(told.get("description"))
            or _text(told.get("title"))
        )[:_MAX_INSTRUCTIONS_CHARACTERS],
        capabilities=capabilities if isinstance(capabilities, dict) else {},
    )


def _text(value: JsonValue) -> str:
    return value.strip() if isinstance(value, str) else ""
