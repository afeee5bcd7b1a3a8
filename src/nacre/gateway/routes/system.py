"""Health, metrics, and the configured agents, models, tools and plugins."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

import nacre
from nacre.agent import CallerRight
from nacre.config import TokenScope
from nacre.gateway.metrics import CONTENT_TYPE
from nacre.gateway.routing import BEARER, OpaqueMap, ResponseModel, State, error_responses
from nacre.gateway.web import APP_PATH, wants_page
from nacre.run_context import RunContext
from nacre.tools import effective_tools, policy_for


class AboutResponse(ResponseModel):
    """The version and the paths of the APIs."""

    name: str
    version: str
    openapi: str
    api: str
    openai_api: str
    app: str
    """The web app, for browsers."""


class HealthResponse(ResponseModel):
    """The state of the gateway, without details, because no token is required."""

    status: Literal["ok", "ready", "closing", "unavailable", "runtime_unavailable"]


class AgentInfo(ResponseModel):
    """An agent of the configuration."""

    id: str
    name: str
    model: str
    fallback_models: tuple[str, ...]
    is_default: bool


class AgentsResponse(ResponseModel):
    """All agents."""

    agents: tuple[AgentInfo, ...]


class ModelInfo(ResponseModel):
    """A model of the configuration."""

    id: str
    """`provider/model`."""
    name: str
    context_window: int | None = None
    """The number of tokens that it can read, as in the configuration."""
    max_tokens: int | None = None


class ModelsResponse(ResponseModel):
    """The configured models."""

    models: tuple[ModelInfo, ...]
    open_providers: tuple[str, ...]
    """Providers without a list of models: you can use any of their models."""


class ToolInfo(ResponseModel):
    """A tool of the agent."""

    id: str
    name: str
    label: str | None = None
    description: str
    source: str
    owner: str
    parameters: OpaqueMap
    needs_approval: str = ""
    """Why every call needs approval; empty if it does not."""


class McpServerInfo(ResponseModel):
    """An MCP server. Its tools are known after a session has used it."""

    name: str
    state: str
    tool_count: int | None = None
    version: str = ""
    problem: str = ""


class ToolsResponse(ResponseModel):
    """The tools of an agent and its plugins, and the MCP servers."""

    agent_id: str
    tools: tuple[ToolInfo, ...]
    servers: tuple[McpServerInfo, ...]


class CommandInfo(ResponseModel):
    """A chat command: a message such as `/status`."""

    name: str
    """Without the slash."""
    arguments: str
    """The syntax of its arguments; empty if it has none."""
    description: str
    aliases: tuple[str, ...]
    required_scope: TokenScope
    """The scope that the token needs."""


class CommandsResponse(ResponseModel):
    """The chat commands."""

    commands: tuple[CommandInfo, ...]


class PluginInfo(ResponseModel):
    """An installed plugin."""

    id: str
    state: str
    version: str = ""
    description: str = ""
    tools: tuple[str, ...]
    hooks: tuple[str, ...]
    namespaces: tuple[str, ...]
    context_engines: tuple[str, ...] = ()
    problem: str = ""


class PluginsResponse(ResponseModel):
    """All plugins, ordered by id."""

    plugins: tuple[PluginInfo, ...]


open_router = APIRouter(tags=["health"])
metrics_router = APIRouter(tags=["health"], dependencies=[BEARER])


@open_router.get("/", summary="About this gateway", response_model=AboutResponse)
async def get_about(request: Request) -> AboutResponse | Response:
    """The version and the paths of the APIs. Browsers are redirected to the web app."""
    if wants_page(request.headers.get("accept", "")):
        return RedirectResponse(f"{APP_PATH}/", headers={"vary": "Accept"})
    return AboutResponse(
        name="nacre",
        version=nacre.__version__,
        openapi="/openapi.json",
        api="/api",
        openai_api="/v1",
        app=f"{APP_PATH}/",
    )


@open_router.get("/healthz", summary="Liveness probe")
async def get_health() -> HealthResponse:
    """Answers as long as the process runs."""
    return HealthResponse(status="ok")


@open_router.get(
    "/readyz",
    summary="Readiness probe",
    responses={503: {"model": HealthResponse, "description": "Runs cannot be started now."}},
)
async def get_readiness(response: Response, state: State) -> HealthResponse:
    """Whether runs can be started: the gateway is not closing, the database can be used, and
    programs can run if an agent uses code mode."""
    if state.is_closing:
        response.status_code = 503
        return HealthResponse(status="closing")
    if not await state.readiness.is_ready():
        response.status_code = 503
        return HealthResponse(status="unavailable")
    agents = state.system.config.agents.by_id.values()
    has_code_mode = any(agent.tools.code_mode.enabled for agent in agents)
    if has_code_mode and state.system.runtime.sandbox.problem:
        response.status_code = 503
        return HealthResponse(status="runtime_unavailable")
    return HealthResponse(status="ready")


@metrics_router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        **error_responses(),
        200: {
            "description": "Metrics in the text format of Prometheus.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
    },
)
async def metrics(state: State) -> Response:
    """Metrics in the text format of Prometheus."""
    return Response(state.metrics.render(), media_type=CONTENT_TYPE)


router = APIRouter(prefix="/api", tags=["system"], dependencies=[BEARER])


@router.get("/agents", summary="List agents", responses=error_responses())
async def list_agents(state: State) -> AgentsResponse:
    """List the agents."""
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


@router.get("/models", summary="List models", responses=error_responses())
async def list_models(state: State) -> ModelsResponse:
    """List the models."""
    providers = state.system.config.models.providers
    models: list[ModelInfo] = []
    for model_id in state.system.list_models():
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


@router.get("/tools", summary="List the tools of an agent", responses=error_responses(404))
async def list_tools(
    state: State, agent_id: Annotated[str, Query(alias="agentId", max_length=500)] = ""
) -> ToolsResponse:
    """List the tools of an agent."""
    system = state.system
    agents = system.config.agents
    agent = agents.agent(agent_id or agents.default_id)
    context = RunContext(agent_id=agent.id, is_sandboxed=agent.is_sandboxed())
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


_SCOPES: Final[dict[CallerRight | None, TokenScope]] = {
    None: "run",
    "approve": "approve",
    "owner": "admin",
}


@router.get("/commands", summary="List chat commands", responses=error_responses())
async def list_commands(state: State) -> CommandsResponse:
    """List the chat commands. Send one as the text of a run."""
    return CommandsResponse(
        commands=tuple(
            CommandInfo(
                name=command.name,
                arguments=command.arguments,
                description=command.description,
                aliases=command.aliases,
                required_scope=_SCOPES[command.right],
            )
            for command in state.system.agents.commands.all
        )
    )


@router.get("/plugins", summary="List plugins", responses=error_responses())
async def list_plugins(state: State) -> PluginsResponse:
    """List the plugins, with the problems of those that are not loaded."""
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
                context_engines=plugin.context_engines,
                problem=plugin.problem,
            )
            for plugin in state.system.plugins.status()
        )
    )


def _servers(state: State) -> tuple[McpServerInfo, ...]:
    """Each server once, even if several sessions have connections."""
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
