"""The catalog of the configured tools: policy applied, servers started, plugins loaded."""

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
    UsageProblem,
    cell_text,
    count_text,
    errors_are_on_terminal,
    say,
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
    from nacre.config.agents import AgentConfig
    from nacre.config.plugins import PluginsConfig
    from nacre.config.tool_search import ToolSearchConfig
    from nacre.errors import ToolError
    from nacre.mcp_client import McpServer
    from nacre.plugins import PluginHost
    from nacre.run_context import AbortSignal
    from nacre.tool_search.catalog import Listing
    from nacre.tools import CoreTools


_UNHEARD: Final = logging.NullHandler()


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentParts:
    """What is configured; a part with a fault in its settings is left out."""

    agent_id: str
    agent: AgentConfig | None
    plugins: PluginsConfig | None
    problems: dict[str, str]
    """By part, why it is left out."""
    is_known: bool
    """Whether the configuration has the agent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentTools:
    """The tools, as long as they can be called."""

    tools: tuple[Tool, ...] = ()
    hooks: Hooks = field(default_factory=Hooks)
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    """By plugin or part, why its tools are missing."""


def read_agent_parts(
    document: Mapping[str, object], *, folder: Path, agent_id: str | None
) -> AgentParts:
    """Of the agent with this id, or of the one that the configuration has as its default."""
    # Not a part of every command, and not cheap to import.
    from nacre.config import read_system

    found = read_system(document, environment=os.environ, folder=folder)
    agents = found.config.agents
    wanted = agent_id or agents.default_id
    agent = next(
        (it for it in agents.by_id.values() if it.id.casefold() == wanted.casefold()), None
    )
    nobody = f"there is no agent {wanted!r}" if agent is None else ""
    problems = {
        "core": _first_in(found.problems, ("tools", "agents")) or nobody,
        "plugins": _first_in(found.problems, ("plugins",)),
    }
    return AgentParts(
        agent_id=wanted,
        # Not with a default in the place of the fault: it may be about what must not be done.
        agent=None if problems["core"] else agent,
        plugins=None if problems["plugins"] else found.config.plugins,
        problems={part: problem for part, problem in problems.items() if problem},
        is_known=agent is not None,
    )


@asynccontextmanager
async def open_agent_tools(
    parts: AgentParts, *, reserved_ids: Collection[str]
) -> AsyncGenerator[AgentTools]:
    """Load the plugins, and end at the end whatever the tools have started."""
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

    return CoreTools(agent.core_tools, workspace=agent.workspace, messages=_Said())


def _plugin_host(hooks: Hooks, reserved_ids: Collection[str]) -> PluginHost:
    from nacre.code_mode.namespaces import NamespaceRegistry
    from nacre.plugins import PluginHost

    # What it logs of plugins that fail is told as what is missing.
    logging.getLogger("nacre.plugins.host").addHandler(_UNHEARD)
    return PluginHost(hooks=hooks, namespaces=NamespaceRegistry(), reserved_ids=reserved_ids)


def _first_in(problems: Iterable[ConfigError], sections: Collection[str]) -> str:
    """The first fault in these sections; a secret that is not here is none of a tool's settings."""
    for problem in problems:
        section = problem.path.partition(".")[0].partition("[")[0]
        if section in sections and not isinstance(problem, MissingReferenceError):
            return str(problem)
    return ""


