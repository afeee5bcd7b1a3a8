"""Turns for both OpenAI APIs: requests as their input, events of runs as their answers."""

from __future__ import annotations

import math
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import anyio
from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

from nacre.agent import ClientTool, RunResult, TurnRequest
from nacre.errors import (
    ConfigError,
    MissingReferenceError,
    ProviderError,
    RuntimeUnavailableError,
    SessionError,
    StorageError,
)
from nacre.gateway.errors import ApiError
from nacre.gateway.events import cancel_on_disconnect
from nacre.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
    UserPart,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from fastapi import Request

    from nacre.agent import AgentRun, CallerRight, InputRequest, RunEvent
    from nacre.bootstrap import System
    from nacre.gateway.openai.run_starter import ClientCall, WaitingRuns
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import AssistantPart
    from nacre.providers import ModelSettings

_MAX_SHOWN: Final = 80
_TEXT_KINDS: Final = frozenset(("text", "input_text", "output_text"))
_IMAGE_SCHEMES: Final = ("https:", "data:")
CHANNEL: Final = "openai"
OWN_NAME: Final = "nacre"
_AGENT_PREFIXES: Final = ("nacre/", "agent:")
_MAX_MODEL_CHARACTERS: Final = 100
_MAX_LISTED: Final = 20
MAX_MESSAGES: Final = 4_096
"""The messages or items of one request."""

_GONE: Final = "the client closed the connection"
# Nobody reads it; nginx logs this status.
_CLIENT_GONE_STATUS: Final = 499
_BUSY_STATUSES: Final = frozenset((408, 503, 504, 529))


def invalid(path: str, problem: str, *, code: str = "") -> ApiError:
    """The error for an invalid member of the request."""
    return ApiError(400, f"`{path}` {problem}", code=code, path=path)


def format_value(value: object) -> str:
    return repr(value)[:_MAX_SHOWN]


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """The messages of a request: the whole conversation, or the new part of a stored one."""

    messages: tuple[Message, ...]
    results: Mapping[str, str]
    """The results of calls, by call id."""
    unplaced: tuple[str, ...]
    """The call ids of results whose calls are not among the messages."""
    message_after_results: UserMessage | None
    """The user message after the last result, if there is one."""

    @property
    def last_user_message(self) -> UserMessage | None:
        """The user message to answer; None if the last message is something else."""
        last = self.messages[-1] if self.messages else None
        return last if isinstance(last, UserMessage) else None

    @property
    def earlier(self) -> tuple[Message, ...]:
        """The messages before it."""
        return self.messages if self.last_user_message is None else self.messages[:-1]


class ConversationBuilder:
    """Builds a conversation from messages in their order."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._answer: list[AssistantPart] = []
        # A list, because some clients use the same id again in every turn.
        self._results: dict[str, list[str]] = {}
        self._parts_after_results: list[UserPart] = []

    def system(self, text: str) -> None:
        self.end_answer()
        self._messages.append(SystemMessage(text=text))

    def user(self, parts: Sequence[UserPart]) -> None:
        self.end_answer()
        self._messages.append(UserMessage(parts=tuple(parts)))
        self._parts_after_results.extend(parts)

    def assistant(self, parts: Sequence[AssistantPart]) -> None:
        """Add parts to the current answer, which ends with the next other message."""
        self._answer.extend(parts)

    def end_answer(self) -> None:
        if self._answer:
            self._messages.append(AssistantMessage(parts=tuple(self._answer)))
            self._answer = []

    def result(self, call_id: str, text: str) -> None:
        self.end_answer()
        self._results.setdefault(call_id, []).append(text)
        self._parts_after_results = []

    def build(self) -> Conversation:
        self.end_answer()
        results = {call_id: texts[-1] for call_id, texts in self._results.items()}
        left = {call_id: list(texts) for call_id, texts in self._results.items()}
        placed: list[Message] = []
        for message in self._messages:
            placed.append(message)
            if isinstance(message, AssistantMessage):
                placed.extend(
                    _tool_message(call, left[call.call_id].pop(0))
                    for call in message.tool_calls
                    if left.get(call.call_id)
                )
        unplaced = tuple(call_id for call_id, texts in left.items() if texts)
        said = (
            UserMessage(parts=tuple(self._parts_after_results))
            if self._parts_after_results
            else None
        )
        return Conversation(
            messages=tuple(placed), results=results, unplaced=unplaced, message_after_results=said
        )


def _tool_message(call: ToolCallPart, text: str) -> ToolMessage:
    return ToolMessage(call_id=call.call_id, name=call.name, content=text)


class WireModel(BaseModel):
    """Base of request models. Unknown members are ignored, as other servers do."""

    model_config = ConfigDict(extra="ignore", strict=True)


class ImageUrl(WireModel):
    """An image URL in Chat Completions. Responses has a plain text instead."""

    url: str


class ContentPart(WireModel):
    """One part of a message."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None


