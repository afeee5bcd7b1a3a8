"""The settings of the core tools: `tools.fs`, `tools.exec` and `tools.web.fetch`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from nacre.config.section import Section

FsAsk = Literal["writes", "always", "never"]
Ask = Literal["always", "never"]

_MAX_BYTES: Final = 67_108_864
_HOSTS: Final = 'hosts such as "example.org", "*.example.org" for all below one, "*" for all'
_HOST = re.compile(r"\*|(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*|\[[0-9A-Fa-f:.]+\]")


@dataclass(frozen=True, kw_only=True, slots=True)
class FsToolsConfig:
    """The tools that read and write files of the workspace."""

    is_enabled: bool = True
    ask: FsAsk = "writes"
    max_read_bytes: int = 262_144


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecToolConfig:
    """The tool that runs commands of the machine; off unless it is allowed."""

    is_enabled: bool = False
    ask: Ask = "always"
    timeout_seconds: float = 120.0
    max_output_bytes: int = 262_144


@dataclass(frozen=True, kw_only=True, slots=True)
class WebFetchConfig:
    """The tool that reads web pages of hosts that are named; off unless it is allowed."""

    is_enabled: bool = False
    allow: tuple[str, ...] = ()
    """Hosts, `*.example.org` for all below one; without any, nothing can be fetched."""
    max_bytes: int = 2_097_152
    timeout_seconds: float = 30.0
    ask: Ask = "never"


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreToolsConfig:
    """The core tools of one agent."""

    fs: FsToolsConfig = field(default_factory=FsToolsConfig)
    exec: ExecToolConfig = field(default_factory=ExecToolConfig)
    web_fetch: WebFetchConfig = field(default_factory=WebFetchConfig)


def read_core_tools(tools: Section) -> CoreToolsConfig:
    """Read the core tools' part of `tools`; faults are noted."""
    return CoreToolsConfig(
        fs=_fs(tools.section("fs")),
        exec=_exec(tools.section("exec")),
        web_fetch=_web_fetch(tools.section("web").section("fetch")),
    )


def _fs(fs: Section) -> FsToolsConfig:
    default = FsToolsConfig()
    return FsToolsConfig(
        is_enabled=fs.switch("enabled", default.is_enabled),
        ask=fs.choice("ask", default.ask, get_args(FsAsk)),
        max_read_bytes=fs.whole(
            "maxReadBytes", default.max_read_bytes, least=1_024, most=_MAX_BYTES
        ),
    )


def _exec(exec_tool: Section) -> ExecToolConfig:
    default = ExecToolConfig()
    return ExecToolConfig(
        is_enabled=exec_tool.switch("enabled", default.is_enabled),
        ask=exec_tool.choice("ask", default.ask, get_args(Ask)),
        timeout_seconds=exec_tool.number(
            "timeoutSeconds", default.timeout_seconds, least=1, most=86_400
        ),
        max_output_bytes=exec_tool.whole(
            "maxOutputBytes", default.max_output_bytes, least=1_024, most=_MAX_BYTES
        ),
    )


def _web_fetch(fetch: Section) -> WebFetchConfig:
    default = WebFetchConfig()
    return WebFetchConfig(
        is_enabled=fetch.switch("enabled", default.is_enabled),
        allow=tuple(
            # A rule that looks like one and never fits would be a trap.
            host.lower()
            for host in fetch.texts("allow", allowed=_HOSTS, fits=_HOST.fullmatch)
        ),
        max_bytes=fetch.whole("maxBytes", default.max_bytes, least=1_024, most=_MAX_BYTES),
        timeout_seconds=fetch.number("timeoutSeconds", default.timeout_seconds, least=1, most=600),
        ask=fetch.choice("ask", default.ask, get_args(Ask)),
    )
