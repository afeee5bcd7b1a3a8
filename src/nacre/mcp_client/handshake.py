"""Negotiates the protocol version with a server and reads its name and capabilities.

`initialize` is tried first: all current servers know it, and many do not respond to the newer
`server/discover` before it. `server/discover` is for servers that reject `initialize`.
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
from nacre.mcp_client.upstream import PeerLostError, RpcError

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions


_MAX_NAME_CHARACTERS: Final = 100
_MAX_INSTRUCTIONS_CHARACTERS: Final = 8_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerFacts:
    """The name, version and capabilities of a server. Texts are truncated for display."""

    protocol_version: str
    is_modern: bool
    """Whether the protocol has no handshake: version 2026-07-28 or later."""
    version: str = ""
    """The name and version of the server."""
    description: str = ""
    capabilities: JsonObject = field(default_factory=dict[str, "JsonValue"])

    def has(self, capability: str) -> bool:
        return isinstance(self.capabilities.get(capability), dict)


def read_facts(
    result: JsonObject, info: JsonValue, *, protocol_version: str, is_modern: bool
) -> ServerFacts:
    """Read the result of `initialize` or `server/discover`, with the server info in it."""
    details = info if isinstance(info, dict) else {}
    names = (_text(details.get("name")), _text(details.get("version")))
    capabilities = result.get("capabilities")
    return ServerFacts(
        protocol_version=protocol_version,
        is_modern=is_modern,
        version=" ".join(name[:_MAX_NAME_CHARACTERS] for name in names if name),
        description=(
            _text(result.get("instructions"))
            or _text(details.get("description"))
            or _text(details.get("title"))
        )[:_MAX_INSTRUCTIONS_CHARACTERS],
        capabilities=capabilities if isinstance(capabilities, dict) else {},
    )


def _text(value: JsonValue) -> str:
    return value.strip() if isinstance(value, str) else ""


# Read from disk at import time, because this module is imported in a thread.
_VERSION: Final = package_version("nacre-ai")
_NEVER_CANCELLED: Final = frozenset({"initialize", "server/discover"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Era:
    """The protocol version, and the metadata that every request needs."""

    protocol_version: str = ""
    meta: JsonObject = field(default_factory=dict[str, JsonValue])
    """For a modern server: the client info, which is part of every request."""

    @property
    def has_session(self) -> bool:
        """Whether the server has a session from a handshake."""
        return bool(self.protocol_version) and not self.meta

    def stamp(self, method: str, params: JsonObject, options: CallOptions) -> None:
        """Add the `_meta` members and HTTP headers that the version requires."""
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
    """Negotiate with the server. Raises PeerLostError, and the RpcError of `initialize`."""
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
            f"uses version {str(version)[:40]!r} of MCP; "
            f"supported are {', '.join(HANDSHAKE_PROTOCOL_VERSIONS)}"
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
        raise PeerLostError(f"has no supported version of MCP: {str(versions)[:200]}")
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
