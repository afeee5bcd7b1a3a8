"""A tool call of an MCP client: its progress, and the approvals it requests from the client."""

from __future__ import annotations

import logging
import os
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import anyio

from nacre.code_mode import Waiting
from nacre.display import UnshowableInputError, escape_start, format_input, one_line
from nacre.json_types import NotJsonError, encode_json
from nacre.mcp_client.upstream import MAX_QUESTIONS_PER_CALL
from nacre.mcp_server.client_channel import ClientQuestion, ClientRefusedError
from nacre.tools import (
    OPERATION_MARK,
    AllowAlways,
    AllowOnce,
    ApprovalDecision,
    ApprovalQueue,
    ApprovalRequest,
    Deny,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nacre.code_mode import CodeModeResult, CodeModeRun, DirectResult
    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_server.client_channel import ClientFeature, QuestionMethod
    from nacre.trajectory import TrajectoryEvent

logger = logging.getLogger(__name__)


_MAX_TEXT_CHARACTERS: Final = 1_000
_CHOICES: Final = {
    "allow-once": "Allow once",
    "allow-always": "Allow, and do not ask again for the same input",
    "deny": "Do not allow",
}


def approval_form(request: ApprovalRequest) -> JsonObject:
    """Return the parameters of the elicitation for an approval.

    Raises UnshowableInputError if the input cannot be displayed, so that it is never approved.
    """
    return {
        "mode": "form",
        "message": _message(request),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Decision",
                    "enum": list(_CHOICES),
                    "enumNames": list(_CHOICES.values()),
                }
            },
            "required": ["decision"],
        },
    }


def parse_decision(answer: JsonObject) -> ApprovalDecision:
    """Read the decision of a person. Anything that is not an approval is a denial."""
    if answer.get("action") != "accept":
        return Deny("the person declined" if answer.get("action") == "decline" else "dismissed")
    content = answer.get("content")
    match content.get("decision") if isinstance(content, dict) else None:
        case "allow-once":
            return AllowOnce()
        case "allow-always":
            return AllowAlways()
        case "deny":
            return Deny("the person declined")
        case _:
            return Deny("the client sent no decision")


def approvals_to_json(requests: Sequence[ApprovalRequest], *, can_ask: bool) -> JsonObject:
    """Describe the pending approvals of a `waiting` result."""
    listed: list[JsonValue] = [
        {"id": request.id, "toolId": request.tool_id, "reason": request.reason}
        for request in requests
    ]
    return {"approvals": listed, "howToContinue": _how_to_continue(can_ask)}


def _how_to_continue(can_ask: bool) -> str:
    if can_ask:
        return "Call wait with the runId: the user is asked for the approvals then."
    # There is no other way to approve, because a hostile server could use it as well.
    return (
        "This MCP client cannot ask for approvals (it has no elicitation): the call is not made. "
        "Tell the user to use a client that can ask, or not to require the approval."
    )


def _message(request: ApprovalRequest) -> str:
    reason = f"\nWhy you are asked: {_shorten(request.reason)}" if request.reason else ""
    return (
        f"A program wants to call {_shorten(request.tool_id)}{reason}\n"
        f"Input: {format_input(request.input)}"
    )


def _shorten(text: str) -> str:
    return escape_start(text, most_characters=_MAX_TEXT_CHARACTERS)


_MAX_QUEUED: Final = 100
_MAX_MESSAGE_CHARACTERS: Final = 300
# How often a client is asked to repeat a request. Clients of the SDK stop after ten.
_MAX_ROUNDS: Final = 8
_CALL_ID_BYTES: Final = 8


@dataclass(kw_only=True, slots=True)
class _NestedCall:
    name: str
    owner: str
    parent_id: str
    question_count: int = 0


class NestedCalls:
    """The running nested calls, and descriptions of their events."""

    def __init__(self) -> None:
        self._running: dict[str, _NestedCall] = {}

    def is_running(self, owner: str, *, parent_id: str) -> bool:
        """Whether a nested call of this parent runs on this server."""
        return bool(self._running_on(owner, parent_id))

    def may_ask(self, owner: str, *, parent_id: str) -> bool:
        """Count a question for one of the running calls. Returns False if all are at the limit."""
        for call in self._running_on(owner, parent_id):
            if call.question_count < MAX_QUESTIONS_PER_CALL:
                call.question_count += 1
                return True
        return False

    def describe_event(self, event: TrajectoryEvent) -> str | None:
        """Describe an event of a nested call for a person. Returns None for other events."""
        if not event.parent_id:
            return None
        if event.kind == "call.started":
            self._running[event.call_id] = _nested_call(event)
        call = self._running.get(event.call_id)
        if event.kind == "call.ended":
            self._running.pop(event.call_id, None)
        state = _describe_state(event)
        if call is None or state is None:
            return None
        return one_line(f"{call.name} {state}", most_characters=_MAX_MESSAGE_CHARACTERS)

    def _running_on(self, owner: str, parent_id: str) -> list[_NestedCall]:
        running = self._running.values()
        return [it for it in running if it.owner == owner and it.parent_id == parent_id]


