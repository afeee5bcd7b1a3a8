"""The AG-UI protocol: front ends that speak it can use the agents. Approvals are interrupts."""

import binascii
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, cast

import anyio.to_thread
from ag_ui.core import (
    AudioPart,
    BaseEvent,
    ContentPart,
    DataSource,
    DocumentPart,
    ImagePart,
    Interrupt,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UrlSource,
    UserMessage,
    VideoPart,
)
from ag_ui.encoder import EventEncoder
from fastapi import APIRouter, Query, Request, Response

from nacre import messages
from nacre.agent import AgentRun, ClientResult, ClientTool, RunEvent, TurnRequest
from nacre.config import AgentConfig
from nacre.errors import ApprovalError, SessionError
from nacre.gateway.auth import caller_rights
from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.events import EventStreamResponse
from nacre.gateway.routes.media import file_part
from nacre.gateway.routing import BEARER, GatewayState, JsonRoute, State, error_responses
from nacre.json_types import JsonObject, JsonValue, encode_json, get_text
from nacre.tools import AllowAlways, AllowEdited, AllowOnce, Deny

_PROTOCOL: Final = "1.0"
_IMAGE_SCHEMES: Final = ("https:", "data:image/")
_ENDS: Final = frozenset(("run.completed", "run.failed", "run.aborted"))
_EVENT_SCHEMA: Final = {
    "type": "object",
    "properties": {"data": {"type": "string", "description": "An event of AG-UI, as JSON."}},
    "required": ["data"],
}
_ANSWER_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "answer": {"enum": ["allow-once", "allow-always", "deny", "edit"]},
        "input": {"type": "object", "description": "With `edit`: the whole input of the call."},
        "reason": {"type": "string", "description": "With `deny`: the reason for the model."},
    },
    "required": ["answer"],
}

router = APIRouter(prefix="/api", tags=["ag-ui"], route_class=JsonRoute, dependencies=[BEARER])


@router.post(
    "/ag-ui",
    summary="Run an agent over AG-UI",
    response_class=Response,
    responses={
        **error_responses(404, 409, 415, 429),
        200: {
            "description": "Events of the AG-UI protocol, as server-sent events.",
            "content": {"text/event-stream": {"schema": _EVENT_SCHEMA}},
        },
    },
)
async def run_ag_ui(
    body: RunAgentInput,
    request: Request,
    state: State,
    agent_id: Annotated[str, Query(alias="agentId", max_length=500)] = "",
) -> Response:
    """Send the last user message of the input, with its images and files, to the session of the
    thread; or answer what its run waits for: `resume` entries answer approvals, and tool messages
    are results of your tools."""
    run, after = await _find_waiting_run(body, state, agent_id), -1
    if run is not None and (body.resume or _tool_results(body, run)):
        after = run.events.last_sequence
        _check_resume(run, body, request)
        await _answer(run, body, state)
    elif body.resume:
        raise ApiError(409, "no run of this thread waits for an answer", path="body.resume")
    else:
        run = await _start(body, request, state, agent_id)
    return EventStreamResponse(_stream(body, run, after))


async def _find_waiting_run(
    body: RunAgentInput, state: GatewayState, agent_id: str
) -> AgentRun | None:
    agent = _find_agent(state, agent_id)
    session = await state.system.store.session_by_key(agent.id, _session_key(body))
    live = [] if session is None else await state.system.agents.all_runs(session.id)
    return next((run for run in live if run.state == "waiting"), None)


def _find_agent(state: GatewayState, agent_id: str) -> AgentConfig:
    agents = state.system.config.agents
    return agents.agent(agent_id or agents.default_id)


def _session_key(body: RunAgentInput) -> str:
    return f"ag-ui:{body.thread_id}"


async def _start(
    body: RunAgentInput, request: Request, state: GatewayState, agent_id: str
) -> AgentRun:
    parts = await _user_parts(body, _find_agent(state, agent_id).workspace)
    return await state.system.agents.start(
        TurnRequest(
            message=messages.UserMessage(parts=parts),
            agent_id=agent_id,
            session_key=_session_key(body),
            channel="ag-ui",
            client_tools=[
                ClientTool(
                    name=tool.name,
                    description=tool.description or "",
                    parameters=cast("JsonObject", tool.parameters or {"type": "object"}),
                )
                for tool in body.tools or []
            ],
            instructions="\n".join(f"{it.description}: {it.value}" for it in body.context or []),
            rights=caller_rights(request.scope),
        )
    )


