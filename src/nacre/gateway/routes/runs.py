"""Runs: start, inspect, follow and abort them, and deliver results of client tools."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal, TypedDict

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import ConfigDict, Field, JsonValue

from nacre.agent import (
    AgentRun,
    CallerRight,
    ClientResult,
    ClientTool,
    RemoteRun,
    RunFinish,
    TurnRequest,
    tool_bytes_of,
)
from nacre.config import QueueMode
from nacre.errors import ConfigError, MissingReferenceError, SessionError
from nacre.gateway.auth import caller_rights
from nacre.gateway.errors import RETRY_SECONDS, ApiError, quote_id
from nacre.gateway.events import EventStreamResponse
from nacre.gateway.routes.approvals import PendingApproval, pending_approval
from nacre.gateway.routes.media import MediaInfo, attachment_parts, media_info
from nacre.gateway.routes.messages import UsageInfo, usage_info
from nacre.gateway.routes.sessions import ToolBytesInfo, tool_bytes_info, turn_reply
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonMap,
    JsonRoute,
    OpaqueMap,
    RequestModel,
    ResponseModel,
    State,
    TextPattern,
    error_responses,
)
from nacre.gateway.run_events import (
    CURSOR_PATTERN,
    EVENT_SCHEMA,
    live_events,
    parse_cursor,
    stored_events,
)
from nacre.json_types import JsonObject, encode_json
from nacre.messages import AssistantMessage, ImagePart, TextPart, UserMessage
from nacre.providers import ModelSettings
from nacre.storage import MediaRecord, TurnRecord, Visibility

ShortText = Annotated[str, Field(max_length=500)]
_TOOL_NAME: Final = TextPattern(
    pattern=r"[A-Za-z0-9_.-]{1,256}",
    words="1 to 256 letters (A to Z, a to z), digits, `_`, `.` and `-`",
)
ImageUrl = Annotated[str, Field(pattern=r"^(data:image/|https://)")]

RunStateName = Literal[
    "queued", "running", "waiting", "completed", "failed", "aborted", "interrupted"
]


class ClientToolSpec(RequestModel):
    """A tool that the client runs."""

    name: Annotated[str, _TOOL_NAME]
    description: str = ""
    parameters: JsonMap = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        json_schema_extra={"properties": {"type": {"const": "object"}}},
    )
    """The JSON Schema of its input, which is an object."""


class ModelSettingsInput(RequestModel):
    """Settings of the model. Null means the agent's own setting."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop: Annotated[tuple[str, ...], Field(max_length=16)] = ()


class StartRunRequest(RequestModel):
    """A message to an agent. Without a session, it starts a new one."""

    text: str = ""
    images: Annotated[tuple[ImageUrl, ...], Field(max_length=32)] = ()
    """URLs: `data:image/...` or `https://...`."""
    attachments: Annotated[tuple[ShortText, ...], Field(max_length=32)] = ()
    """The ids of uploads. Images and short texts become part of the message, other files are put
    into the workspace."""
    idempotency_key: ShortText = ""
    """The same as the header `Idempotency-Key`."""
    agent_id: ShortText = ""
    """Empty for the agent of the session, or the default agent."""
    session_id: ShortText = ""
    """An existing session."""
    session_key: ShortText = ""
    """Your own name for a session. The session is created if it does not exist."""
    title: ShortText = ""
    sender: ShortText = ""
    channel: ShortText = ""
    model: ShortText = ""
    """`provider/model`, instead of the agent's own."""
    instructions: str = ""
    """Added to the agent's own instructions."""
    queue_mode: QueueMode | None = None
    """How to handle the message while a turn of the session runs; null as configured."""
    client_tools: Annotated[tuple[ClientToolSpec, ...], Field(max_length=1000)] = ()
    settings: ModelSettingsInput = ModelSettingsInput()
    disable_tools: bool = False

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["text"], "properties": {"text": {"minLength": 1}}},
                {"required": ["images"], "properties": {"images": {"minItems": 1}}},
                {"required": ["attachments"], "properties": {"attachments": {"minItems": 1}}},
            ],
            "not": {
                "required": ["sessionId", "sessionKey"],
                "properties": {"sessionId": {"minLength": 1}, "sessionKey": {"minLength": 1}},
            },
            "examples": [
                {"text": "What is 6 * 7?"},
                {"text": "And now?", "sessionKey": "my-chat", "queueMode": "followup"},
            ],
        }
    )

    def to_request(
        self, rights: frozenset[CallerRight], attached: Sequence[TextPart | ImagePart] = ()
    ) -> TurnRequest:
        parts = (*_make_parts(self.text, self.images), *attached)
        return TurnRequest(
            message=UserMessage(parts=parts) if parts else None,
            agent_id=self.agent_id,
            session_id=self.session_id,
            session_key=self.session_key,
            title=self.title,
            sender=self.sender,
            channel=self.channel or "api",
            model=self.model,
            instructions=self.instructions,
            queue_mode=self.queue_mode or "",
            client_tools=[
                ClientTool(name=it.name, description=it.description, parameters=it.parameters)
                for it in self.client_tools
            ],
            settings=ModelSettings(
                temperature=self.settings.temperature,
                max_tokens=self.settings.max_output_tokens,
                top_p=self.settings.top_p,
                stop=self.settings.stop,
            ),
            tools_disabled=self.disable_tools,
            rights=rights,
        )