Content = str | list[ContentPart] | None


def text_of(content: Content, path: str) -> str:
    """The text of a message that must not have other parts. Raises ApiError."""
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for index, part in enumerate(content):
        if part.type == "refusal":
            texts.append(part.refusal or "")
        elif part.type in _TEXT_KINDS:
            texts.append(part.text or "")
        else:
            raise invalid(
                f"{path}[{index}].type",
                f"is {format_value(part.type)}; only user messages can have parts other than text",
            )
    return "".join(texts)


def user_parts(content: Content, path: str) -> list[UserPart]:
    if content is None or isinstance(content, str):
        return [TextPart(text=content or "")]
    return [_user_part(part, f"{path}[{index}]") for index, part in enumerate(content)]


def _user_part(part: ContentPart, path: str) -> UserPart:
    if part.type in _TEXT_KINDS:
        return TextPart(text=part.text or "")
    if part.type not in ("image_url", "input_image"):
        raise invalid(f"{path}.type", f"is {format_value(part.type)}; known: text and image parts")
    address = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    if not address or not address.startswith(_IMAGE_SCHEMES):
        raise invalid(
            f"{path}.image_url",
            f"is {format_value(address)}; allowed: an https: or data: URL",
        )
    return ImagePart(url=address)


def client_tool(*, name: str, description: str | None, parameters: JsonObject | None) -> ClientTool:
    if parameters is None:
        return ClientTool(name=name, description=description or "")
    return ClientTool(name=name, description=description or "", parameters=parameters)


def select_client_tools(tools: Sequence[ClientTool], choice: JsonValue) -> tuple[ClientTool, ...]:
    """The client tools of the run. Raises ApiError for duplicates and other tool choices."""
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            raise invalid(f"tools[{index}]", f"is a second tool named {format_value(tool.name)}")
        seen.add(tool.name)
    match choice:
        case None | "auto":
            return tuple(tools)
        case "none":
            return ()
        case _:
            raise invalid(
                "tool_choice",
                f'is {format_value(choice)}; allowed: "auto" and "none". The agent has its own '
                "tools as well, and the model chooses",
            )


def check_message_count(path: str, count: int) -> None:
    """Raise ApiError if a request has too many messages or items."""
    if count > MAX_MESSAGES:
        raise invalid(path, f"has {count} items; at most {MAX_MESSAGES} are allowed")


