"""Starts the MCP server of `nacre mcp serve`, and lists the tools that it offers."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from nacre.cli.output import UsageError, show_sandbox_progress, warn
from nacre.cli.runner import run_async
from nacre.cli.tool_modules import load_tools
from nacre.config import object_at
from nacre.errors import CatalogError, ConfigError, NacreError
from nacre.mcp_server import ServeOptions, serve_http, serve_stdio
from nacre.mcp_server.server import open_server

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from nacre.cli.configured_servers import ConfiguredServers
    from nacre.json_types import JsonObject


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpAddress:
    """The address of the HTTP server, and the token that it requires."""

    host: str
    port: int
    token_file: Path | None
    is_token_required: bool


def serve_options(configured: ConfiguredServers, *, tools: Sequence[str]) -> ServeOptions:
    """The servers, tools and settings to serve. Raises UsageError."""
    try:
        document = configured.code_mode_document()
        is_sandboxed = _is_sandboxed(document)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return ServeOptions(
        servers=configured.configs,
        tools=load_tools(tools),
        config=document,
        is_sandboxed=is_sandboxed,
    )


def _is_sandboxed(document: Mapping[str, object]) -> bool:
    """Whether `agents.defaults.sandbox.mode` applies: no client has the session `main`."""
    path, section = "agents", document
    for key in ("agents", "defaults", "sandbox"):
        path = key if key == "agents" else f"{path}.{key}"
        section = object_at(section.get(key), path)
    return section.get("mode", "off") != "off"


def serve(options: ServeOptions, address: HttpAddress | None) -> int:
    """Serve until a signal or the end of the input: HTTP at the address, else standard input.

    Raises UsageError.
    """
    with _convert_errors(), show_sandbox_progress():
        return _serve_stdio(options) if address is None else _serve_http(options, address)


@contextmanager
def _convert_errors() -> Generator[None]:
    """Raise UsageError for settings and tools that the server rejects."""
    errors: list[NacreError] = []
    try:
        yield
    except* (ConfigError, CatalogError) as group:
        errors += _leaves(group)
    if errors:
        raise UsageError("; ".join(map(str, errors))) from errors[0]


def _serve_stdio(options: ServeOptions) -> int:
    if sys.stdin is not None and sys.stdin.isatty():
        warn("this is an MCP server on standard input and output; see `nacre mcp config --help`")
    return serve_stdio(options)


def _serve_http(options: ServeOptions, address: HttpAddress) -> int:
    return serve_http(
        options,
        address.host,
        address.port,
        token_file=address.token_file,
        is_token_required=address.is_token_required,
    )


def _leaves(group: BaseExceptionGroup[NacreError]) -> Iterator[NacreError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def list_shown_tools(options: ServeOptions) -> list[JsonObject]:
    """List the tools that clients see, without starting an upstream server. Raises UsageError."""
    with _convert_errors():
        return run_async(lambda: _list_tools(options))


async def _list_tools(options: ServeOptions) -> list[JsonObject]:
    from mcp import Client

    async with (
        open_server(replace(options, workers=1)) as server,
        Client(server.sdk_server, mode="legacy") as client,
    ):
        listed = await client.list_tools()
    return [
        cast("JsonObject", tool.model_dump(mode="json", by_alias=True, exclude_none=True))
        for tool in listed.tools
    ]