def _make_parts(text: str, images: tuple[str, ...]) -> tuple[TextPart | ImagePart, ...]:
    """The parts of a user message: text first, then images."""
    texts = (TextPart(text=text),) if text else ()
    return (*texts, *(ImagePart(url=url) for url in images))


class StartRunResponse(ResponseModel):
    """The run that handles the message: a new one, or the running one that it steers."""

    run_id: str
    session_id: str
    agent_id: str
    state: RunStateName


class ClientCallInfo(ResponseModel):
    """A call that waits for the client's result."""

    call_id: str
    parent_tool_call_id: str = ""
    """The `exec` call that contains it; empty for a call of the model."""
    name: str
    arguments: OpaqueMap


class PendingInput(ResponseModel):
    """A question of the agent. The next message of the session is its answer."""

    input_id: str
    tool_call_id: str
    text: str
    """The question with its options, as a person reads it."""
    questions: tuple[OpaqueMap, ...] = ()
    expires_at: float


class RunResultInfo(ResponseModel):
    """The result of a run."""

    text: str = ""
    """The last answer; empty if it is not for the user."""
    visibility: Visibility = "visible"
    """`private` if the user sees only sent messages, `silent` if the answer says nothing."""
    private_text: str = ""
    """The last answer, if it is private."""
    sent: tuple[str, ...] = ()
    """The texts that the agent sent to the user during the turn."""
    media: tuple[MediaInfo, ...] = ()
    """The files of the reply."""
    finish_reason: RunFinish
    usage: UsageInfo
    tool_bytes: ToolBytesInfo | None = None
    """Null if no model was asked, or if the runtime does not say."""
    model: str = ""
    error: str = ""
    error_code: str = ""
    """`storage_failed` if the database failed; `error` says whether the turn was stored."""


class RunResponse(ResponseModel):
    """The state of a run."""

    run_id: str
    session_id: str
    agent_id: str
    state: RunStateName
    is_live: bool
    """Whether it is queued, running or waiting."""
    is_kept: bool
    """Whether its session is stored. If not, the session cannot be read by its id."""
    last_sequence: int | None = None
    """The number of its last event."""
    result: RunResultInfo | None = None
    """Null until the run has ended."""
    pending_approvals: tuple[PendingApproval, ...] = ()
    pending_client_calls: tuple[ClientCallInfo, ...] = ()
    pending_input: PendingInput | None = None


class RunsResponse(ResponseModel):
    """Active runs and recently ended runs, oldest first."""

    runs: tuple[RunResponse, ...]


class AbortRunRequest(RequestModel):
    """The reason for the abort."""

    reason: Annotated[str, Field(min_length=1, max_length=2000)] = "aborted over the API"


class AbortRunResponse(ResponseModel):
    """The run has ended."""

    run_id: str
    state: RunStateName
    was_aborted: bool
    """False if it had already ended."""


class ClientToolResult(RequestModel):
    """The result of a client tool."""

    call_id: Annotated[str, Field(min_length=1, max_length=500)]
    content: JsonValue = None
    is_error: bool = False


class ClientResultsRequest(RequestModel):
    """Results of client tools. Either all are accepted or none."""

    results: Annotated[tuple[ClientToolResult, ...], Field(min_length=1, max_length=1000)]


