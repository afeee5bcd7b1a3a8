"""Runs on the wire: what starts one, how it does, and what clients send to it."""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, JsonValue

from nacre.agent import AgentRun, ClientTool, RunFinish, TurnRequest
from nacre.config import QueueMode
from nacre.gateway.schemas.approvals import PendingApproval, open_approval_answer
from nacre.gateway.schemas.base import Answer, Asked, JsonMap, OpaqueMap
from nacre.gateway.schemas.sessions import UsageInfo, parts_from, usage_answer
from nacre.gateway.schemas.text_shapes import TextShape
from nacre.messages import AssistantMessage, UserMessage
from nacre.providers import ModelSettings
from nacre.storage import TurnRecord

ShortText = Annotated[str, Field(max_length=500)]
_TOOL_NAME: Final = TextShape(
    pattern=r"[A-Za-z0-9_.-]{1,256}",
    words="1 to 256 letters (A to Z, a to z), digits, `_`, `.` and `-`",
)
ImageUrl = Annotated[str, Field(pattern=r"^(data:image/|https://)")]

RunStateName = Literal[
    "queued", "running", "waiting", "completed", "failed", "aborted", "interrupted"
]


class ClientToolSpec(Asked):
    """A tool that the caller runs itself."""

    name: Annotated[str, _TOOL_NAME]
    description: str = ""
    parameters: JsonMap = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        json_schema_extra={"properties": {"type": {"const": "object"}}},
    )
    """JSON Schema of its input, an object."""


class ModelSettingsInput(Asked):
    """What is asked of the model; null leaves it to the agent's settings."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop: Annotated[tuple[str, ...], Field(max_length=16)] = ()


class StartRunRequest(Asked):
    """A message to an agent. Without a session it begins a new one."""

    text: str = ""
    images: Annotated[tuple[ImageUrl, ...], Field(max_length=32)] = ()
    """Addresses: `data:image/...` or `https://...`."""
    agent_id: ShortText = ""
    """Empty for the session's agent, else for the default one."""
    session_id: ShortText = ""
    """A session that exists."""
    session_key: ShortText = ""
    """Your own name for a session; it is begun where there is none."""
    title: ShortText = ""
    sender: ShortText = ""
    channel: ShortText = ""
    model: ShortText = ""
    """`provider/model` instead of the agent's own."""
    instructions: str = ""
    """Added to the agent's own."""
    queue_mode: QueueMode | None = None
    """What becomes of the message while another turn of the session runs; null as configured."""
    client_tools: Annotated[tuple[ClientToolSpec, ...], Field(max_length=1000)] = ()
    settings: ModelSettingsInput = ModelSettingsInput()
    tools_disabled: bool = False

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["text"], "properties": {"text": {"minLength": 1}}},
                {"required": ["images"], "properties": {"images": {"minItems": 1}}},
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

    def to_request(self) -> TurnRequest:
        parts = parts_from(self.text, self.images)
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
            tools_disabled=self.tools_disabled,
        )


class StartRunResponse(Answer):
    """The run that takes the message: a new one, or the one that is being steered."""

    run_id: str
    session_id: str
    agent_id: str
    state: RunStateName


class ClientCallInfo(Answer):
    """A call whose result the client owes."""

    call_id: str
    parent_tool_call_id: str = ""
    """The call of `exec` that it is nested in; empty for one that the model made itself."""
    name: str
    arguments: OpaqueMap


class RunResultInfo(Answer):
    """What came of a run."""

    text: str = ""
    finish_reason: RunFinish
    usage: UsageInfo
    model: str = ""
    error: str = ""
    error_code: str = ""
    """`storage_failed` where the database failed; `error` says whether the turn is kept."""


class RunAnswer(Answer):
    """How a run does."""

    run_id: str
    session_id: str
    agent_id: str
    state: RunStateName
    is_live: bool
    """Whether it goes on: queued, running or waiting."""
    is_kept: bool
    """Whether its session is kept. If not, the session's id leads nowhere."""
    last_sequence: int | None = None
    """The number of its newest event."""
    result: RunResultInfo | None = None
    """Null until it has ended."""
    pending_approvals: tuple[PendingApproval, ...] = ()
    pending_client_calls: tuple[ClientCallInfo, ...] = ()


class RunsResponse(Answer):
    """Runs that go on, and those that ended lately; oldest first."""

    runs: tuple[RunAnswer, ...]


class AbortRunRequest(Asked):
    """Why it is to end."""

    reason: Annotated[str, Field(min_length=1, max_length=2000)] = "aborted over the API"


class AbortRunResponse(Answer):
    """The run has ended, by this or before."""

    run_id: str
    state: RunStateName
    was_aborted: bool
    """False if it had ended already."""


class ClientToolResult(Asked):
    """What a client's tool returned."""

    call_id: Annotated[str, Field(min_length=1, max_length=500)]
    content: JsonValue = None
    is_error: bool = False


class ClientResultsRequest(Asked):
    """All are taken, or none."""

    results: Annotated[tuple[ClientToolResult, ...], Field(min_length=1, max_length=1000)]


class ClientResultsResponse(Answer):
    """What the client still owes."""

    run_id: str
    state: RunStateName
    pending_client_calls: tuple[ClientCallInfo, ...]


def client_call_answers(run: AgentRun) -> tuple[ClientCallInfo, ...]:
    return tuple(
        ClientCallInfo(
            call_id=call.call_id,
            parent_tool_call_id=call.parent_id,
            name=call.name,
            arguments=call.arguments,
        )
        for call in run.pending_client_calls
    )


def live_run_answer(run: AgentRun) -> RunAnswer:
    result = None
    if run.result is not None:
        result = RunResultInfo(
            text=run.result.text,
            finish_reason=run.result.finish_reason,
            usage=usage_answer(run.result.usage),
            model=run.result.model,
            error=run.result.error,
            error_code=run.result.error_code,
        )
    return RunAnswer(
        run_id=run.id,
        session_id=run.session_id,
        agent_id=run.agent_id,
        state=run.state,
        is_live=not run.has_ended,
        is_kept=run.is_stored,
        last_sequence=run.events.last_sequence,
        result=result,
        pending_approvals=tuple(map(open_approval_answer, run.pending_approvals)),
        pending_client_calls=client_call_answers(run),
    )


def stored_run_answer(
    turn: TurnRecord, *, agent_id: str, said: AssistantMessage | None
) -> RunAnswer:
    """Of a run that is no longer in memory; `said` is the last answer of the model."""
    result = None
    if turn.status != "running":
        result = RunResultInfo(
            text=said.text if said else "",
            finish_reason=_stored_finish(turn, said),
            usage=usage_answer(turn.usage),
            model=turn.model,
            error=turn.error,
            error_code=str(turn.data.get("errorCode", "")),
        )
    return RunAnswer(
        run_id=turn.run_id,
        session_id=turn.session_id,
        agent_id=agent_id,
        state=turn.status,
        is_live=False,
        is_kept=True,
        result=result,
    )


def _stored_finish(turn: TurnRecord, said: AssistantMessage | None) -> RunFinish:
    match turn.status:
        case "completed":
            return said.finish_reason if said else "stop"
        case "aborted":
            return "aborted"
        case _:
            return "error"
