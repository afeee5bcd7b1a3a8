"""One call of a client, and the approvals that it asks the client for."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

import anyio

from nacre.code_mode import Waiting
from nacre.display import UnshowableInputError, escape_start, format_input
from nacre.mcp_server.client_channel import ClientQuestion, ClientRefusedError
from nacre.mcp_server.progress import ProgressFeed
from nacre.tools import (
    AllowAlways,
    AllowOnce,
    ApprovalDecision,
    ApprovalQueue,
    ApprovalRequest,
    Deny,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nacre.code_mode import CodeModeResult, CodeModeRun, DirectResult
    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_server.client_channel import ClientFeature, QuestionMethod


_MAX_TEXT_CHARACTERS: Final = 1_000
_CHOICES: Final = {
    "allow-once": "Allow once",
    "allow-always": "Allow, and do not ask again for the same input",
    "deny": "Do not allow",
}


def approval_form(request: ApprovalRequest) -> JsonObject:
    """The parameters of the elicitation that asks a person about a call.

    Raises UnshowableInputError: nobody is to approve what they cannot see.
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
    """What the person decided; everything but a clear yes is a no."""
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


def awaited_approvals(requests: Sequence[ApprovalRequest], *, can_be_asked: bool) -> JsonObject:
    """What a `waiting` result says about the approvals that it waits for."""
    listed: list[JsonValue] = [
        {"id": request.id, "toolId": request.tool_id, "reason": request.reason}
        for request in requests
    ]
    return {"approvals": listed, "howToContinue": _how_to_continue(can_be_asked)}


def _how_to_continue(can_be_asked: bool) -> str:
    if can_be_asked:
        return "Call wait with the runId: the user is asked for the approvals then."
    # No second way to answer: whatever a process of the user could do, a hostile server could do.
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


logger = logging.getLogger(__name__)

# Clients repeat a request so many times at most; the SDK's give up after ten.
_MAX_ROUNDS: Final = 8
_CALL_ID_BYTES: Final = 8


class ServedCall:
    """A call of `exec`, `wait` or a direct tool, run as a task of its session.

    A cell that waits for what the client is being asked is continued here as soon as the client has
    answered: the model sees one call.
    """

    def __init__(
        self, run: CodeModeRun, queue: ApprovalQueue, *, name: str, arguments: JsonObject
    ) -> None:
        self.id = f"call_{os.urandom(_CALL_ID_BYTES).hex()}"
        self.root_id = self.id
        """The call of `exec` that the nested calls are in: for a `wait`, not its own."""
        self.name = name
        self.arguments = arguments
        self.features: frozenset[ClientFeature] = frozenset()
        """What the client that waits for this call can be asked."""
        self.feed = ProgressFeed()
        self.result: CodeModeResult | DirectResult | None = None
        self.rounds = 0
        """How often the client was sent away with questions."""
        self.stray_question_count = 0
        """What servers asked the client meanwhile without a nested call that made them."""
        self._run = run
        self._queue = queue
        self._questions: dict[str, ClientQuestion] = {}
        self._settled_count = 0
        self._change = anyio.Event()
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()

    # What the session does.

    async def run(self) -> None:
        """Do what was called; never raises."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._ask_for_approvals)
                    self.result = await self._perform()
                    tasks.cancel_scope.cancel()
        except Exception:
            logger.exception("a call of %s failed", self.name)
        finally:
            for question in list(self._questions.values()):
                question.refuse("the call that it belongs to is over")
            self._ended.set()
            self._tell_change()

    async def abort(self) -> None:
        """End it, with its cell, and wait until it has ended."""
        self._scope.cancel()
        await self._ended.wait()

    # What requests do.

    def attach(self, features: frozenset[ClientFeature]) -> None:
        """A request waits for this call now, of a client that can be asked these things."""
        self.features = features
        self.feed = ProgressFeed(before=self.feed)
        self._tell_change()

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

    async def wait_until_ended_or_asking(self) -> None:
        """Return when the call is over, or has a question for the client."""
        await self._changed_to(lambda: self.has_ended or bool(self.open_questions))

    async def next_question(self) -> ClientQuestion:
        """The oldest question that is open, once there is one."""
        await self._changed_to(lambda: bool(self.open_questions))
        return self.open_questions[0]

    async def ask(self, method: QuestionMethod, params: JsonObject) -> JsonObject:
        """The client's answer; raises ClientRefusedError."""
        if self.has_ended:
            raise ClientRefusedError("the call that it belongs to is over")
        question = ClientQuestion(method, params)
        self._questions[question.id] = question
        self._tell_change()
        try:
            return await question.wait()
        finally:
            # Also withdraws it, where whoever asked was cancelled.
            question.refuse("the question was withdrawn")
            del self._questions[question.id]
            self._settled_count += 1
            self._tell_change()

    def awaited_approvals(self) -> list[ApprovalRequest]:
        """The approvals that somebody else than the client has to give."""
        return [request for request in self._queue.pending if self._is_mine(request)]

    # The call itself.

    async def _perform(self) -> CodeModeResult | DirectResult:
        settled_before = self._settled_count
        result = await self._run.call(self.name, self.arguments, call_id=self.id)
        while isinstance(result, Waiting) and self._waits_for_client(result, settled_before):
            await self._changed_to(lambda: not self._is_asking())
            settled_before = self._settled_count
            result = await self._run.wait(result.cell_id)
        return result

    def _waits_for_client(self, waiting: Waiting, settled_before: int) -> bool:
        if waiting.reason != "pending_tools":
            return False
        if self.open_questions:
            return True
        if any(call.is_awaiting_approval for call in waiting.pending):
            return self.can_ask_for_approvals
        # Answered while the program was being suspended: it goes on with the next leg.
        return self._settled_count > settled_before

    def _is_asking(self) -> bool:
        waits_for_approval = self.can_ask_for_approvals and bool(self.awaited_approvals())
        return waits_for_approval or bool(self.open_questions)

    async def _ask_for_approvals(self) -> None:
        async with anyio.create_task_group() as tasks:
            async for request in self._queue:
                if self._is_mine(request) and self.can_ask_for_approvals:
                    tasks.start_soon(self._ask_for_approval, request)

    async def _ask_for_approval(self, request: ApprovalRequest) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_closed, request, tasks.cancel_scope)
            try:
                answer = await self.ask("elicitation/create", approval_form(request))
                decided = parse_decision(answer)
            except ClientRefusedError as refusal:
                decided = Deny(f"the client could not ask: {refusal}")
            except UnshowableInputError as problem:
                decided = Deny(str(problem))
            tasks.cancel_scope.cancel()
            if request in self._queue.pending:
                self._queue.answer(request.id, decided)
        self._tell_change()

    async def _until_closed(self, request: ApprovalRequest, scope: anyio.CancelScope) -> None:
        """It may expire, or be answered elsewhere, while the client is asked."""
        while request in self._queue.pending:
            await self._queue.wait_for_change()
        scope.cancel()

    def _is_mine(self, request: ApprovalRequest) -> bool:
        return self.root_id in (request.call_id, request.parent_id) or request.call_id == self.id

    async def _changed_to(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._change.wait()

    def _tell_change(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()