class ClientResultsResponse(ResponseModel):
    """The calls that still wait for the client."""

    run_id: str
    state: RunStateName
    pending_client_calls: tuple[ClientCallInfo, ...]


def client_call_infos(run: AgentRun) -> tuple[ClientCallInfo, ...]:
    return tuple(
        ClientCallInfo(
            call_id=call.call_id,
            parent_tool_call_id=call.parent_id,
            name=call.name,
            arguments=call.arguments,
        )
        for call in run.pending_client_calls
    )


def live_run_response(run: AgentRun) -> RunResponse:
    result = None
    if run.result is not None:
        result = RunResultInfo(
            **_shown_text(run.result.text, run.result.visibility),
            sent=run.result.sent,
            media=tuple(map(media_info, run.result.media)),
            finish_reason=run.result.finish_reason,
            usage=usage_info(run.result.usage),
            tool_bytes=tool_bytes_info(run.result.tool_bytes),
            model=run.result.model,
            error=run.result.error,
            error_code=run.result.error_code,
        )
    return RunResponse(
        run_id=run.id,
        session_id=run.session_id,
        agent_id=run.agent_id,
        state=run.state,
        is_live=not run.has_ended,
        is_kept=run.is_stored,
        last_sequence=run.events.last_sequence,
        result=result,
        pending_approvals=tuple(map(pending_approval, run.pending_approvals)),
        pending_client_calls=client_call_infos(run),
        pending_input=pending_input(run),
    )


def pending_input(run: AgentRun) -> PendingInput | None:
    question = run.pending_input
    if question is None:
        return None
    return PendingInput(
        input_id=question.id,
        tool_call_id=question.call_id,
        text=question.text,
        questions=question.questions,
        expires_at=question.expires,
    )


def stored_run_response(
    turn: TurnRecord,
    *,
    agent_id: str,
    last_message: AssistantMessage | None,
    media: list[MediaRecord],
) -> RunResponse:
    """A run that is no longer in memory. `last_message` is the last answer of the model."""
    result = None
    if turn.status != "running":
        result = RunResultInfo(
            **_shown_text(last_message.text if last_message else turn_reply(turn), turn.visibility),
            sent=turn.sent,
            media=tuple(map(media_info, media)),
            finish_reason=_stored_finish(turn, last_message),
            usage=usage_info(turn.usage),
            tool_bytes=tool_bytes_info(tool_bytes_of(turn.data)),
            model=turn.model,
            error=turn.error,
            error_code=str(turn.data.get("errorCode", "")),
        )
    return RunResponse(
        run_id=turn.run_id,
        session_id=turn.session_id,
        agent_id=agent_id,
        state=turn.status,
        is_live=False,
        is_kept=True,
        result=result,
    )


class _ShownText(TypedDict):
    text: str
    visibility: Visibility
    private_text: str


def _shown_text(text: str, visibility: Visibility) -> _ShownText:
    return {
        "text": text if visibility == "visible" else "",
        "visibility": visibility,
        "private_text": text if visibility == "private" else "",
    }


def _stored_finish(turn: TurnRecord, last_message: AssistantMessage | None) -> RunFinish:
    match turn.status:
        case "completed":
            return last_message.finish_reason if last_message else "stop"
        case "aborted":
            return "aborted"
        case _:
            return "error"


_ABORT: Final = AbortRunRequest()

router = APIRouter(prefix="/api/runs", tags=["runs"], route_class=JsonRoute, dependencies=[BEARER])