class ProgressFeed:
    """A bounded queue of progress messages for one client. Dropped messages are counted."""

    def __init__(self, before: ProgressFeed | None = None) -> None:
        """Start with the unsent messages of the feed `before`."""
        self._queued: deque[str] = deque() if before is None else before._queued
        self._skipped = 0 if before is None else before._skipped
        self._number = 0
        self._is_closed = False
        self._wake = anyio.Event()

    def add(self, message: str) -> None:
        """Add a message. If the queue is full, the oldest one is dropped."""
        if len(self._queued) >= _MAX_QUEUED:
            self._queued.popleft()
            self._skipped += 1
        self._queued.append(message)
        self._wake.set()

    def close(self) -> None:
        """Make `send_all` return when all messages are sent."""
        self._is_closed = True
        self._wake.set()

    async def send_all(self, send: Callable[[int, str], Awaitable[None]]) -> None:
        while True:
            while self._queued:
                self._number += 1
                await send(self._number, self._next_message())
            if self._is_closed:
                return
            self._wake = anyio.Event()
            await self._wake.wait()

    def _next_message(self) -> str:
        message, skipped = self._queued.popleft(), self._skipped
        self._skipped = 0
        return f"{message} ({skipped} earlier messages were dropped)" if skipped else message


def _nested_call(started: TrajectoryEvent) -> _NestedCall:
    tool = str(started.data.get("toolName", "")).removeprefix(OPERATION_MARK)
    owner = str(started.data.get("owner", ""))
    return _NestedCall(
        name=f"{owner}: {tool}" if started.data.get("source") == "mcp" else tool,
        owner=owner,
        parent_id=started.parent_id,
    )


def _describe_state(event: TrajectoryEvent) -> str | None:
    match event.kind:
        case "call.started":
            return "(running)"
        case "call.updated":
            return f"({_format_update(event.data.get('update'))})"
        case "call.ended" if event.data.get("outcome") == "completed":
            return "(done)"
        case "call.ended":
            return f"(failed: {event.data.get('error', '')})"
        case "approval.requested":
            return "(needs an approval)"
        case "approval.answered":
            return "(approved)" if event.data.get("answer") == "allow" else "(not approved)"
        case _:
            return None


def _format_update(update: JsonValue) -> str:
    if isinstance(update, str):
        return update
    if isinstance(update, dict) and "progress" in update:
        done, total, message = (update.get(key) for key in ("progress", "total", "message"))
        amount = str(done) if total is None else f"{done}/{total}"
        return f"{amount} {message}" if message else amount
    try:
        return encode_json(update).decode()
    except NotJsonError:
        return "update"


