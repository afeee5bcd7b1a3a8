"""Builds the catalog of the configured tools: applies policy, starts servers, loads plugins."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from nacre.cli.configured_servers import configured_servers, survey_server
from nacre.cli.output import (
    ExitStatus,
    UsageError,
    count_text,
    is_stderr_terminal,
    say,
    shorten,
    warn,
)
from nacre.cli.runner import run_abortable
from nacre.cli.tool_modules import load_tools
from nacre.config import tools_config_from
from nacre.errors import (
    CatalogError,
    ConfigError,
    MissingReferenceError,
    ToolAbortedError,
    ToolDeniedError,
    ToolServerError,
    UnknownToolError,
)
from nacre.hooks import Hooks
from nacre.mcp_client import McpConnections
from nacre.run_context import RunContext
from nacre.tool_search.catalog import LiveCatalog
from nacre.tools import SOURCES, CatalogEntry, Tool, ToolPolicy, build_catalog, policy_for

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Callable,
        Collection,
        Generator,
        Iterable,
        Mapping,
        Sequence,
    )
    from pathlib import Path

    from nacre.cli.configured_servers import ConfiguredServer, ConfiguredServers
    from nacre.config import AgentConfig, PluginsConfig, ToolSearchConfig
    from nacre.errors import ToolError
    from nacre.mcp_client import McpServer
    from nacre.plugins import PluginHost
    from nacre.run_context import AbortSignal
    from nacre.tool_search.catalog import Listing
    from nacre.tools import Attachment, CoreTools


_NULL_HANDLER: Final = logging.NullHandler()


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentParts:
    """The agent and the plugins of the configuration. A part with invalid settings is None."""

    agent_id: str
    agent: AgentConfig | None
    plugins: PluginsConfig | None
    problems: dict[str, str]
    """The problem of each invalid part."""
    is_known: bool
    """Whether the configuration has the agent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentTools:
    """The tools and hooks of an agent, while they are usable."""

    tools: tuple[Tool, ...] = ()
    hooks: Hooks = field(default_factory=Hooks)
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why the tools of a plugin or part are missing."""


def read_agent_parts(
    document: Mapping[str, object], *, folder: Path, agent_id: str | None
) -> AgentParts:
    """Read the settings of the agent, or of the default agent for None."""
    # Not a part of every command, and not cheap to import.
    from nacre.config import read_system

    found = read_system(document, environment=os.environ, folder=folder)
    agents = found.config.agents
    wanted = agent_id or agents.default_id
    agent = next(
        (it for it in agents.by_id.values() if it.id.casefold() == wanted.casefold()), None
    )
    unknown = f"there is no agent {wanted!r}" if agent is None else ""
    problems = {
        "core": _find_problem(found.problems, ("tools", "agents")) or unknown,
        "plugins": _find_problem(found.problems, ("plugins",)),
    }
    return AgentParts(
        agent_id=wanted,
        # No defaults for invalid settings: they may forbid something.
        agent=None if problems["core"] else agent,
        plugins=None if problems["plugins"] else found.config.plugins,
        problems={part: problem for part, problem in problems.items() if problem},
        is_known=agent is not None,
    )


@asynccontextmanager
async def open_agent_tools(
    parts: AgentParts, *, reserved_ids: Collection[str]
) -> AsyncGenerator[AgentTools]:
    """Load the plugins and create the core tools, for the duration of the block."""
    hooks = Hooks()
    tools: list[Tool] = []
    problems = dict(parts.problems)
    async with AsyncExitStack() as stack:
        if parts.agent is not None:
            core = await stack.enter_async_context(_core_tools(parts.agent))
            tools += core.tools
        if parts.plugins is not None:
            host = await stack.enter_async_context(_plugin_host(hooks, reserved_ids))
            await host.apply(parts.plugins)
            tools += host.tools
            problems |= {it.id: it.problem for it in host.status() if it.state == "failed"}
        yield AgentTools(tools=tuple(tools), hooks=hooks, problems=problems)


def _core_tools(agent: AgentConfig) -> CoreTools:
    from nacre.tools import CoreTools

    return CoreTools(agent.core_tools, workspace=agent.workspace, messages=_MessagePrinter())


def _plugin_host(hooks: Hooks, reserved_ids: Collection[str]) -> PluginHost:
    from nacre.code_mode.namespaces import NamespaceRegistry
    from nacre.plugins import PluginHost

    # Failed plugins are reported as missing tools instead.
    logging.getLogger("nacre.plugins.host").addHandler(_NULL_HANDLER)
    return PluginHost(hooks=hooks, namespaces=NamespaceRegistry(), reserved_ids=reserved_ids)


def _find_problem(problems: Iterable[ConfigError], sections: Collection[str]) -> str:
    """The first problem in these sections. A missing secret does not concern the tools."""
    for problem in problems:
        section = problem.path.partition(".")[0].partition("[")[0]
        if section in sections and not isinstance(problem, MissingReferenceError):
            return str(problem)
    return ""


class _MessagePrinter:
    """The sink of the tool `message`."""

    async def send(
        self, text: str, context: RunContext, /, *, attachments: Sequence[Attachment] = ()
    ) -> None:
        for line in (text, *(file.path for file in attachments)):
            if line:
                say(line)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfiguredTools:
    """The configured tools, of which nothing is started yet."""

    own_tools: tuple[Tool, ...]
    """The tools of `--tools`."""
    parts: AgentParts
    """Core tools and plugins."""
    servers: ConfiguredServers
    policy: ToolPolicy
    context: RunContext
    settings: ToolSearchConfig

    @property
    def usable_server_names(self) -> tuple[str, ...]:
        """The servers that programs can use: enabled, and permitted by the policy."""
        return tuple(filter(self.policy.may_permit_server, self.servers.names))

    @property
    def catalog_server_names(self) -> tuple[str, ...]:
        """The servers whose tools belong to the catalog, including those with an invalid entry."""
        servers = self.servers.servers
        return tuple(it.name for it in servers if not self._exclusion_reason(it))

    def server_problems(self, names: Sequence[str]) -> dict[str, str]:
        """Why servers among these cannot be started."""
        problems = {name: self._server_problem(name) for name in names}
        return {name: problem for name, problem in problems.items() if problem}

    def _server_problem(self, name: str) -> str:
        [server] = self.servers.select(name).servers
        return server.problem or self._exclusion_reason(server)

    def _exclusion_reason(self, server: ConfiguredServer) -> str:
        if server.is_disabled:
            return "it is disabled in the configuration"
        if server.server.excludes_all_tools:
            return "its own `allow` or `deny` excludes all of its tools"
        if not self.policy.may_permit_server(server.name):
            return "the policy permits none of its tools (`allow` and `deny`)"
        return ""


def configured_tools(
    *,
    config: str | None,
    server_files: Sequence[str],
    tool_modules: Sequence[str],
    agent_id: str | None,
) -> ConfiguredTools:
    """Read the configured tools and load those of `--tools`. Raises UsageError."""
    servers = configured_servers(config, server_files)
    own_tools = tuple(load_tools(tool_modules))
    parts = read_agent_parts(servers.document, folder=servers.folder, agent_id=agent_id)
    is_sandboxed = parts.agent is not None and parts.agent.is_sandboxed()
    context = RunContext(agent_id=parts.agent_id, is_sandboxed=is_sandboxed)
    try:
        if agent_id is not None:
            _check_agent(parts, agent_id)
        tools = tools_config_from(servers.document, context.agent_id)
        _warn_of_direct_tools(own_tools)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    except CatalogError as error:
        raise UsageError(f"these tools cannot be used together: {error}") from None
    return ConfiguredTools(
        own_tools=own_tools,
        parts=parts,
        servers=servers,
        policy=policy_for(tools, context),
        context=context,
        settings=tools.tool_search,
    )


def _check_agent(parts: AgentParts, agent_id: str) -> None:
    # With a misspelled id, the rules of the intended agent would not apply.
    if not parts.is_known and agent_id != RunContext().agent_id:
        raise ConfigError("agents", f"has no agent {agent_id!r}, which --agent names")


def _warn_of_direct_tools(tools: Sequence[Tool]) -> None:
    catalog = build_catalog(tools)
    for tool in tools:
        if catalog.by_id(tool.id) is None:
            warn(f"{tool.id} is left out: models always get it directly, so it is in no catalog")


@contextmanager
def show_waiting(names: Sequence[str]) -> Generator[Callable[[str], None]]:
    """Show the servers that have not answered. Yields a function to report one that has."""
    if not names or not is_stderr_terminal():
        yield lambda _name: None
        return
    # Slow to import, and only needed on a terminal.
    from rich.console import Console
    from rich.text import Text

    waited_for = dict.fromkeys(names)

    def text() -> Text:
        # As text, not as markup.
        which = shorten(", ".join(waited_for), max_characters=60)
        return Text(f"waiting for {count_text(len(waited_for), 'server')}: {which}")

    with Console(stderr=True).status(text()) as status:

        def mark_answered(name: str) -> None:
            waited_for.pop(name, None)
            if waited_for:
                status.update(text())
            else:
                status.stop()

        yield mark_answered


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenCatalog:
    """The catalog with the tools of the started servers and all other tools."""

    configured: ConfiguredTools
    listing: Listing
    live: LiveCatalog
    hooks: Hooks
    """The hooks of the plugins."""
    problems: dict[str, str]
    """Why the tools of a server or plugin are missing."""
    notes: dict[str, str]
    """Problems with single tools, by server."""

    def warn_of_problems(self, *, are_shown: bool = False) -> None:
        """Warn of problems, unless they are shown, and of notes."""
        for name, problem in () if are_shown else self.problems.items():
            warn(f"the tools of {name} are missing: {problem}")
        for name, note in self.notes.items():
            warn(f"{name}: {note}")


def read_catalog(
    configured: ConfiguredTools, server_names: Sequence[str], *, timeout_seconds: float
) -> OpenCatalog | ExitStatus:
    """Open the catalog with these servers. Only those without a cached list are started.

    Returns the exit status if a signal stops it. Raises UsageError.
    """

    async def read(abort: AbortSignal) -> OpenCatalog | None:
        try:
            async with open_catalog(
                configured,
                server_names,
                timeout_seconds=timeout_seconds,
                abort=abort,
                may_use_cache=True,
            ) as catalog:
                return catalog
        except ToolAbortedError:
            return None

    catalog, status = run_abortable(read)
    if catalog is None or status is not None:
        return status or ExitStatus.INTERRUPTED
    return catalog


@asynccontextmanager
async def open_catalog(
    configured: ConfiguredTools,
    server_names: Sequence[str],
    *,
    timeout_seconds: float,
    abort: AbortSignal,
    may_use_cache: bool = False,
) -> AsyncGenerator[OpenCatalog]:
    """Open the catalog with these servers, which run during the block.

    With `may_use_cache`, a server whose tools are in the cache is not started.

    Raises UsageError, and ToolAbortedError if it is aborted before the catalog is complete.
    """
    problems = configured.server_problems(server_names)
    configs = [
        config
        for config in configured.servers.configs
        if config.name in server_names and config.name not in problems
    ]
    async with (
        open_agent_tools(configured.parts, reserved_ids=configured.servers.names) as agent,
        McpConnections(configs) as connections,
    ):
        ready: list[McpServer] = []
        with abort.cancelling():
            ready = await _ready_servers(
                connections.servers(),
                problems,
                timeout_seconds=timeout_seconds,
                may_use_cache=may_use_cache,
            )
        if abort.is_aborted:
            raise ToolAbortedError(abort.reason, tool_id="")
        notes = {server.name: server.status().problem for server in ready}
        try:
            tools = _join_tools(configured.own_tools, agent.tools)
            live = LiveCatalog(tools, servers=ready, policy=configured.policy)
        except CatalogError as error:
            raise UsageError(f"these tools cannot be used together: {error}") from None
        listing, unusable = live.listing(), live.unusable
        yield OpenCatalog(
            configured=configured,
            listing=listing,
            live=live,
            hooks=agent.hooks,
            problems={**agent.problems, **problems, **unusable},
            notes={name: note for name, note in notes.items() if note},
        )


def _join_tools(own: Sequence[Tool], of_agent: Sequence[Tool]) -> list[Tool]:
    """A tool of `--tools` replaces a tool of the agent with the same id."""
    own_ids = {tool.id for tool in own}
    hidden = [tool.id for tool in of_agent if tool.id in own_ids]
    if hidden:
        warn(f"--tools replaces the agent's {', '.join(hidden)}")
    return [*(tool for tool in of_agent if tool.id not in own_ids), *own]


async def _ready_servers(
    servers: Sequence[McpServer],
    problems: dict[str, str],
    *,
    timeout_seconds: float,
    may_use_cache: bool,
) -> list[McpServer]:
    """The servers that answered. Adds the problems of the others to `problems`."""
    cached = [server for server in servers if may_use_cache and server.known_tools is not None]
    ready = {server.name: server for server in cached}
    started = [server for server in servers if server.name not in ready]
    with show_waiting([server.name for server in started]) as answered:

        async def ask(server: McpServer) -> None:
            survey = await survey_server(server, timeout_seconds)
            if survey.state == "ready":
                ready[server.name] = server
            else:
                problems[server.name] = survey.problem
            answered(server.name)

        async with anyio.create_task_group() as tasks:
            for server in started:
                tasks.start_soon(ask, server)
    return [server for server in servers if server.name in ready]


_MAX_SHOWN: Final = 120
_MAX_SAME_NAME: Final = 10
_SERVERLESS: Final = tuple(source for source in SOURCES if source != "mcp")


def select_servers(configured: ConfiguredTools, id_or_name: str) -> Sequence[str]:
    """The servers that have to be started to find the tool. Warns if it is all of them."""
    if _source_in(id_or_name) in _SERVERLESS:
        return ()
    owner = _owner_in(id_or_name)
    if any(server.name == owner for server in configured.servers.servers):
        return (owner,)
    names = configured.catalog_server_names
    if names:
        _warn_of_starting(names, id_or_name)
    return names


def find_tool(catalog: OpenCatalog, id_or_name: str) -> CatalogEntry:
    """Find the tool. Raises ToolError if it is unknown, denied, or its server is broken."""
    owner = _owner_in(id_or_name)
    if owner in catalog.problems:
        problem = f"the tools of {owner} are missing: {catalog.problems[owner]}"
        raise ToolServerError(problem, server=owner)
    catalog.warn_of_problems()
    entry = catalog.listing.resolve(id_or_name)
    if entry is not None:
        return entry
    denied = catalog.live.find_denied(id_or_name)
    if denied is not None:
        refusal = catalog.configured.policy.refusal(denied) or ""
        raise ToolDeniedError(refusal, code="denied_by_policy", tool_id=denied.id)
    raise _unknown_tool_error(catalog, id_or_name)


def _warn_of_starting(names: Sequence[str], id_or_name: str) -> None:
    shown = shorten(id_or_name, max_characters=_MAX_SHOWN)
    whom = count_text(len(names), "MCP server")
    hint = "a full id such as mcp:server:tool needs only one of them"
    warn(f"looking for {shown!r} in the tools of {whom}; {hint}")


def _unknown_tool_error(catalog: OpenCatalog, id_or_name: str) -> ToolError:
    shown = id_or_name if len(id_or_name) <= _MAX_SHOWN else f"{id_or_name[:_MAX_SHOWN]}…"
    entries = catalog.listing.catalog.entries
    same_name = [entry.id for entry in entries if entry.name == id_or_name]
    if same_name:
        ids = ", ".join(same_name[:_MAX_SAME_NAME])
        problem = f"{len(same_name)} tools are named {shown!r}; use an id: {ids}"
        return UnknownToolError(problem, tool_id=shown, nearest=same_name[:_MAX_SAME_NAME])
    nearest = catalog.listing.nearest(id_or_name)
    hint = f"nearest: {', '.join(nearest)}" if nearest else "search with `nacre tools search`"
    return UnknownToolError(f"there is no tool {shown!r}; {hint}", tool_id=shown, nearest=nearest)


def _owner_in(tool_id: str) -> str:
    """The server in the id of an MCP tool; empty for other ids and names."""
    return tool_id.split(":")[1] if _source_in(tool_id) == "mcp" else ""


def _source_in(id_or_name: str) -> str:
    """The source in an id; empty for a name."""
    source, colon, _ = id_or_name.partition(":")
    return source if colon else ""
