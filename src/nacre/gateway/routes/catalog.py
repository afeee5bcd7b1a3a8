"""The catalog of an agent: search, one tool, what the model sees, and manual calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from pydantic import Field

from nacre.agent import EXEC_ID, ManualCall, TurnRequest, planned_surface
from nacre.config import AgentConfig, RunConfig
from nacre.gateway.auth import caller_rights
from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonMap,
    JsonRoute,
    OpaqueJson,
    OpaqueMap,
    RequestModel,
    ResponseModel,
    State,
    error_responses,
)
from nacre.hooks import HookRunner, Hooks
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.run_context import RunContext
from nacre.tool_search import start_run
from nacre.tools import (
    SOURCES,
    Catalog,
    CatalogEntry,
    Tool,
    ToolExecutor,
    ToolServer,
    build_catalog,
    definition_bytes,
    effective_tools,
    format_tool,
    function_declaration,
    index_of,
    list_known_tools,
    permitted_servers,
    policy_for,
)
from nacre.trajectory import TrajectoryRecorder


class ScoreTermInfo(ResponseModel):
    """A part of a score: a word in a field of the tool, or another reason."""

    term: str
    field: str
    weight: float
    """The share of this part in the score."""
    score: float
    kind: str
    stands_for: str | None = None
    """The word of the query, if the term is a synonym or a correction of it."""


class ScoreInfo(ResponseModel):
    """Why a tool was found."""

    terms: tuple[ScoreTermInfo, ...]
    meaning: float | None
    """The similarity in meaning; null if tools are not searched by meaning."""


class CatalogHitInfo(ResponseModel):
    """A tool that was found."""

    tool_id: str
    tool_name: str
    description: str
    source: str
    score: float
    explanation: ScoreInfo


class CatalogSearchResponse(ResponseModel):
    """The tools, best first."""

    hits: tuple[CatalogHitInfo, ...]


class VisibleToolInfo(ResponseModel):
    """A tool as the model sees it."""

    name: str
    description: str
    bytes: int
    """The size of its definition in a request."""


class CatalogSizeInfo(ResponseModel):
    """The tools behind the surface, as if the model saw all of them."""

    tools: int
    bytes: int
    tokens: int
    sources: dict[str, int]


class CatalogSurfaceResponse(ResponseModel):
    """What the model sees against what is behind it. Tokens are estimates: four bytes each."""

    agent_id: str
    surface: Literal["code_mode", "tool_search", "direct"]
    visible: tuple[VisibleToolInfo, ...]
    visible_bytes: int
    visible_tokens: int
    catalog: CatalogSizeInfo


class CatalogToolResponse(ResponseModel):
    """A tool of the catalog."""

    tool_id: str
    tool_name: str
    description: str
    source: str
    owner: str
    parameters: OpaqueMap
    output_schema: OpaqueJson = None
    declaration: str
    """Its TypeScript declaration, as programs see it."""
    needs_approval: str
    policy: Literal["allowed"] = "allowed"
    """Tools that the policy denies are not in the catalog."""
    seen_as: OpaqueJson
    """Its definition, if the model saw it directly."""


class CallToolRequest(RequestModel):
    """A manual call of a tool."""

    tool_id: Annotated[str, Field(min_length=1, max_length=1000)]
    input: JsonMap = Field(default_factory=dict)
    agent_id: Annotated[str, Field(max_length=500)] = ""
    session_id: Annotated[str, Field(max_length=500)] = ""
    """The session of the turn; empty for a new one."""


class CallToolResponse(ResponseModel):
    """The run of a call. If it waits for an approval, follow the run."""

    run_id: str
    session_id: str
    state: Literal["queued", "running", "waiting", "completed", "failed", "aborted", "interrupted"]
    result: OpaqueJson = None
    error: str = ""


class PlaygroundRequest(RequestModel):
    """A program to run against the catalog of an agent."""

    code: Annotated[str, Field(min_length=1, max_length=200_000)]
    language: Literal["javascript", "typescript"] = "javascript"
    agent_id: Annotated[str, Field(max_length=500)] = ""
    session_id: Annotated[str, Field(max_length=500)] = ""
    """The session of the turn; empty for a new one."""


class PlaygroundResponse(ResponseModel):
    """The run of the program."""

    run_id: str
    session_id: str
    agent_id: str
    state: str


_BYTES_PER_TOKEN: Final = 4
_MAX_TITLE_CHARACTERS: Final = 60
AgentId = Annotated[str, Query(alias="agentId", max_length=500)]

router = APIRouter(prefix="/api", tags=["catalog"], route_class=JsonRoute, dependencies=[BEARER])


@dataclass(frozen=True, kw_only=True, slots=True)
class _AgentTools:
    """The tools of an agent that its policy permits, and its servers as far as they are known."""

    agent: AgentConfig
    executor: ToolExecutor
    tools: Sequence[Tool]
    servers: Sequence[ToolServer]
    catalog: Catalog


def _open_agent(state: GatewayState, agent_id: str) -> _AgentTools:
    system = state.system
    agents = system.config.agents
    agent = agents.agent(agent_id or agents.default_id)
    context = RunContext(agent_id=agent.id, is_sandboxed=agent.is_sandboxed())
    policy = policy_for(agent.tools, context)
    tools = system.tools.tools(agent, context)
    with system.mcp.in_use("") as found:
        servers = permitted_servers(found, policy, tools)
    executor = ToolExecutor(
        context=context,
        policy=policy,
        hooks=HookRunner(Hooks()),
        approvals=system.runtime.approvals(None),
        recorder=TrajectoryRecorder(context),
        validators=system.runtime.validators,
    )
    catalog = build_catalog(effective_tools([*tools, *list_known_tools(servers)], policy))
    return _AgentTools(
        agent=agent, executor=executor, tools=tools, servers=servers, catalog=catalog
    )


@router.get("/catalog/search", summary="Search tools", responses=error_responses(404))
async def search_catalog(
    state: State,
    query: Annotated[str, Query(alias="q", max_length=2000)],
    agent_id: AgentId = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> CatalogSearchResponse:
    """Search the tools of an agent as its model does, with the parts of each score."""
    catalog = _open_agent(state, agent_id).catalog
    found = await anyio.to_thread.run_sync(
        lambda: index_of(catalog, sources=SOURCES).explain(query, limit)
    )
    hits: list[CatalogHitInfo] = []
    for each in found:
        meanings = [part.weight for part in each.parts if part.kind == "meaning"]
        terms = tuple(
            ScoreTermInfo(
                term=part.term or part.kind,
                field=part.field or part.kind,
                weight=part.weight / each.score if each.score else 0.0,
                score=part.weight,
                kind=part.kind,
                stands_for=part.stands_for,
            )
            for part in each.parts
            if part.kind != "meaning"
        )
        hits.append(
            CatalogHitInfo(
                tool_id=each.entry.id,
                tool_name=each.entry.name,
                description=each.entry.description,
                source=each.entry.source_name or each.entry.source,
                score=each.score,
                explanation=ScoreInfo(terms=terms, meaning=meanings[0] if meanings else None),
            )
        )
    return CatalogSearchResponse(hits=tuple(hits))


@router.get("/catalog/surface", summary="What the model sees", responses=error_responses(404))
async def get_surface(state: State, agent_id: AgentId = "") -> CatalogSurfaceResponse:
    """Compare the definitions that the model gets with those of all tools behind them."""
    found = _open_agent(state, agent_id)
    kind = planned_surface(found.agent)
    visible = await _visible_definitions(state, found, kind)
    infos = tuple(_visible_info(definition) for definition in visible)
    visible_bytes = sum(info.bytes for info in infos)
    catalog_bytes = await anyio.to_thread.run_sync(
        lambda: sum(definition_bytes(entry.tool) for entry in found.catalog.entries)
    )
    return CatalogSurfaceResponse(
        agent_id=found.agent.id,
        surface=kind,
        visible=infos,
        visible_bytes=visible_bytes,
        visible_tokens=visible_bytes // _BYTES_PER_TOKEN,
        catalog=CatalogSizeInfo(
            tools=found.catalog.size,
            bytes=catalog_bytes,
            tokens=catalog_bytes // _BYTES_PER_TOKEN,
            sources={**found.catalog.source_counts},
        ),
    )


async def _visible_definitions(
    state: GatewayState, found: _AgentTools, kind: str
) -> list[OpaqueMap]:
    runtime, settings = state.system.runtime, found.agent.tools
    if kind == "code_mode":
        config = RunConfig(document=state.system.config.document, tools=settings)
        run = runtime.run_with(found.executor, config, tools=found.tools, servers=found.servers)
        return [dict(it) for it in run.definitions("openai")]
    if kind == "tool_search":
        surface = await start_run(
            found.executor,
            settings.tool_search,
            tools=found.tools,
            servers=found.servers,
            sandbox=runtime.sandbox,
        )
        return [
            {"name": it.name, "description": it.description, "parameters": it.parameters}
            for it in surface.specs
        ]
    return [_definition(entry) for entry in found.catalog.entries]


def _definition(entry: CatalogEntry) -> OpaqueMap:
    return dict(format_tool(entry.tool, "openai"))


def _visible_info(definition: OpaqueMap) -> VisibleToolInfo:
    function = definition.get("function", definition)
    return VisibleToolInfo(
        name=str(function.get("name", "")),
        description=str(function.get("description", "")),
        bytes=len(encode_json(definition)),
    )


@router.get(
    "/catalog/tools/{tool_id:path}", summary="Describe a tool", responses=error_responses(404)
)
async def get_tool(tool_id: str, state: State, agent_id: AgentId = "") -> CatalogToolResponse:
    """Get the schema and the declaration of a tool."""
    entry = _open_agent(state, agent_id).catalog.by_id(tool_id)
    if entry is None:
        raise _unknown_tool(tool_id)
    tool = entry.tool
    declaration = await anyio.to_thread.run_sync(
        lambda: function_declaration(
            tool.name,
            description=tool.description,
            parameters=tool.parameters,
            output_schema=tool.output_schema,
            result="mcp" if entry.source == "mcp" else "value",
        )
    )
    return CatalogToolResponse(
        tool_id=entry.id,
        tool_name=entry.name,
        description=entry.description,
        source=entry.source,
        owner=entry.source_name or "",
        parameters=dict(tool.parameters),
        output_schema=tool.output_schema,
        declaration=declaration,
        needs_approval=tool.needs_approval,
        seen_as=_definition(entry),
    )


def _unknown_tool(tool_id: str) -> ApiError:
    return ApiError(404, f"the agent has no tool {quote_id(tool_id)}, or its policy denies it")


@router.post(
    "/catalog/call",
    summary="Call a tool",
    responses=error_responses(404, 415, 429),
)
async def call_tool(body: CallToolRequest, request: Request, state: State) -> CallToolResponse:
    """Call a tool in a turn without a model: with policy, hooks, approvals and a record.
    Responds when the call has ended, or waits for an approval."""
    session = await state.system.store.session(body.session_id) if body.session_id else None
    agent_id = body.agent_id or (session.agent_id if session else "")
    entry = _open_agent(state, agent_id).catalog.by_id(body.tool_id)
    if entry is None:
        raise _unknown_tool(body.tool_id)
    run = await state.system.agents.start(
        TurnRequest(
            message=f"Call of {body.tool_id}",
            agent_id=body.agent_id,
            session_id=body.session_id,
            title=f"Call of {entry.name}",
            channel="playground",
            rights=caller_rights(request.scope),
            queue_mode="followup",
            manual_call=ManualCall(tool_id=body.tool_id, input=dict(body.input)),
        )
    )
    await run.waiting_or_ended()
    result, error = None, ""
    if run.result is not None:
        error = run.result.error
        result = None if error else _parse_result(run.result.text)
    return CallToolResponse(
        run_id=run.id, session_id=run.session_id, state=run.state, result=result, error=error
    )


def _parse_result(text: str) -> OpaqueJson:
    try:
        return decode_json(text.encode())
    except NotJsonError:
        return text


@router.post(
    "/playground",
    status_code=202,
    summary="Run a program",
    responses=error_responses(404, 415, 429),
)
async def run_program(
    body: PlaygroundRequest, request: Request, state: State
) -> PlaygroundResponse:
    """Run a program against the catalog of an agent, as a turn without a model. Its events are
    those of `exec` in a chat."""
    title = body.code.strip().partition("\n")[0][:_MAX_TITLE_CHARACTERS]
    run = await state.system.agents.start(
        TurnRequest(
            message=body.code,
            agent_id=body.agent_id,
            session_id=body.session_id,
            title=f"Playground: {title}",
            channel="playground",
            rights=caller_rights(request.scope),
            queue_mode="followup",
            manual_call=ManualCall(
                tool_id=EXEC_ID, input={"code": body.code, "language": body.language}
            ),
        )
    )
    return PlaygroundResponse(
        run_id=run.id, session_id=run.session_id, agent_id=run.agent_id, state=run.state
    )
