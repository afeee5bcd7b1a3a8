"""What there is: agents, models, tools and plugins."""

from typing import Annotated

from fastapi import APIRouter, Query

from nacre.gateway.routing import State
from nacre.gateway.schemas.base import error_answers
from nacre.gateway.schemas.system import (
    AgentInfo,
    AgentsResponse,
    McpServerInfo,
    ModelInfo,
    ModelsResponse,
    PluginInfo,
    PluginsResponse,
    ToolInfo,
    ToolsResponse,
)
from nacre.run_context import RunContext
from nacre.tools import effective_tools, policy_for

router = APIRouter(prefix="/api", tags=["system"])


@router.get("/agents", summary="The agents", responses=error_answers())
async def list_agents(state: State) -> AgentsResponse:
    """The agents that may be asked."""
    agents = state.system.config.agents
    return AgentsResponse(
        agents=tuple(
            AgentInfo(
                id=agent.id,
                name=agent.name,
                model=agent.model,
                fallback_models=agent.fallback_models,
                is_default=agent.id == agents.default_id,
            )
            for agent in agents.by_id.values()
        )
    )


@router.get("/models", summary="The models", responses=error_answers())
async def list_models(state: State) -> ModelsResponse:
    """The models that may be asked for."""
    providers = state.system.config.models.providers
    models: list[ModelInfo] = []
    for model_id in state.system.providers.list_models():
        provider, _, name = model_id.partition("/")
        known = providers[provider].models.get(name) if provider in providers else None
        models.append(
            ModelInfo(
                id=model_id,
                name=known.name if known else model_id,
                context_window=known.context_tokens if known else None,
                max_tokens=known.max_output_tokens if known else None,
            )
        )
    unlisted = tuple(state.system.providers.list_open_providers())
    return ModelsResponse(models=tuple(models), open_providers=unlisted)


@router.get("/tools", summary="The tools of an agent", responses=error_answers(404))
async def list_tools(
    state: State, agent_id: Annotated[str, Query(alias="agentId", max_length=500)] = ""
) -> ToolsResponse:
    """The tools that an agent may use."""
    system = state.system
    agents = system.config.agents
    agent = agents.agent(agent_id or agents.default_id)
    context = RunContext(agent_id=agent.id)
    policy = policy_for(agent.tools, context)
    tools = effective_tools(system.tools.tools(agent, context), policy)
    return ToolsResponse(
        agent_id=agent.id,
        tools=tuple(
            ToolInfo(
                id=tool.id,
                name=tool.name,
                label=tool.label,
                description=tool.description,
                source=tool.source,
                owner=tool.owner,
                parameters=dict(tool.parameters),
                needs_approval=tool.needs_approval,
            )
            for tool in tools
        ),
        servers=_servers(state),
    )


@router.get("/plugins", summary="The plugins", responses=error_answers())
async def list_plugins(state: State) -> PluginsResponse:
    """The plugins that were found, and why those that are not loaded are not."""
    return PluginsResponse(
        plugins=tuple(
            PluginInfo(
                id=plugin.id,
                state=plugin.state,
                version=plugin.version,
                description=plugin.description,
                tools=plugin.tool_names,
                hooks=plugin.hook_events,
                namespaces=plugin.namespaces,
                problem=plugin.problem,
            )
            for plugin in state.system.plugins.status()
        )
    )


def _servers(state: State) -> tuple[McpServerInfo, ...]:
    """Each once, though every session may have a connection of its own."""
    configured = [it for it in state.system.config.mcp_servers if not it.is_disabled]
    status = {it.name: it for it in state.system.mcp.status()}
    return tuple(
        McpServerInfo(
            name=server.name,
            state=status[server.name].state if server.name in status else "idle",
            tool_count=status[server.name].tool_count if server.name in status else None,
            version=status[server.name].version if server.name in status else "",
            problem=status[server.name].problem if server.name in status else "",
        )
        for server in configured
    )
