"""Which tools the commands are about, and under which policy: all sources come together here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nacre.cli.mcp_servers import configured_servers
from nacre.cli.output import UsageProblem, warn
from nacre.cli.tool_modules import load_tools
from nacre.cli.tools.agent_tools import read_agent_parts
from nacre.config.documents import agent_tools
from nacre.errors import CatalogError, ConfigError
from nacre.run_context import RunContext
from nacre.tool_search import tool_search_config_for
from nacre.tools import build_catalog
from nacre.tools.policy import policy_from_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.cli.mcp_servers import ConfiguredServer, ConfiguredServers
    from nacre.cli.tools.agent_tools import AgentParts
    from nacre.config.tool_search import ToolSearchConfig
    from nacre.tools import Tool, ToolPolicy


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
        [server] = self.servers.only(name).servers
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
            _refuse_unknown_agent(servers.document, agent_id)
        policy = policy_from_config(servers.document, context)
        settings = tool_search_config_for(servers.document, context.agent_id)
        _warn_of_uncataloged(own_tools)
    except ConfigError as error:
        raise UsageProblem(str(error)) from None
    except CatalogError as error:
        raise UsageProblem(f"these tools cannot be used together: {error}") from None
    return ConfiguredTools(
        own_tools=own_tools,
        parts=parts,
        servers=servers,
        policy=policy,
        context=context,
        settings=settings,
    )


def _refuse_unknown_agent(document: Mapping[str, object], agent_id: str) -> None:
    # Under a misspelt one the rules of the agent that was meant would not hold.
    is_known = agent_id == RunContext().agent_id or any(
        True for _ in agent_tools(document, agent_id)
    )
    if not is_known:
        raise ConfigError("agents", f"has no agent {agent_id!r}, which --agent names")


def _warn_of_uncataloged(tools: Sequence[Tool]) -> None:
    catalog = build_catalog(tools)
    for tool in tools:
        if catalog.by_id(tool.id) is None:
            warn(f"{tool.id} is left out: it is shown to models as it is, and in no catalog")
