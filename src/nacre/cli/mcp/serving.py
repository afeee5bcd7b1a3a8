"""Serving MCP, from what the command line names to the exit status."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nacre.cli.output import UsageProblem, warn
from nacre.cli.tool_modules import load_tools
from nacre.errors import CatalogError, ConfigError, NacreError
from nacre.mcp_server import ServeOptions, serve_http, serve_stdio

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from nacre.cli.mcp_servers import ConfiguredServers


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpAddress:
    """Where HTTP is served, and to whom."""

    host: str
    port: int
    token_file: Path | None
    is_token_required: bool


def serve_options(configured: ConfiguredServers, *, tools: Sequence[str]) -> ServeOptions:
    """What is to be served; raises UsageProblem."""
    try:
        document = configured.code_mode_document()
    except ConfigError as error:
        raise UsageProblem(str(error)) from None
    return ServeOptions(servers=configured.configs, tools=load_tools(tools), config=document)


def serve(options: ServeOptions, address: HttpAddress | None) -> int:
    """Serve until it is over: HTTP at the address, else standard input. Raises UsageProblem."""
    with refusals_as_usage_problems():
        return _serve_stdio(options) if address is None else _serve_http(options, address)


@contextmanager
def refusals_as_usage_problems() -> Generator[None]:
    """Settings and tools that a server does not take are for whoever started it."""
    refused: list[NacreError] = []
    try:
        yield
    except* (ConfigError, CatalogError) as group:
        # They come out of a task group.
        refused += _leaves(group)
    if refused:
        raise UsageProblem("; ".join(map(str, refused))) from refused[0]


def _serve_stdio(options: ServeOptions) -> int:
    if sys.stdin is not None and sys.stdin.isatty():
        warn("this speaks MCP on standard input and output; see `nacre mcp config --help`")
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