class ServedCall:
    """A call of `exec`, `wait` or a direct tool, which runs as a task of its session.

    If a cell waits for an answer of the client, it is resumed here when the answer arrives, so that
    the model sees one call.
    """

    def __init__(
        self, run: CodeModeRun, queue: ApprovalQueue, *, name: str, arguments: JsonObject
    ) -> None:
        self.id = f"call_{os.urandom(_CALL_ID_BYTES).hex()}"
        self.root_id = self.id
        """The id of the `exec` call that contains the nested calls; differs for a `wait`."""
        self.name = name
        self.arguments = arguments
        self.features: frozenset[ClientFeature] = frozenset()
        """The features of the client that waits for this call."""
        self.feed = ProgressFeed()
        self.result: CodeModeResult | DirectResult | None = None
        self.rounds = 0
        """How often the client got questions as the result."""
        self.unrelated_question_count = 0
        """The number of questions of servers without a running nested call."""
        self._run = run
        self._queue = queue
        self._questions: dict[str, ClientQuestion] = {}
        self._settled_count = 0
        self._change = anyio.Event()
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()

    # Used by the session.

    async def run(self) -> None:
        """Run the call. Never raises."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._ask_for_approvals)
                    self.result = await self._run_to_result()
                    tasks.cancel_scope.cancel()
        except Exception:
            logger.exception("a call of %s failed", self.name)
        finally:
            for question in list(self._questions.values()):
                question.refuse("the call of this question has ended")
            self._ended.set()
            self._notify_change()

    async def abort(self) -> None:
        """Abort the call with its cell, and wait until it has ended."""
        self._scope.cancel()
        await self._ended.wait()

    # Used by requests of the client.

    def attach(self, features: frozenset[ClientFeature]) -> None:
        """Connect the call to a new request of a client with these features."""
        self.features = features
        self.feed = ProgressFeed(before=self.feed)
        self._notify_change()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def open_questions(self) -> list[ClientQuestion]:
        return [it for it in self._questions.values() if not it.is_settled]

    @property
    def can_ask_for_approvals(self) -> bool:
        return "form" in self.features and self.rounds < _MAX_ROUNDS

    async def wait_until_ended(self) -> None:
        await self._ended.wait()

    async def wait_until_ended_or_question(self) -> None:
        """Wait until the call has ended or has a question for the client."""
        await self._wait_until(lambda: self.has_ended or bool(self.open_questions))

    async def next_question(self) -> ClientQuestion:
        """Wait for an open question and return the oldest one."""
        await self._wait_until(lambda: bool(self.open_questions))
        return self.open_questions[0]

    async def ask(self, method: QuestionMethod, params: JsonObject) -> JsonObject:
        """Ask the client and return the answer. Raises ClientRefusedError."""
        if self.has_ended:
            raise ClientRefusedError("the call of this question has ended")
        question = ClientQuestion(method, params)
        self._questions[question.id] = question
        self._notify_change()
        try:
            return await question.wait()
        finally:
            # If the caller was cancelled, this withdraws the question.
            question.refuse("the question was withdrawn")
            del self._questions[question.id]
            self._settled_count += 1
            self._notify_change()

    def pending_approvals(self) -> list[ApprovalRequest]:
        """Return the approval requests of this call that are still open."""
        return [request for request in self._queue.pending if self._belongs_to_call(request)]

    # The call itself.

    async def _run_to_result(self) -> CodeModeResult | DirectResult:
        settled_before = self._settled_count
        result = await self._run.call(self.name, self.arguments, call_id=self.id)
        while isinstance(result, Waiting) and self._waits_for_client(result, settled_before):
            await self._wait_until(lambda: not self._is_asking())
            settled_before = self._settled_count
            resumed = await self._run.resume(result.cell_id)
            # The client sees one result with the output of all legs.
            result = replace(resumed, output=(*result.output, *resumed.output))
        return result

    def _waits_for_client(self, waiting: Waiting, settled_before: int) -> bool:
        if waiting.reason != "pending_tools":
            return False
        if self.open_questions:
            return True
        if any(call.is_awaiting_approval for call in waiting.pending):
            return self.can_ask_for_approvals
        # A question was answered while the cell was being suspended, so it can be resumed.
        return self._settled_count > settled_before

    def _is_asking(self) -> bool:
        waits_for_approval = self.can_ask_for_approvals and bool(self.pending_approvals())
        return waits_for_approval or bool(self.open_questions)

    async def _ask_for_approvals(self) -> None:
        async with anyio.create_task_group() as tasks:
            async for request in self._queue:
                if self._belongs_to_call(request) and self.can_ask_for_approvals:
                    tasks.start_soon(self._ask_for_approval, request)

    async def _ask_for_approval(self, request: ApprovalRequest) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_when_closed, request, tasks.cancel_scope)
            try:
                answer = await self.ask("elicitation/create", approval_form(request))
                decision = parse_decision(answer)
            except ClientRefusedError as refusal:
                decision = Deny(f"the client could not ask: {refusal}")
            except UnshowableInputError as problem:
                decision = Deny(str(problem))
            tasks.cancel_scope.cancel()
            if request in self._queue.pending:
                self._queue.answer(request.id, decision)
        self._notify_change()

    async def _cancel_when_closed(self, request: ApprovalRequest, scope: anyio.CancelScope) -> None:
        # The request may expire, or be answered elsewhere, while the client is asked.
        while request in self._queue.pending:
            await self._queue.wait_for_change()
        scope.cancel()

    def _belongs_to_call(self, request: ApprovalRequest) -> bool:
        return self.root_id in (request.call_id, request.parent_id) or request.call_id == self.id

    async def _wait_until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            await self._change.wait()

    def _notify_change(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()