def check_tool_type(path: str, kind: str) -> None:
    """Raise ApiError unless the tool is a function: clients can run nothing else."""
    if kind != "function":
        raise invalid(
            path,
            f'is {format_value(kind)}; only "function" is allowed. Configure other tools in the '
            "gateway, as tools of the agent",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnInput:
    """A request, converted for both APIs."""

    conversation: Conversation
    choice: ModelChoice
    client_tools: tuple[ClientTool, ...]
    settings: ModelSettings
    instructions: str = ""
    session_key: str = ""
    """The client's name for a stored session."""
    previous_run_id: str = ""
    """The run whose session continues; Responses only."""
    is_kept: bool = False
    """Whether to create a session if none is named."""
    rights: frozenset[CallerRight] = frozenset()
    """What the sender of the request may do in the chat."""

    def to_request(
        self,
        *,
        message: UserMessage | None,
        history: Sequence[Message] | None = None,
        session_id: str = "",
        session_key: str = "",
    ) -> TurnRequest:
        """A request for a turn of its own, which waits for a running turn."""
        return TurnRequest(
            message=message,
            history=history,
            session_id=session_id,
            session_key=session_key,
            agent_id=self.choice.agent_id,
            model=self.choice.model,
            client_tools=self.client_tools,
            instructions=self.instructions,
            settings=self.settings,
            channel=CHANNEL,
            queue_mode="followup",
            rights=self.rights,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelChoice:
    """The agent and model of a request. Empty for the session's or default agent, and its model."""

    name: str
    """The name in the request."""
    agent_id: str = ""
    model: str = ""


def model_ids(system: System) -> list[str]:
    """All listed model names. Providers without a list accept any of their models."""
    agents = (f"{OWN_NAME}/{agent_id}" for agent_id in system.config.agents.ids)
    return [OWN_NAME, *agents, *system.list_models()]


def models_to_json(system: System) -> JsonObject:
    """The list of models. `openProviders`, an extension, names providers that accept any model."""
    return {
        "object": "list",
        "data": [model_to_json(name) for name in model_ids(system)],
        "openProviders": [*system.providers.list_open_providers()],
    }


def choose_model(system: System, name: str) -> ModelChoice:
    """Find the agent or model. Raises ApiError (404) for an unknown name."""
    if name == OWN_NAME:
        return ModelChoice(name=name)
    for prefix in _AGENT_PREFIXES:
        if name.startswith(prefix):
            return ModelChoice(name=name, agent_id=_agent_id(system, name, prefix))
    try:
        system.providers.get(name)
    except MissingReferenceError:
        # The model exists; starting the run reports the missing secret.
        pass
    except ConfigError:
        raise _unknown_model_error(system, name) from None
    return ModelChoice(name=name, model=name)


def model_to_json(name: str) -> JsonObject:
    owner = OWN_NAME if name == OWN_NAME else name.partition("/")[0]
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


def _agent_id(system: System, name: str, prefix: str) -> str:
    try:
        return system.config.agents.agent(name.removeprefix(prefix)).id
    except SessionError:
        raise _unknown_model_error(system, name) from None


def _unknown_model_error(system: System, name: str) -> ApiError:
    known = model_ids(system)
    more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    shown = ", ".join(known[:_MAX_LISTED])
    providers = system.providers.list_open_providers()[:_MAX_LISTED]
    others = f", and any model of {', '.join(providers)}" if providers else ""
    return ApiError(
        404,
        f"there is no model {name[:_MAX_MODEL_CHARACTERS]!r}; known models: {shown}{more}{others}",
        code="model_not_found",
        path="model",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str
    begins_message: bool
    """Whether it starts a new message, after calls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageEnd:
    """A message of the model is complete. More may follow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCalls:
    """The calls that the client must make. The run waits for their results."""

    calls: tuple[ClientCall, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnd:
    """The run has completed."""

    result: RunResult


AnswerPart: TypeAlias = TextDelta | MessageEnd | ClientCalls | RunEnd


class AnswerStream:
    """The answer to one request. `close` aborts the run, unless it has ended or waits.

    A question of the agent ends the answer, if the session of the run can be continued: the next
    message of the client is the answer to it.
    """

    def __init__(
        self,
        run: AgentRun,
        waiting: WaitingRuns,
        *,
        after: int = -1,
        number: int = 1,
        calls_one_at_a_time: bool = False,
    ) -> None:
        self.run = run
        self.number = number
        """The number of this answer: a run gives one more each time the client delivers results or
        answers a question."""
        self.usage = Usage()
        self._waiting = waiting
        self._after = after
        self._calls_one_at_a_time = calls_one_at_a_time
        self._has_text = False
        self._is_over = False

    @property
    def headers(self) -> dict[str, str]:
        headers = {"x-nacre-run-id": self.run.id}
        if self.run.is_stored:
            headers["x-nacre-session-id"] = self.run.session_id
        return headers

    def close(self) -> None:
        if not self._is_over:
            self.run.request_abort(_GONE)

    async def parts(self) -> AsyncGenerator[AnswerPart]:
        """Yield the parts; the last is ClientCalls or RunEnd. Raises ApiError if the run fails."""
        followed = cast("AsyncGenerator[RunEvent]", self.run.events.follow(self._after))
        async with aclosing(followed) as events:
            async for event in events:
                self._check_gap(event)
                for part in self._handle_event(event):
                    yield part
                if self._is_waiting_for_client(event):
                    yield await self._wait_for_client()
                    return
                question = self._find_question(event)
                if question is not None:
                    yield TextDelta(text=question.text, begins_message=True)
                    yield MessageEnd()
                    self._is_over = True
                    yield RunEnd(result=RunResult(text=question.text, usage=self.usage))
                    return
        self._is_over = True
        result = self.run.result
        assert result is not None
        if self.run.state != "completed":
            raise run_error(self.run, result)
        yield RunEnd(result=result)

    def _handle_event(self, event: RunEvent) -> list[AnswerPart]:
        text = event.data.get("text")
        match event.kind:
            case "text.delta" if isinstance(text, str) and text:
                begins, self._has_text = not self._has_text, True
                return [TextDelta(text=text, begins_message=begins)]
            case "message.completed":
                self.usage = self.usage + _parse_usage(event.data)
                has_text, self._has_text = self._has_text, False
                if not has_text and isinstance(text, str) and text:
                    # The provider does not stream.
                    return [TextDelta(text=text, begins_message=True), MessageEnd()]
                return [MessageEnd()]
            case "message.sent" if isinstance(text, str) and text:
                # A message of the tool `message` is part of the answer for this client.
                return [TextDelta(text=text, begins_message=True), MessageEnd()]
            case "media.added":
                return [TextDelta(text=_link_to(event.data), begins_message=True), MessageEnd()]
            case _:
                return []

    def _find_question(self, event: RunEvent) -> InputRequest | None:
        """The open question that the event asks, if the client can answer it."""
        question = self.run.pending_input
        if question is None or question.id != event.data.get("inputId"):
            return None
        if self.run.is_stored:
            return question
        # The next request of this client is another session.
        self.run.input_requests.withdraw(question.id)
        return None

    def _is_waiting_for_client(self, event: RunEvent) -> bool:
        """Whether the run waits for the client, and all earlier events were handled."""
        run = self.run
        is_last = event.sequence == run.events.last_sequence
        return is_last and run.state == "waiting" and bool(run.pending_client_calls)

    async def _wait_for_client(self) -> ClientCalls:
        calls = self.run.pending_client_calls
        waiting = self._waiting.add(
            self.run,
            calls[:1] if self._calls_one_at_a_time else calls,
            after=self._after,
            answer_number=self.number,
        )
        self._is_over = True
        await self._waiting.share(waiting)
        return ClientCalls(calls=waiting.calls)

    def _check_gap(self, event: RunEvent) -> None:
        lost = self.run.events.count_missing(self._after, event.sequence)
        self._after = event.sequence
        if lost:
            raise _forbid_retry(
                ApiError(
                    500,
                    f"the client read too slowly: {lost} events of the run {self.run.id} are lost",
                    code="client_too_slow",
                )
            )


def run_error(run: AgentRun, result: RunResult) -> ApiError:
    """The error response of a failed run. Clients must not retry, because turns have effects."""
    cause = result.cause
    message = result.error or "the run ended without a result"
    if isinstance(cause, ProviderError):
        return _forbid_retry(_provider_failure(cause))
    if isinstance(cause, StorageError):
        return _forbid_retry(ApiError(503, message, code="storage_failed"))
    if isinstance(cause, RuntimeUnavailableError):
        return _forbid_retry(ApiError(503, message, code="runtime_unavailable"))
    if run.state == "aborted":
        return _forbid_retry(ApiError(503, f"the run was aborted: {message}", code="aborted"))
    return _forbid_retry(ApiError(500, message, code="run_failed"))


def _provider_failure(error: ProviderError) -> ApiError:
    if error.is_context_overflow:
        return ApiError(400, error.message, code="context_length_exceeded", path="messages")
    seconds = error.retry_after_seconds
    return ApiError(
        _provider_status(error),
        error.message,
        code="provider_failed",
        retry_after_seconds=seconds if seconds is not None and math.isfinite(seconds) else None,
    )


def _provider_status(error: ProviderError) -> int:
    if error.status == 429:
        # The provider's rate limit or quota: only waiting or a larger quota helps.
        return 429
    return 503 if error.is_retryable or error.status in _BUSY_STATUSES else 502


def _forbid_retry(error: ApiError) -> ApiError:
    error.headers = {**(error.headers or {}), "x-should-retry": "false"}
    return error


def _link_to(media: JsonObject) -> str:
    """A file of the reply as Markdown; the client gets it with its token."""
    name = str(media["name"]).replace("[", "(").replace("]", ")")
    is_image = str(media["type"]).startswith("image/")
    return f"{'!' if is_image else ''}[{name}]({media['url']})"


def _parse_usage(data: JsonObject) -> Usage:
    usage = cast("dict[str, int]", data.get("usage") or {})
    return Usage(
        input_tokens=usage.get("inputTokens", 0),
        output_tokens=usage.get("outputTokens", 0),
        cached_tokens=usage.get("cachedTokens", 0),
    )


async def complete_response(
    request: Request, answer: AnswerStream, make: Callable[[], Awaitable[JsonObject]]
) -> Response:
    """Wait for the complete answer. Raises ApiError if the run fails."""
    body: JsonObject | None = None
    failure: ApiError | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_on_disconnect, request.receive, tasks.cancel_scope)
            try:
                body = await make()
            except ApiError as error:
                failure = error
            tasks.cancel_scope.cancel()
    finally:
        answer.close()
    if failure is not None:
        failure.headers = {**(failure.headers or {}), **answer.headers}
        raise failure
    if body is None:
        return Response(status_code=_CLIENT_GONE_STATUS)
    return JSONResponse(body, headers=answer.headers)