async def _user_parts(body: RunAgentInput, workspace: Path) -> tuple[messages.UserPart, ...]:
    """The last message of the user. Raises ApiError if it has nothing for the model."""
    found = [at for at, it in enumerate(body.messages) if isinstance(it, UserMessage)]
    path = f"body.messages[{found[-1]}].content" if found else "body.messages"
    content = cast("UserMessage", body.messages[found[-1]]).content if found else ""
    parts: list[messages.UserPart] = []
    if isinstance(content, str):
        parts = [messages.TextPart(text=content)]
    else:
        for at, part in enumerate(content):
            parts.append(await _user_part(part, f"{path}[{at}]", workspace))
    if all(isinstance(part, messages.TextPart) and not part.text.strip() for part in parts):
        raise ApiError(422, "must have a user message with text or files", path=path)
    return tuple(parts)


async def _user_part(part: ContentPart, path: str, workspace: Path) -> messages.UserPart:
    if isinstance(part, TextPart):
        return messages.TextPart(text=part.text)
    match part.source:
        case DataSource(value=value):
            try:
                data = await anyio.to_thread.run_sync(binascii.a2b_base64, value)
            except ValueError:
                raise ApiError(422, "is not base64", path=f"{path}.source.value") from None
            if not data:
                raise ApiError(422, "is empty", path=f"{path}.source.value")
            return await file_part(data, name=_file_name(part), workspace=workspace)
        case UrlSource(value=value) if isinstance(part, ImagePart):
            if not value.startswith(_IMAGE_SCHEMES):
                raise ApiError(422, "must be an https: or data: URL", path=f"{path}.source.value")
            return messages.ImagePart(url=value)
        case UrlSource(value=value):
            return messages.TextPart(text=f"The user attached a file: {value}")
        case _:
            raise ApiError(
                422,
                "is a file at a provider, which Nacre cannot read; send its content as `data`",
                path=f"{path}.source",
            )


def _file_name(part: AudioPart | DocumentPart | ImagePart | VideoPart) -> str:
    """The protocol has no names of files; front ends put them into the metadata."""
    match part.metadata:
        case {"filename": str(name)} | {"fileName": str(name)} | {"name": str(name)} if name:
            return name
        case _:
            return part.type


# Answers to what a run waits for.


def _tool_results(body: RunAgentInput, run: AgentRun) -> list[ToolMessage]:
    """The messages that answer open calls of client tools."""
    open_ids = {call.call_id for call in run.pending_client_calls}
    messages = [it for it in body.messages if isinstance(it, ToolMessage)]
    return [it for it in messages if it.tool_call_id in open_ids]


def _check_resume(run: AgentRun, body: RunAgentInput, request: Request) -> None:
    """Refuse all answers to approvals if one is not possible. Raises ApiError."""
    if body.resume and "approve" not in caller_rights(request.scope):
        raise ApiError(
            403,
            "the token does not have the scope `approve`, which answers to approvals need; see "
            "`gateway.auth.tokens`",
            code="missing_scope",
        )
    open_ids = {approval.id for approval in run.pending_approvals}
    for entry in body.resume or []:
        if entry.interrupt_id not in open_ids:
            raise ApiError(
                409, f"the run does not wait for {quote_id(entry.interrupt_id)}", path="body.resume"
            )
        open_ids.remove(entry.interrupt_id)
        _decide(entry)


async def _answer(run: AgentRun, body: RunAgentInput, state: GatewayState) -> None:
    agents = state.system.agents
    try:
        for entry in body.resume or []:
            await agents.approvals.answer(entry.interrupt_id, _decide(entry))
        results = [
            ClientResult(
                call_id=message.tool_call_id,
                content=_result_of(message),
                is_error=bool(message.error),
            )
            for message in _tool_results(body, run)
        ]
        if results:
            await agents.deliver(run, results)
    except ApprovalError as error:
        raise ApiError(409, str(error), path="body.resume") from None
    except SessionError as error:
        raise ApiError(409, str(error), path="body.messages") from None


