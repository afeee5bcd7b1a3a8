"""Agrees on a protocol version with a server and reads what the server says about itself.

`initialize` is tried first: every server of today knows it, and many wait for it in silence when
they are asked for the newer `server/discover`, which is for those that refuse it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING, Final, TypeAlias

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

from nacre.json_types import JsonObject, JsonValue
from nacre.mcp_client.peer_errors import PeerLostError, RpcError

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions


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


# Read from disk, when this module is imported in a thread.
_VERSION: Final = package_version("nacre-ai")
_NEVER_CANCELLED: Final = frozenset({"initialize", "server/discover"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Era:
    """What goes with every request."""

    protocol_version: str = ""
    meta: JsonObject = field(default_factory=dict[str, JsonValue])
    """Of a modern server: who asks, in every request, because there was no handshake."""

    @property
    def has_session(self) -> bool:
        """Whether the server remembers us from a handshake."""
        return bool(self.protocol_version) and not self.meta

    def stamp(self, method: str, params: JsonObject, options: CallOptions) -> None:
        """Add to a request what its version wants: members of `_meta`, and HTTP headers."""
        if method in _NEVER_CANCELLED:
            options["cancel_on_abandon"] = False
        headers = options.setdefault("headers", {})
        if self.protocol_version:
            headers[MCP_PROTOCOL_VERSION_HEADER] = self.protocol_version
        if not self.meta:
            return
        given = params.get("_meta")
        params["_meta"] = {**(given if isinstance(given, dict) else {}), **self.meta}
        headers[MCP_METHOD_HEADER] = method
        name = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)


BEFORE_HANDSHAKE: Final = Era()

Send: TypeAlias = Callable[[str, JsonObject, Era], Awaitable[JsonObject]]


async def negotiate_era(send: Send, capabilities: JsonObject) -> tuple[ServerFacts, Era]:
    """Ask the server; raises PeerLostError, and RpcError with what it said to `initialize`."""
    try:
        return await _initialize(send, capabilities)
    except RpcError as refusal:
        try:
            return await _discover(send, capabilities)
        except RpcError:
            raise refusal from None


async def _initialize(send: Send, capabilities: JsonObject) -> tuple[ServerFacts, Era]:
    params: JsonObject = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": capabilities,
        "clientInfo": _client_info(),
    }
    result = await send("initialize", params, BEFORE_HANDSHAKE)
    version = result.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise PeerLostError(
            f"speaks version {str(version)[:40]!r} of MCP; "
            f"known are {', '.join(HANDSHAKE_PROTOCOL_VERSIONS)}"
        )
    facts = read_facts(result, result.get("serverInfo"), protocol_version=version, is_modern=False)
    return facts, Era(protocol_version=version)


async def _discover(send: Send, capabilities: JsonObject) -> tuple[ServerFacts, Era]:
    first = _modern_era(LATEST_MODERN_VERSION, capabilities)
    result = await send("server/discover", {}, first)
    offered = result.get("supportedVersions")
    versions = offered if isinstance(offered, list) else []
    common = [version for version in MODERN_PROTOCOL_VERSIONS if version in versions]
    if not common:
        raise PeerLostError(f"speaks no version of MCP that is known: {str(versions)[:200]}")
    meta = result.get("_meta")
    info = meta.get(SERVER_INFO_META_KEY) if isinstance(meta, dict) else None
    facts = read_facts(result, info, protocol_version=common[-1], is_modern=True)
    return facts, _modern_era(common[-1], capabilities)


def _modern_era(version: str, capabilities: JsonObject) -> Era:
    meta: JsonObject = {
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: _client_info(),
        CLIENT_CAPABILITIES_META_KEY: capabilities,
    }
    return Era(protocol_version=version, meta=meta)


def _client_info() -> JsonObject:
    return {"name": "nacre", "version": _VERSION}
