"""Turns the notifications of one turn into run events, its output and its trajectory."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

import anyio

from nacre.codex_harness.mirror import ANSWER, make_answer, make_identity, read_texts
from nacre.codex_harness.native_hooks import make_hook_event
from nacre.codex_harness.native_tools import (
    NativeEnding,
    parse_item_call,
    parse_item_ending,
)
from nacre.errors import CodexError, NacreError, ProviderError
from nacre.json_types import get_objects, get_text
from nacre.messages import AssistantMessage, TextPart, Usage
from nacre.telemetry import current_trace, execute_tool_span

if TYPE_CHECKING:
    from nacre.agent import TurnContext
    from nacre.codex_harness.native_hooks import NativeHooks
    from nacre.codex_harness.native_tools import NativeCall
    from nacre.json_types import JsonObject, JsonValue
    from nacre.telemetry import Span
    from nacre.trajectory import TrajectoryRecorder

logger = logging.getLogger(__name__)

_MAX_NOTIFICATIONS: Final = 5_000
_MAX_PROBLEM_CHARACTERS: Final = 300
_MAX_PLAN_STEPS: Final = 100
_MAX_PLAN_CHARACTERS: Final = 12_000
# No request has more. The database could not store the largest numbers that a provider can send.
_MAX_TOKENS: Final = 10**12
_DELTAS: Final = ("elta", "/outputDelta", "/progress")
# In the trajectory under other kinds, or of no interest.
_NOT_RECORDED: Final = (
    "hook/started",
    "hook/completed",
    "thread/status/changed",
    "thread/readState/changed",
    "rawResponseItem/completed",
)


# Calls that Codex asks about before it makes them.
_CHECKED_ITEMS: Final = ("commandExecution", "fileChange", "mcpToolCall")
# Items that change nothing outside of the thread.
_HARMLESS_ITEMS: Final = ("userMessage", "reasoning", "contextCompaction")
# The model refuses the whole request, and so each later one of the thread.
_REFUSALS: Final = ("badRequest", "other")
_BAD_IMAGE = re.compile(r"invalid.image|not represent a valid image", re.IGNORECASE)
_OVERFLOW: Final = "context_length_exceeded"

ThreadDamage = Literal["", "overflow", "image", "refused"]
"""Why a thread cannot be used again: it is too large for the model, has an image that the model
cannot read, or is refused for another reason. Empty if it can."""


class Projector:
    """Takes the notifications of one turn, in their order. It never blocks."""

    def __init__(self, turn: TurnContext, *, native: NativeHooks, model: str) -> None:
        self.thread_id = ""
        self.turn_id = ""
        """Known when Codex has started the turn."""
        self.ended = anyio.Event()
        self.error: NacreError | None = None
        """Why the turn has failed; valid when it has ended."""
        self.images: dict[str, JsonObject] = {}
        """The generated images, by the id of their item."""
        self._turn = turn
        self._trace = current_trace()
        self._open_calls: dict[str, _OpenCall] = {}
        self._native = native
        self._model = model
        self._partial: dict[str, list[str]] = {}
        self._thoughts: list[str] = []
        self._plans: list[str] = []
        self._checklist = ""
        self._usage = Usage()
        self._answers: dict[str, str] = {}
        self._called_names: list[str] = []
        self._recorded_count = 0
        self._problem = ""
        self._activity = ""
        self._limit: NacreError | None = None
        # Of the thread, as Codex has counted it last.
        self._total: JsonValue = None
        # Whether the last thing that the model has done is a call of a tool.
        self._has_called_last = False
        self.damage: ThreadDamage = ""
        """What the failure of the turn means for its thread; valid when it has ended."""
        self.used_tokens = 0
        """The size of the thread after the last request to the model."""
        self.window_tokens = 0
        """The context window of the model; 0 if Codex does not say it."""

    def take(self, method: str, params: JsonObject) -> None:
        """A notification of the thread; those of other turns are ignored."""
        if not self._is_of_turn(method, params):
            return
        self._record(method, params)
        item = params.get("item")
        match method:
            case "item/agentMessage/delta":
                self._take_text(params)
            case "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta":
                text = get_text(params, "delta")
                self._turn.run.events.add("thinking.delta", {"text": text})
            case "item/started" if isinstance(item, dict):
                self._start_item(item)
            case "item/completed" if isinstance(item, dict):
                self._complete_item(item)
            case "thread/tokenUsage/updated":
                self._take_usage(params)
            case "turn/plan/updated":
                self._checklist = _format_checklist(params)
            case "hook/started" | "hook/completed":
                self._activity = self._activity or "potential_side_effect"
                event = make_hook_event(method.rpartition("/")[2], params)
                self._turn.run.events.add("codex_app_server.hook", event)
                self._turn.trajectory.record("codex_app_server.hook", data=event)
            case "error":
                self._take_error(params)
            case "turn/completed":
                self._complete_turn(params)
            case _:
                # Recorded, and of no use for the turn.
                pass

    def fail(self, error: NacreError) -> None:
        """End the turn without Codex."""
        if not self.ended.is_set():
            self.error = error
            self.ended.set()

    def end_calls(self) -> None:
        """End the calls that have not ended with the turn: they were cut off, or go on."""
        is_completed = self.ended.is_set() and self.error is None
        for open_call in self._open_calls.values():
            if is_completed:
                open_call.leave_running()
            else:
                open_call.cut_off()
        self._open_calls.clear()

    def keep_partial_answer(self) -> None:
        """Keep the text of an answer that was cut off; somebody may have read it."""
        text = "".join(piece for pieces in self._partial.values() for piece in pieces)
        self._partial.clear()
        if text.strip():
            output = self._turn.output
            output.text, output.finish_reason = text, "error"
            output.messages.append(
                AssistantMessage(
                    parts=(TextPart(text=text),),
                    model=output.model,
                    finish_reason="error",
                    identity=self.identity_of(ANSWER),
                )
            )

    def _is_of_turn(self, method: str, params: JsonObject) -> bool:
        turn = params.get("turn")
        turn_id = turn.get("id") if isinstance(turn, dict) else params.get("turnId")
        if method == "turn/started" and not self.turn_id and isinstance(turn_id, str):
            # It may come before the answer to the request.
            self.turn_id = turn_id
        return turn_id is None or turn_id == self.turn_id

    def _record(self, method: str, params: JsonObject) -> None:
        if method in _NOT_RECORDED or method.endswith(_DELTAS):
            return
        self._recorded_count += 1
        if self._recorded_count <= _MAX_NOTIFICATIONS:
            self._turn.trajectory.record(
                "codex_app_server.notification", data={"method": method, "params": params}
            )

    # Text.

    def _take_text(self, params: JsonObject) -> None:
        text, item_id = get_text(params, "delta"), get_text(params, "itemId")
        if item_id not in self._partial:
            self._turn.run.events.start_message()
        self._partial.setdefault(item_id, []).append(text)
        self._turn.run.events.add("text.delta", {"text": text})

    def _complete_message(self, item: JsonObject) -> None:
        item_id, text = get_text(item, "id"), get_text(item, "text")
        if not self._partial.pop(item_id, None) and text:
            # Some versions send no deltas.
            self._turn.run.events.start_message()
            self._turn.run.events.add("text.delta", {"text": text})
        if item.get("phase") == "commentary" or not text:
            return
        self._answers[item_id] = text
        self._turn.output.text = text

    # Items.

    def _start_item(self, item: JsonObject) -> None:
        call = parse_item_call(item)
        call_id = get_text(item, "id")
        kind = item.get("type")
        if self._limit is not None and kind != "userMessage":
            # The last request that was allowed did not end the turn.
            self.fail(self._limit)
        self._has_called_last = call is not None or kind == "dynamicToolCall"
        if self._has_called_last:
            self._activity = "tool_activity"
        elif kind not in _HARMLESS_ITEMS:
            is_text = kind == "agentMessage"
            self._activity = self._activity or ("assistant_output" if is_text else "active_item")
        if kind == "dynamicToolCall":
            self._called_names.append(get_text(item, "tool"))
        if call is not None:
            self._called_names.append(call.tool.name)
            self._open_calls[call_id] = self._open_call(call, call_id)
        if call is not None and not self._native.has_recorded(call_id):
            started: JsonObject = {
                "toolId": call.tool.id,
                "toolName": call.tool.name,
                "source": call.tool.source,
                "owner": call.tool.owner,
                "toolKind": "tool",
                "input": call.input,
            }
            self._turn.trajectory.record("call.started", call_id=call_id, data=started)
        if call is not None and kind in _CHECKED_ITEMS and self._native.has_missed(call_id):
            self._take_unchecked(call, call_id)
        if item.get("type") == "contextCompaction":
            self._turn.run.events.add("compaction.started", {"by": "codex"})

    def _complete_item(self, item: JsonObject) -> None:
        self._native.take_item(item)
        match item.get("type"):
            case "agentMessage":
                self._complete_message(item)
            case "reasoning":
                self._thoughts += read_texts(item, "summary")
            case "plan":
                self._plans.append(get_text(item, "text"))
            case "contextCompaction":
                self._turn.run.events.add("compaction.ended", {"by": "codex"})
            case _:
                if item.get("type") == "imageGeneration":
                    self.images[get_text(item, "id")] = item
                call = parse_item_call(item)
                if call is not None:
                    self._end_call(item, call)

    def _take_unchecked(self, call: NativeCall, call_id: str) -> None:
        """Nacre was not asked about a call: Codex makes it if the shell of its hook was killed, and
        old versions have no hooks for MCP tools.

        If the policy denies it, the turn ends, and with it the call.
        """
        event: JsonObject = {
            "phase": "unanswered",
            "turnId": self.turn_id,
            "eventName": "preToolUse",
            "callId": call_id,
            "toolName": call.tool.name,
        }
        self._turn.run.events.add("codex_app_server.hook", event)
        self._turn.trajectory.record("codex_app_server.hook", call_id=call_id, data=event)
        logger.warning("Codex made a call of %s without asking Nacre", call.tool.name)
        refusal = self._native.find_refusal(call)
        if refusal is not None:
            self.fail(
                CodexError(
                    f"Codex started {call.tool.name} without asking Nacre, and it is not "
                    f"permitted: {refusal}. The turn was ended; check what it has done"
                )
            )

    def _end_call(self, item: JsonObject, call: NativeCall) -> None:
        call_id = get_text(item, "id")
        # Codex does not tell of the start of each call.
        open_call = self._open_calls.pop(call_id, None) or self._open_call(call, call_id)
        open_call.end(parse_item_ending(item, call))

    def _open_call(self, call: NativeCall, call_id: str) -> _OpenCall:
        name, tool_id = call.tool.name, call.tool.id
        span = execute_tool_span(name, call_id=call_id, tool_id=tool_id, parent=self._trace)
        return _OpenCall(id=call_id, call=call, span=span, trajectory=self._turn.trajectory)

    # Usage, errors and the end.

    def _take_usage(self, params: JsonObject) -> None:
        usage = params.get("tokenUsage")
        if not isinstance(usage, dict) or not isinstance(last := usage.get("last"), dict):
            return
        total = usage.get("total")
        if total is not None and total == self._total:
            # Old versions report each model call twice.
            return
        self._total = total
        self.used_tokens = _tokens(last, "totalTokens")
        self.window_tokens = _tokens(usage, "modelContextWindow")
        used = Usage(
            input_tokens=_tokens(last, "inputTokens"),
            output_tokens=_tokens(last, "outputTokens"),
            cached_tokens=_tokens(last, "cachedInputTokens"),
        )
        self._usage += used
        self._limit = self._turn.budget.note_native_call(used)
        if self._limit is not None and self._has_called_last:
            # Codex would ask the model again, with the results of its calls.
            self.fail(self._limit)

    def _take_error(self, params: JsonObject) -> None:
        error = params.get("error")
        message = get_text(error, "message") if isinstance(error, dict) else ""
        if params.get("willRetry") is True:
            problem = message[:_MAX_PROBLEM_CHARACTERS]
            self._turn.run.events.add("retry", {"problem": problem, "model": self._model})
        else:
            self._problem = message

    def _complete_turn(self, params: JsonObject) -> None:
        turn = params.get("turn")
        if self.ended.is_set() or not isinstance(turn, dict) or turn.get("id") != self.turn_id:
            return
        for item in get_objects(turn, "items"):
            if item.get("type") == "agentMessage" and get_text(item, "id") not in self._answers:
                self._complete_message(item)
        status = turn.get("status")
        if status == "completed":
            self._keep_answer()
        elif status == "failed":
            self.error = _to_error(turn.get("error"), self._problem)
            self.damage = _find_damage(turn.get("error"), self.error)
        else:
            self.error = CodexError("Codex interrupted the turn; send the message again")
        self.ended.set()

    def _keep_answer(self) -> None:
        """Mirror what was said: light records of reasoning and plans, and the last answer."""
        output = self._turn.output
        text = next(reversed(self._answers.values()), "")
        answer = make_answer(
            text,
            thoughts=[*self._thoughts, *filter(None, (self._checklist,))],
            plans=self._plans,
            identity=self.identity_of(ANSWER),
        )
        output.text, output.finish_reason = text, "stop"
        if answer is not None:
            # The beginning of an answer that the model did not finish, because it was steered.
            self._partial.clear()
            output.messages.append(replace(answer, model=output.model, usage=self._usage))
        said: JsonObject = {
            "model": output.model,
            "text": text,
            "finishReason": "stop",
            "usage": self._usage.to_json(),
        }
        self._turn.run.events.add("message.completed", {**said, "toolCalls": []})
        self._turn.trajectory.record(
            "model.answered", data={**said, "calledNames": [*self._called_names]}
        )

    # What is known so far.

    def identity_of(self, kind: str) -> str:
        """The name of a message of this turn in the mirror."""
        return make_identity(self.thread_id, self.turn_id, kind)

    @property
    def activity(self) -> str:
        """Why the turn cannot be repeated, as in the lifecycle events: it has said or done
        something. Empty if it has not."""
        return self._activity

    @property
    def usage(self) -> Usage:
        return self._usage

    @property
    def answers(self) -> list[str]:
        """The texts of the model, without comments between calls."""
        return [*self._answers.values()]

    @property
    def called_names(self) -> list[str]:
        """The tools that the model has called, Codex's own and Nacre's."""
        return [*self._called_names]


@dataclass(frozen=True, kw_only=True, slots=True)
class _OpenCall:
    """A native call that has begun: its span, and the record of its end."""

    id: str
    call: NativeCall
    span: Span
    trajectory: TrajectoryRecorder
    started: float = field(default_factory=anyio.current_time)

    def end(self, ending: NativeEnding) -> None:
        if ending.is_failed:
            self.span.fail(ending.error_code)
        self.span.end()
        self.trajectory.record("call.ended", call_id=self.id, data=ending.to_json())

    def leave_running(self) -> None:
        """A command runs in the background: for the model, its call has ended."""
        running: JsonObject = {"status": "running"}
        self.end(NativeEnding(call=self.call, result=running, duration_ms=self._elapsed_ms))

    def cut_off(self) -> None:
        self.end(
            NativeEnding(
                call=self.call,
                error="the turn ended before the call",
                error_code="aborted",
                duration_ms=self._elapsed_ms,
            )
        )

    @property
    def _elapsed_ms(self) -> float:
        return round((anyio.current_time() - self.started) * 1000, 1)


def _format_checklist(params: JsonObject) -> str:
    """The plan that the model keeps with `update_plan`, as it is now; newer versions have none."""
    steps = get_objects(params, "plan")
    done = {"completed": "x", "inProgress": "~"}
    lines = [
        f"- [{done.get(get_text(it, 'status'), ' ')}] {get_text(it, 'step')}"
        for it in steps[:_MAX_PLAN_STEPS]
    ]
    return "\n".join(("Plan:", *lines))[:_MAX_PLAN_CHARACTERS] if lines else ""


def _to_error(error: JsonValue, problem: str) -> ProviderError:
    found = error if isinstance(error, dict) else {}
    message = get_text(found, "message") or problem or "Codex gave no reason"
    info = found.get("codexErrorInfo")
    status = 0
    if isinstance(info, dict):
        for details in info.values():
            status = _number(details, "httpStatusCode") if isinstance(details, dict) else 0
    # Codex does not recognise all providers' answers.
    is_overflow = info == "contextWindowExceeded" or _OVERFLOW in message
    return ProviderError(message, status=status, is_context_overflow=is_overflow)


def _find_damage(error: JsonValue, cause: ProviderError) -> ThreadDamage:
    if cause.is_context_overflow:
        return "overflow"
    if not isinstance(error, dict) or error.get("codexErrorInfo") not in _REFUSALS:
        return ""
    return "image" if _BAD_IMAGE.search(cause.message) else "refused"


def _number(members: JsonObject, key: str) -> int:
    value = members.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _tokens(members: JsonObject, key: str) -> int:
    return min(max(_number(members, key), 0), _MAX_TOKENS)