def _result_of(message: ToolMessage) -> JsonValue:
    """The result of a tool of the front end; parts as in a result of MCP: the model gets the texts,
    and a description of an image instead of its data."""
    if isinstance(message.content, str):
        return message.content
    parts: list[JsonValue] = []
    for part in message.content:
        if isinstance(part, TextPart):
            parts.append({"type": "text", "text": part.text})
        elif isinstance(part, ImagePart) and isinstance(part.source, DataSource):
            source = part.source
            parts.append({"type": "image", "data": source.value, "mimeType": source.mime_type})
        else:
            parts.append(cast("JsonValue", part.model_dump(mode="json", exclude_none=True)))
    return {"content": parts}


def _decide(entry: ResumeEntry) -> AllowOnce | AllowAlways | AllowEdited | Deny:
    payload = cast("JsonValue", entry.payload)
    if entry.status == "cancelled":
        return Deny("the request was cancelled")
    match payload:
        case True | {"approved": True} | {"answer": "allow-once"}:
            return AllowOnce()
        case {"answer": "allow-always"}:
            return AllowAlways()
        case {"answer": "edit", "input": dict(edited)}:
            return AllowEdited(edited)
        case False:
            return Deny("")
        case {"approved": False} | {"answer": "deny"}:
            return Deny(get_text(payload, "reason"))
        case _:
            raise ApiError(
                422,
                'the payload of a resume entry must be {"answer": "allow-once"}, "allow-always", '
                '"deny" or "edit" with an `input`',
                path="body.resume",
            )


# The stream.


async def _stream(body: RunAgentInput, run: AgentRun, after: int) -> AsyncGenerator[bytes]:
    encoder, translation = EventEncoder(), _Translation(run_id=run.id)

    def encode(event: BaseEvent) -> bytes:
        return encoder.encode(event).encode()

    yield encode(
        RunStartedEvent(thread_id=body.thread_id, run_id=body.run_id, protocol_version=_PROTOCOL)
    )
    async for event in run.events.follow(after):
        for translated in translation.translate(event):
            yield encode(translated)
        is_waiting = event.kind == "run.waiting" and run.state == "waiting"
        if event.kind in _ENDS or is_waiting:
            for translated in translation.close():
                yield encode(translated)
            yield encode(_end_event(run, event, body))
            return


def _end_event(run: AgentRun, event: RunEvent, body: RunAgentInput) -> BaseEvent:
    result: JsonObject | None = None
    outcome: (
        RunFinishedCancelledOutcome | RunFinishedInterruptOutcome | RunFinishedSuccessOutcome
    ) = RunFinishedSuccessOutcome()
    match event.kind:
        case "run.failed":
            message = get_text(event.data, "error") or "the run failed"
            return RunErrorEvent(message=message, code=get_text(event.data, "errorCode") or None)
        case "run.aborted":
            outcome = RunFinishedCancelledOutcome()
        case "run.completed":
            result = {"text": get_text(event.data, "text")}
            if files := event.data.get("media"):
                result = {**result, "media": files}
        case _:
            interrupts = list(_interrupts(run))
            pending = [call.call_id for call in run.pending_client_calls]
            outcome = RunFinishedSuccessOutcome(pending_tool_call_ids=pending)
            if interrupts:
                outcome = RunFinishedInterruptOutcome(interrupts=interrupts)
    return RunFinishedEvent(
        thread_id=body.thread_id, run_id=body.run_id, result=result, outcome=outcome
    )


def _interrupts(run: AgentRun) -> Iterator[Interrupt]:
    for request in run.pending_approvals:
        yield Interrupt(
            id=request.id,
            reason="approval",
            message=f"{request.tool_name}: {request.reason}",
            tool_call_id=request.call_id,
            response_schema=_ANSWER_SCHEMA,
            # The arguments of the call, in the events before, are a record of it.
            metadata={"inputUrl": f"/api/approvals/{request.id}/input"},
            expires_at=datetime.fromtimestamp(request.expires, UTC).isoformat(),
        )