@router.post(
    "",
    status_code=202,
    summary="Start a run",
    responses=error_responses(404, 409, 415, 429),
)
async def start_run(
    body: StartRunRequest,
    request: Request,
    response: Response,
    state: State,
    idempotency_key: Annotated[
        str,
        Header(
            description=(
                "A random text of your choice. If you send the request again with the same key "
                "within 24 hours, you get the first response, and the message is taken once."
            ),
            max_length=500,
        ),
    ] = "",
) -> StartRunResponse:
    """Send a message to an agent.

    Returns immediately; follow the run by its events. While a turn of the session is running, the
    queue mode decides which run handles the message. If that turn has asked a question, the message
    is the answer.

    A chat command, such as `/status`, is a run of its own, without a model. Its `sessionId` is
    empty if there is no session.
    """

    rights = caller_rights(request.scope)

    async def start(run_id: str, /, *, is_repeated: bool) -> JsonObject:
        started = await _find_started(run_id, body, state) if is_repeated else None
        started = started or await _start(body, rights, state, run_id)
        return started.model_dump(mode="json")

    key = idempotency_key or body.idempotency_key
    if not key:
        started = await _start(body, rights, state)
    else:
        content = body.model_dump(mode="json", exclude={"idempotency_key"})
        full_key = _add_session(key, body, state)
        first = await state.idempotency_keys.run_once(full_key, content, start)
        started = StartRunResponse.model_validate(first)
    response.headers["location"] = f"/api/runs/{started.run_id}"
    return started


def _add_session(key: str, body: StartRunRequest, state: GatewayState) -> str:
    """The idempotency key with its session. A session key names one session of each agent."""
    agent_id = body.agent_id or state.system.config.agents.default_id
    owner = agent_id.lower() if body.session_key else ""
    return encode_json([owner, body.session_id, body.session_key, key]).decode()


async def _find_started(
    run_id: str, body: StartRunRequest, state: GatewayState
) -> StartRunResponse | None:
    """The run of a request that is sent again; None if the message can be sent again."""
    agents = state.system.agents
    run = await agents.find_run(run_id)
    if run is not None:
        return _started(run)
    turn = await state.system.store.turn(run_id)
    if turn is not None:
        session = await state.system.store.session(turn.session_id)
        agent_id = session.agent_id if session else ""
        return StartRunResponse(
            run_id=run_id, session_id=turn.session_id, agent_id=agent_id, state=turn.status
        )
    if agents.takes_once(body.to_request(frozenset())):
        return None
    raise ApiError(
        409,
        "the first request with this idempotency key has no response, because its gateway "
        "stopped; read the session to see whether it has the message, or use a new key",
    )


async def _start(
    body: StartRunRequest, rights: frozenset[CallerRight], state: GatewayState, run_id: str = ""
) -> StartRunResponse:
    if state.is_closing:
        raise _closing_error()
    attached = await _load_attachments(body, state) if body.attachments else ()
    try:
        request = replace(body.to_request(rights, attached), run_id=run_id)
        run = await state.system.agents.start(request)
    except ConfigError as error:
        if not body.model or isinstance(error, MissingReferenceError):
            raise
        raise ApiError(404, str(error), code="unknown_model", path="body.model") from None
    except SessionError as error:
        # The service closes before the gateway does.
        raise _closing_error() if error.code == "ended" else error from None
    return _started(run)


def _started(run: AgentRun) -> StartRunResponse:
    return StartRunResponse(
        run_id=run.id, session_id=run.session_id, agent_id=run.agent_id, state=run.state
    )


async def _load_attachments(
    body: StartRunRequest, state: GatewayState
) -> tuple[TextPart | ImagePart, ...]:
    session = await state.system.store.session(body.session_id) if body.session_id else None
    agents = state.system.agents.config.agents
    agent = agents.agent(session.agent_id if session else body.agent_id or agents.default_id)
    return await attachment_parts(state, body.attachments, workspace=agent.workspace)


@router.get("", summary="List runs", responses=error_responses())
async def list_runs(
    state: State, session_id: Annotated[str, Query(alias="sessionId")] = ""
) -> RunsResponse:
    """List active runs and recently ended runs."""
    runs = await state.system.agents.all_runs(session_id or None)
    return RunsResponse(runs=tuple(map(live_run_response, runs)))


@router.get("/{run_id}", summary="Get a run", responses=error_responses(404))
async def get_run(run_id: str, state: State) -> RunResponse:
    """Get the state of a run and its result."""
    run = await state.system.agents.find_run(run_id)
    if run is not None:
        return live_run_response(run)
    turn = await _stored_turn(run_id, state)
    session = await state.system.store.session(turn.session_id)
    agent_id = session.agent_id if session else ""
    return stored_run_response(
        turn,
        agent_id=agent_id,
        last_message=await _last_answer(turn, state),
        media=await state.system.store.media.of_runs([turn.run_id]),
    )