class _Said:
    """Where the tool `message` sends what it is given."""

    async def send(self, text: str, context: RunContext, /) -> None:
        say(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfiguredTools:
    """What is configured; nothing of it is started."""

    own_tools: tuple[Tool, ...]
    """Those that the command names."""
    parts: AgentParts
    """Core tools and plugins."""
    servers: ConfiguredServers
    policy: ToolPolicy
    context: RunContext
    settings: ToolSearchConfig

    @property
    def usable_server_names(self) -> tuple[str, ...]:
        """Those that programs see: neither switched off nor ruled out by policy."""
        return tuple(filter(self.policy.may_permit_server, self.servers.names))

    @property
    def asked_server_names(self) -> tuple[str, ...]:
        """Those whose tools belong into the catalog, also where their entry is wrong."""
        servers = self.servers.servers
        return tuple(it.name for it in servers if not self._reason_to_leave_out(it))

    def server_problems(self, names: Sequence[str]) -> dict[str, str]:
        """Of these servers, why one cannot be asked at all."""
        problems = {name: self._server_problem(name) for name in names}
        return {name: problem for name, problem in problems.items() if problem}

    def _server_problem(self, name: str) -> str:
        [server] = self.servers.select(name).servers
        return server.problem or self._reason_to_leave_out(server)

    def _reason_to_leave_out(self, server: ConfiguredServer) -> str:
        if server.is_disabled:
            return "it is switched off in the configuration"
        if not self.policy.may_permit_server(server.name):
            return "the configuration permits none of its tools (`allow` and `deny`)"
        return ""


def configured_tools(
    *,
    config: str | None,
    server_files: Sequence[str],
    tool_modules: Sequence[str],
    agent_id: str | None,
) -> ConfiguredTools:
    """The tools of the configuration and those named beside it; raises UsageProblem."""
    servers = configured_servers(config, server_files)
    own_tools = tuple(load_tools(tool_modules))
    parts = read_agent_parts(servers.document, folder=servers.folder, agent_id=agent_id)
    context = RunContext(agent_id=parts.agent_id)
    try:
        if agent_id is not None:
            _refuse_unknown_agent(parts, agent_id)
        tools = tools_config_from(servers.document, context.agent_id)
        _warn_of_uncataloged(own_tools)
    except ConfigError as error:
        raise UsageProblem(str(error)) from None
    except CatalogError as error:
        raise UsageProblem(f"these tools cannot be used together: {error}") from None
    return ConfiguredTools(
        own_tools=own_tools,
        parts=parts,
        servers=servers,
        policy=policy_for(tools, context),
        context=context,
        settings=tools.tool_search,
    )


def _refuse_unknown_agent(parts: AgentParts, agent_id: str) -> None:
    # Under a misspelt one the rules of the agent that was meant would not hold.
    if not parts.is_known and agent_id != RunContext().agent_id:
        raise ConfigError("agents", f"has no agent {agent_id!r}, which --agent names")


def _warn_of_uncataloged(tools: Sequence[Tool]) -> None:
    catalog = build_catalog(tools)
    for tool in tools:
        if catalog.by_id(tool.id) is None:
            warn(f"{tool.id} is left out: it is shown to models as it is, and in no catalog")


@contextmanager
def waiting_for_servers(names: Sequence[str]) -> Generator[Callable[[str], None]]:
    """Call what it gives with the name of each server that has mark_answered."""
    if not names or not errors_are_on_terminal():
        yield lambda _name: None
        return
    # Slow to import, and only people need it.
    from rich.console import Console
    from rich.text import Text

    waited_for = dict.fromkeys(names)

    def text() -> Text:
        # As text, not as markup.
        which = cell_text(", ".join(waited_for), most_characters=60)
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
    """What the servers that were asked have, and the tools that need none."""

    configured: ConfiguredTools
    listing: Listing
    live: LiveCatalog
    hooks: Hooks
    """Those of the plugins."""
    problems: dict[str, str]
    """By server or plugin, why its tools are missing."""
    notes: dict[str, str]
    """By server, what is wrong with single tools."""

    def warn_of_problems(self) -> None:
        for name, problem in self.problems.items():
            warn(f"the tools of {name} are missing: {problem}")
        for name, note in self.notes.items():
            warn(f"{name}: {note}")


def read_catalog(
    configured: ConfiguredTools, server_names: Sequence[str], *, timeout_seconds: float
) -> OpenCatalog | ExitStatus:
    """The catalog with these servers, which are stopped again; a signal ends it.

    Raises UsageProblem.
    """

    async def read(abort: AbortSignal) -> OpenCatalog | None:
        try:
            async with open_catalog(
                configured, server_names, timeout_seconds=timeout_seconds, abort=abort
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
) -> AsyncGenerator[OpenCatalog]:
    """The catalog with these servers, which run until its end.

    Raises UsageProblem, and ToolAbortedError when it is aborted before it is there.
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
                connections.servers(), problems, timeout_seconds=timeout_seconds
            )
        if abort.is_aborted:
            raise ToolAbortedError(abort.reason, tool_id="")
        notes = {server.name: server.status().problem for server in ready}
        try:
            tools = _join_tools(configured.own_tools, agent.tools)
            live = LiveCatalog(tools, servers=ready, policy=configured.policy)
        except CatalogError as error:
            raise UsageProblem(f"these tools cannot be used together: {error}") from None
        listing, unusable = await live.started_listing()
        yield OpenCatalog(
            configured=configured,
            listing=listing,
            live=live,
            hooks=agent.hooks,
            problems={**agent.problems, **problems, **unusable},
            notes={name: note for name, note in notes.items() if note},
        )


def _join_tools(own: Sequence[Tool], of_agent: Sequence[Tool]) -> list[Tool]:
    """What a command names goes before a tool of the agent with the same id."""
    own_ids = {tool.id for tool in own}
    hidden = [tool.id for tool in of_agent if tool.id in own_ids]
    if hidden:
        warn(f"--tools hides what the agent has as {', '.join(hidden)}")
    return [*(tool for tool in of_agent if tool.id not in own_ids), *own]


async def _ready_servers(
    servers: Sequence[McpServer], problems: dict[str, str], *, timeout_seconds: float
) -> list[McpServer]:
    """Those that answered; why the others did not goes into `problems`."""
    ready: dict[str, McpServer] = {}
    with waiting_for_servers([server.name for server in servers]) as answered:

        async def ask(server: McpServer) -> None:
            survey = await survey_server(server, timeout_seconds)
            if survey.state == "ready":
                ready[server.name] = server
            else:
                problems[server.name] = survey.problem
            answered(server.name)

        async with anyio.create_task_group() as tasks:
            for server in servers:
                tasks.start_soon(ask, server)
    return [server for server in servers if server.name in ready]


_MAX_SHOWN: Final = 120
_MAX_SAME_NAME: Final = 10
_SERVERLESS: Final = tuple(source for source in SOURCES if source != "mcp")


def servers_to_ask(configured: ConfiguredTools, id_or_name: str) -> Sequence[str]:
    """Without their tools it is not known which one is meant; says so where all are asked."""
    if _source_in(id_or_name) in _SERVERLESS:
        return ()
    owner = _owner_in(id_or_name)
    if any(server.name == owner for server in configured.servers.servers):
        return (owner,)
    names = configured.asked_server_names
    if names:
        _tell_of_asking(names, id_or_name)
    return names


def named_tool(catalog: OpenCatalog, id_or_name: str) -> CatalogEntry:
    """The tool; raises ToolError that says why there is none to use."""
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
    raise _unknown(catalog, id_or_name)


def _tell_of_asking(names: Sequence[str], id_or_name: str) -> None:
    shown = cell_text(id_or_name, most_characters=_MAX_SHOWN)
    whom = count_text(len(names), "MCP server")
    hint = "a full id, such as mcp:server:tool, starts no more than it needs"
    warn(f"starting {whom} to find {shown!r}; {hint}")


def _unknown(catalog: OpenCatalog, id_or_name: str) -> ToolError:
    shown = id_or_name if len(id_or_name) <= _MAX_SHOWN else f"{id_or_name[:_MAX_SHOWN]}…"
    entries = catalog.listing.catalog.entries
    same_name = [entry.id for entry in entries if entry.name == id_or_name]
    if same_name:
        ids = ", ".join(same_name[:_MAX_SAME_NAME])
        problem = f"{len(same_name)} tools are named {shown!r}; name one by its id: {ids}"
        return UnknownToolError(problem, tool_id=shown, nearest=same_name[:_MAX_SAME_NAME])
    nearest = catalog.listing.nearest(id_or_name)
    hint = f"nearest: {', '.join(nearest)}" if nearest else "`nacre tools search` finds what is"
    return UnknownToolError(f"there is no tool {shown!r}; {hint}", tool_id=shown, nearest=nearest)


def _owner_in(tool_id: str) -> str:
    """The server that an id names; empty for what is no id of a server's tool."""
    return tool_id.split(":")[1] if _source_in(tool_id) == "mcp" else ""


def _source_in(id_or_name: str) -> str:
    """The source that an id names; empty for a name."""
    source, colon, _ = id_or_name.partition(":")
    return source if colon else ""