@dataclass(kw_only=True, slots=True)
class _Translation:
    """Translates the events of a run; knows which message is open."""

    run_id: str
    message_id: str = ""
    reasoning_id: str = ""
    message_count: int = 0
    calls: set[str] = field(default_factory=set[str])
    files: list[ContentPart] = field(default_factory=list[ContentPart])
    """Files of the reply, for the result of the call that ends next: it has added them."""

    def translate(self, event: RunEvent) -> Iterator[BaseEvent]:
        match event.kind:
            case "text.delta":
                yield from self._add_text(get_text(event.data, "text"))
            case "thinking.delta":
                yield from self._add_reasoning(get_text(event.data, "text"))
            case "message.completed" | "run.waiting":
                yield from self.close()
            case "call.started":
                yield from self.close()
                yield from self._start_call(event.data)
            case "client_call.requested":
                yield from self._start_call(
                    {
                        "toolCallId": event.data.get("callId"),
                        "toolName": event.data.get("name"),
                        "input": event.data.get("arguments"),
                    }
                )
            case "media.added":
                self.files.append(_file_of(event.data))
            case "call.ended":
                yield from self._end_call(event.data)
            case _:
                pass

    def close(self) -> Iterator[BaseEvent]:
        """End the open message."""
        if self.message_id:
            yield TextMessageEndEvent(message_id=self.message_id)
        if self.reasoning_id:
            yield ReasoningMessageEndEvent(message_id=self.reasoning_id)
        self.message_id = self.reasoning_id = ""

    def _new_id(self) -> str:
        self.message_count += 1
        return f"{self.run_id}.{self.message_count}"

    def _add_text(self, text: str) -> Iterator[BaseEvent]:
        if not text:
            return
        if not self.message_id:
            yield from self.close()
            self.message_id = self._new_id()
            yield TextMessageStartEvent(message_id=self.message_id, role="assistant")
        yield TextMessageContentEvent(message_id=self.message_id, delta=text)

    def _add_reasoning(self, text: str) -> Iterator[BaseEvent]:
        if not text:
            return
        if not self.reasoning_id:
            yield from self.close()
            self.reasoning_id = self._new_id()
            yield ReasoningMessageStartEvent(message_id=self.reasoning_id, role="reasoning")
        yield ReasoningMessageContentEvent(message_id=self.reasoning_id, delta=text)

    def _start_call(self, data: JsonObject) -> Iterator[BaseEvent]:
        call_id = get_text(data, "toolCallId")
        if call_id in self.calls:
            return
        self.calls.add(call_id)
        parent = get_text(data, "parentToolCallId")
        name = get_text(data, "toolName")
        metadata = {"parentToolCallId": parent} if parent else None
        yield ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name, metadata=metadata)
        given = encode_json(data.get("input", {})).decode()
        yield ToolCallArgsEvent(tool_call_id=call_id, delta=given)
        yield ToolCallEndEvent(tool_call_id=call_id)

    def _end_call(self, data: JsonObject) -> Iterator[BaseEvent]:
        call_id = get_text(data, "toolCallId")
        result = data.get("result") if "result" in data else get_text(data, "error")
        text = result if isinstance(result, str) else encode_json(result).decode()
        content: str | list[ContentPart] = text
        if self.files:
            content = [TextPart(text=text), *self.files]
            self.files = []
        yield ToolCallResultEvent(message_id=self._new_id(), tool_call_id=call_id, content=content)


def _file_of(media: JsonObject) -> ContentPart:
    """A file of the reply as a part, with its path at the gateway."""
    media_type = get_text(media, "type")
    source = UrlSource(value=get_text(media, "url"), mime_type=media_type)
    metadata = {"filename": get_text(media, "name")}
    match media_type.partition("/")[0]:
        case "image":
            return ImagePart(source=source, metadata=metadata)
        case "audio":
            return AudioPart(source=source, metadata=metadata)
        case "video":
            return VideoPart(source=source, metadata=metadata)
        case _:
            return DocumentPart(source=source, metadata=metadata)