@router.get(
    "/{run_id}/events",
    summary="Follow a run",
    response_class=StreamingResponse,
    responses={
        **error_responses(404),
        200: {
            "description": (
                "Server-sent events: `event` is the kind, `data` is JSON with `sequence`, `time`, "
                "`kind` and `data`. Comments between events keep the connection alive."
            ),
            "content": {"text/event-stream": {"schema": EVENT_SCHEMA}},
        },
    },
)
async def follow_run(
    run_id: str,
    state: State,
    after: Annotated[
        str, CURSOR_PATTERN, Query(description="Continue after the event with this id.")
    ] = "",
    last_event_id: Annotated[
        str, CURSOR_PATTERN, Header(description="The same, sent by browsers; takes precedence.")
    ] = "",
) -> Response:
    """Follow a run as server-sent events, from its start or after an event.

    The stream ends after the last event of the run. For a run that is no longer in memory, the
    stored trajectory is sent: it starts with `replay.started`, and its ids start with `t`.
    """
    cursor = parse_cursor(last_event_id, after)
    run = await state.system.agents.find_run(run_id)
    if run is not None:
        return EventStreamResponse(live_events(run, cursor))
    turn = await _stored_turn(run_id, state)
    return EventStreamResponse(stored_events(state, turn, cursor))


@router.post("/{run_id}/abort", summary="Abort a run", responses=error_responses(404, 415))
async def abort_run(run_id: str, state: State, body: AbortRunRequest = _ABORT) -> AbortRunResponse:
    """Abort a run. Returns when it has stopped."""
    run = await state.system.agents.find_run(run_id, for_change=True)
    if run is None:
        turn = await _stored_turn(run_id, state)
        return AbortRunResponse(run_id=turn.run_id, state=turn.status, was_aborted=False)
    was_aborted = await run.abort(body.reason)
    return AbortRunResponse(run_id=run.id, state=run.state, was_aborted=was_aborted)


@router.post(
    "/{run_id}/client-results",
    summary="Deliver results of client tools",
    responses=error_responses(404, 409, 415),
)
async def deliver_results(
    run_id: str, body: ClientResultsRequest, state: State
) -> ClientResultsResponse:
    """Deliver results of client tools. Either all are accepted or none."""
    agents = state.system.agents
    run = await agents.find_run(run_id, for_change=True)
    if run is None:
        turn = await _stored_turn(run_id, state)
        raise ApiError(409, f"the run {turn.run_id} has ended ({turn.status})", code="ended")
    await run.wait_for_calls([it.call_id for it in body.results])
    _check_pending(run, body)
    await agents.deliver(
        run,
        [
            ClientResult(call_id=it.call_id, content=it.content, is_error=it.is_error)
            for it in body.results
        ],
    )
    return ClientResultsResponse(
        run_id=run.id, state=run.state, pending_client_calls=client_call_infos(run)
    )


def _check_pending(run: AgentRun, body: ClientResultsRequest) -> None:
    open_ids = {call.call_id for call in run.pending_client_calls}
    for index, result in enumerate(body.results):
        if result.call_id in open_ids:
            open_ids.remove(result.call_id)
            continue
        path = f"body.results[{index}].callId"
        if any(earlier.call_id == result.call_id for earlier in body.results[:index]):
            raise ApiError(400, f"{quote_id(result.call_id)} is given twice", path=path)
        if isinstance(run, RemoteRun):
            # Its gateway knows more, and says what is wrong.
            return
        try:
            # The call is not pending; the run raises the reason.
            run.deliver(result.call_id, None)
        except SessionError as error:
            status = 404 if error.code == "not_found" else 409
            raise ApiError(status, error.message, code=error.code, path=path) from None


async def _stored_turn(run_id: str, state: GatewayState) -> TurnRecord:
    turn = await state.system.store.turn(run_id)
    if turn is None:
        raise ApiError(404, f"there is no run {quote_id(run_id)}")
    return turn


async def _last_answer(turn: TurnRecord, state: GatewayState) -> AssistantMessage | None:
    stored = await state.system.store.messages_of_turns(turn.session_id, [turn.run_id])
    answers = [it.message for it in stored if isinstance(it.message, AssistantMessage)]
    return answers[-1] if answers else None


def _closing_error() -> ApiError:
    return ApiError(
        503,
        "the gateway is shutting down",
        code="shutting_down",
        retry_after_seconds=RETRY_SECONDS,
    )
