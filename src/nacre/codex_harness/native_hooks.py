"""The hooks of a turn for Codex's own tools: policy and hooks before a call, observations after it.

Codex's native hooks ask before a call (PreToolUse, PermissionRequest), tell of its result
(PostToolUse) and ask before a turn ends (Stop). The items of the app-server tell of the calls that
no hook covers. A call has its hooks once, whichever of them tells of it first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from nacre.codex_harness.hook_relay import decide_permission, deny_tool_use, revise_answer
from nacre.codex_harness.native_tools import (
    NO_REWRITE,
    NativeCall,
    NativeEnding,
    is_native_name,
    parse_item_call,
    parse_item_ending,
    parse_native_call,
)
from nacre.codex_harness.tool_specs import NAMESPACE
from nacre.errors import ToolDefinitionError, ToolInputError
from nacre.hooks import AfterToolCall, BeforeAgentFinalize, BeforeToolCall
from nacre.json_types import get_text
from nacre.run_context import AbortController
from nacre.telemetry import current_trace, execute_tool_span
from nacre.tools import Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from nacre.agent import ExternalWaits, TurnContext
    from nacre.config import ApprovalPolicy, HookRelayConfig, RelayEvent
    from nacre.hooks import HookRunner
    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import AbortSignal, RunContext
    from nacre.tools import Approvals, ToolPolicy
    from nacre.trajectory import TrajectoryRecorder

# How native hooks name a tool with a namespace, which depends on the version of Codex.
_NAMESPACE_PREFIXES: Final = ("", NAMESPACE, f"{NAMESPACE}__", f"{NAMESPACE}.")
_MAX_REVISIONS: Final = 3
_MAX_ERROR_CHARACTERS: Final = 2_000
# How long after the end of a call its PostToolUse hook may still come.
_OBSERVE_AFTER_SECONDS: Final = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeScope:
    """What native hooks use of a turn, or of a command that works with a thread."""

    hooks: HookRunner
    identity: RunContext
    stop: AbortSignal
    trajectory: TrajectoryRecorder
    waits: ExternalWaits | None = None
    """Told of calls that wait for a person."""

    @classmethod
    def of_turn(cls, turn: TurnContext) -> NativeScope:
        return cls(
            hooks=turn.service.hooks,
            identity=turn.identity,
            stop=turn.stop,
            trajectory=turn.trajectory,
            waits=turn.waits,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Check:
    """A call that may be made."""

    call: NativeCall
    fingerprint: str
    is_approved: bool
    """Whether a person has approved it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Waiting:
    """A call that has ended, and whose `PostToolUse` may still come."""

    ending: NativeEnding
    observe_at: float = field(default_factory=lambda: anyio.current_time() + _OBSERVE_AFTER_SECONDS)


class NativeHooks:
    """Answers the native hooks of one turn, and observes the calls that have none."""

    def __init__(
        self,
        scope: NativeScope,
        *,
        policy: ToolPolicy,
        approvals: Approvals,
        dynamic_names: Collection[str],
    ) -> None:
        """`dynamic_names` are the names of Nacre's tools in Codex, which have their own hooks."""
        self._scope = scope
        self._hooks = scope.hooks
        self._policy = policy
        self._approvals = approvals
        self._dynamic_names = frozenset(
            prefix + name
            for name in dynamic_names
            for prefix in _NAMESPACE_PREFIXES
            # A tool that a client calls `Bash` must not hide the shell from the policy.
            if not is_native_name(prefix + name)
        )
        self._checks: dict[str, _Check] = {}
        self._recorded: set[str] = set()
        self._waiting: dict[str, _Waiting] = {}
        self._observed: set[str] = set()
        self._revisions: list[str] = []
        self._change = anyio.Event()
        self._end = AbortController()
        self._trace = current_trace()
        self._is_asked = False

    def choose_events(
        self, config: HookRelayConfig, approval_policy: ApprovalPolicy
    ) -> Sequence[RelayEvent]:
        """The events that a thread has native hooks for. Each hook costs a process per call."""
        events = self._choose_enabled(config, approval_policy) if config.is_enabled else []
        # The settings turn hooks of plugins off, not the policy for tools.
        if self._policy.has_rules and "pre_tool_use" not in events:
            events.insert(0, "pre_tool_use")
        self._is_asked = "pre_tool_use" in events
        return events

    def _choose_enabled(
        self, config: HookRelayConfig, approval_policy: ApprovalPolicy
    ) -> list[RelayEvent]:
        if config.events is not None:
            return [*config.events]
        # Always, so that a hook of a plugin that is loaded later can block the calls of the thread.
        events: list[RelayEvent] = ["pre_tool_use"]
        if self._hooks.has_hooks("after_tool_call"):
            events.append("post_tool_use")
        # Otherwise Codex asks the reviewer and Nacre's approvals, which come after this hook.
        if approval_policy == "never":
            events.append("permission_request")
        if self._hooks.has_hooks("before_agent_finalize"):
            events.append("before_agent_finalize")
        return events

    # What other parts of the turn ask.

    @property
    def has_checks(self) -> bool:
        """Whether there is anything that could block a call."""
        return self._policy.has_rules or self._hooks.has_hooks("before_tool_call")

    def has_checked(self, call_id: str) -> bool:
        """Whether policy and `before_tool_call` hooks have let this call pass."""
        return call_id in self._checks

    def has_missed(self, call_id: str) -> bool:
        """Whether Codex makes this call though it should have been checked."""
        return self._is_asked and self.has_checks and call_id not in self._checks

    def find_refusal(self, call: NativeCall) -> str | None:
        """Why the policy does not permit a call; None if it does."""
        return call.refusal(self._policy)

    def is_approved(self, call_id: str) -> bool:
        """Whether a person has approved this call, because a hook required it."""
        check = self._checks.get(call_id)
        return check is not None and check.is_approved

    def has_recorded(self, call_id: str) -> bool:
        """Whether the trajectory has the start of this call already."""
        return call_id in self._recorded

    def covers(self, call_id: str) -> bool:
        """Whether the `after_tool_call` hooks know of this call."""
        return call_id in self._observed

    # Native hooks.

    async def answer(self, event: RelayEvent, payload: JsonObject, /) -> JsonObject | None:
        """The output of a hook; None if Codex shall continue."""
        match event:
            case "pre_tool_use":
                reason = await self._check_until_stop(payload)
                return None if reason is None else deny_tool_use(reason)
            case "permission_request":
                return self._decide_permission(payload)
            case "post_tool_use":
                await self._observe_result(payload)
                return None
            case "before_agent_finalize":
                return await self._review_answer(payload)

    async def _check_until_stop(self, payload: JsonObject) -> str | None:
        reason: str | None = None
        with self._scope.stop.cancelling() as scope, self._end.signal.cancelling() as end:
            reason = await self._check_call(payload)
        is_stopped = scope.cancelled_caught or end.cancelled_caught
        return "the turn is being stopped" if is_stopped else reason

    async def _check_call(self, payload: JsonObject) -> str | None:
        """Why the call must not be made; None if it may."""
        name = get_text(payload, "tool_name")
        if name in self._dynamic_names:
            return None
        try:
            call = parse_native_call(name, _tool_input(payload))
        except ToolDefinitionError as error:
            return f"the tool cannot be checked: {error}"
        call_id = get_text(payload, "tool_use_id")
        refusal = call.refusal(self._policy)
        if refusal is not None:
            return await self._refuse(call, call_id, refusal, "denied_by_policy")
        is_approved = False
        if self._hooks.has_hooks("before_tool_call"):
            decision = await self._hooks.before_tool_call(
                BeforeToolCall(
                    tool_id=call.tool.id,
                    tool_name=call.tool.name,
                    input=call.input,
                    call_id=call_id,
                    parent_id="",
                    context=self._scope.identity,
                )
            )
            if decision.block is not None:
                return await self._refuse(call, call_id, decision.block, "blocked_by_hook")
            if decision.is_changed and decision.input != call.input:
                return await self._refuse(call, call_id, NO_REWRITE, "blocked_by_hook")
            if decision.approval is not None:
                # What is always allowed is so in this directory.
                shown = {"cwd": payload.get("cwd"), **call.input}
                refused = await self._ask_approval(call, call_id, shown, reason=decision.approval)
                if refused is not None:
                    return await self._refuse(call, call_id, refused.reason, refused.code)
                is_approved = True
        self._checks[call_id] = _Check(
            call=call, fingerprint=_fingerprint(payload), is_approved=is_approved
        )
        return None

    async def _ask_approval(
        self, call: NativeCall, call_id: str, shown: JsonObject, *, reason: str
    ) -> Refused | None:
        """Ask a person; returns the refusal."""

        def refuse_edit(edited: JsonObject) -> JsonObject:
            if edited != shown:
                raise ToolInputError(
                    "Codex runs its own tools with the input of the model only; allow the call as "
                    "it is, or deny it",
                    tool_id=call.tool.id,
                )
            return edited

        scope = self._scope
        self._record_start(call, call_id)
        scope.trajectory.record("approval.requested", call_id=call_id, data={"reason": reason})
        if scope.waits is not None:
            scope.waits.begin(call_id)
        try:
            answer = await self._approvals.request(
                tool_id=call.tool.id,
                tool_name=call.tool.name,
                input=shown,
                reason=reason,
                context=scope.identity,
                call_id=call_id,
                check=refuse_edit,
            )
        finally:
            if scope.waits is not None:
                scope.waits.end(call_id)
        told: JsonObject = {"answer": "allow"}
        if isinstance(answer, Refused):
            told = {"answer": "deny", "reason": answer.reason}
        else:
            told["how"] = "always" if answer.is_remembered else "once"
        scope.trajectory.record("approval.answered", call_id=call_id, data=told)
        return answer if isinstance(answer, Refused) else None

    async def _refuse(self, call: NativeCall, call_id: str, reason: str, code: str) -> str:
        """Record a call that is not made: Codex shows no item for it."""
        self._record_start(call, call_id)
        span = execute_tool_span(
            call.tool.name, call_id=call_id, tool_id=call.tool.id, parent=self._trace
        )
        span.fail(code)
        span.end()
        ending = NativeEnding(call=call, error=reason, error_code=code)
        self._scope.trajectory.record("call.ended", call_id=call_id, data=ending.to_json())
        await self._observe(call_id, ending)
        return reason

    def _record_start(self, call: NativeCall, call_id: str) -> None:
        if call_id in self._recorded:
            return
        self._recorded.add(call_id)
        started: JsonObject = {
            "toolId": call.tool.id,
            "toolName": call.tool.name,
            "source": call.tool.source,
            "owner": call.tool.owner,
            "toolKind": "tool",
            "input": call.input,
        }
        self._scope.trajectory.record("call.started", call_id=call_id, data=started)

    def _decide_permission(self, payload: JsonObject) -> JsonObject | None:
        """Decide only what policy or a person has decided; Codex asks about everything else."""
        name = get_text(payload, "tool_name")
        if name in self._dynamic_names:
            return None
        try:
            refusal = parse_native_call(name, _tool_input(payload)).refusal(self._policy)
        except ToolDefinitionError as error:
            refusal = f"the tool cannot be checked: {error}"
        if refusal is not None:
            return decide_permission(reason=refusal)
        # The payload has no id of the call.
        fingerprint = _fingerprint(payload)
        is_approved = any(
            check.is_approved for check in self._checks.values() if check.fingerprint == fingerprint
        )
        return decide_permission(reason=None) if is_approved else None

    async def _review_answer(self, payload: JsonObject) -> JsonObject | None:
        # The answer of an agent that Codex has started goes to that of the turn, not to the user.
        if len(self._revisions) >= _MAX_REVISIONS or payload.get("agent_id"):
            return None
        reason = await self._hooks.before_agent_finalize(
            BeforeAgentFinalize(
                context=self._scope.identity,
                text=get_text(payload, "last_assistant_message"),
                pass_count=len(self._revisions),
            )
        )
        # Once for each reason: a model that cannot follow it would be asked forever.
        if reason is None or reason in self._revisions:
            return None
        self._revisions.append(reason)
        return revise_answer(reason)

    # Results.

    async def _observe_result(self, payload: JsonObject) -> None:
        name, call_id = get_text(payload, "tool_name"), get_text(payload, "tool_use_id")
        if name in self._dynamic_names:
            return
        response = payload.get("tool_response")
        waiting = self._waiting.pop(call_id, None)
        if waiting is None:
            check = self._checks.get(call_id)
            call = check.call if check else parse_native_call(name, _tool_input(payload))
            result = {"output": response} if call.tool.name == "exec" else response
            ending = NativeEnding(call=call, result=result)
        elif isinstance(waiting.ending.result, dict):
            ending = waiting.ending
        else:
            ending = NativeEnding(
                call=waiting.ending.call, result=response, duration_ms=waiting.ending.duration_ms
            )
        await self._observe(call_id, ending)

    def take_item(self, item: JsonObject) -> None:
        """A completed item of the app-server; calls without PostToolUse are observed later."""
        if not self._hooks.has_hooks("after_tool_call"):
            return
        call_id = get_text(item, "id")
        check = self._checks.get(call_id)
        call = parse_item_call(item)
        if call is not None and call_id not in self._observed:
            ending = parse_item_ending(item, call if check is None else check.call)
            self._waiting[call_id] = _Waiting(ending=ending)
            change, self._change = self._change, anyio.Event()
            change.set()

    async def observe_items(self) -> None:
        """Call the `after_tool_call` hooks for calls that have no PostToolUse hook; never ends."""
        while True:
            change = self._change
            now = anyio.current_time()
            for call_id, waiting in list(self._waiting.items()):
                if waiting.observe_at <= now:
                    await self._observe(call_id, waiting.ending)
            waits = [waiting.observe_at - now for waiting in self._waiting.values()]
            with anyio.move_on_after(min(waits, default=float("inf"))):
                await change.wait()

    def close(self) -> None:
        """The turn has ended, perhaps by a crash of Codex: nobody is asked about its calls."""
        self._end.abort("the turn has ended")

    async def finish(self) -> None:
        """Observe the remaining calls. The turn has ended, and its native hooks with it."""
        for call_id, waiting in list(self._waiting.items()):
            await self._observe(call_id, waiting.ending)

    async def _observe(self, call_id: str, ending: NativeEnding) -> None:
        self._waiting.pop(call_id, None)
        if call_id in self._observed or not self._hooks.has_hooks("after_tool_call"):
            return
        self._observed.add(call_id)
        await self._hooks.after_tool_call(
            AfterToolCall(
                tool_id=ending.call.tool.id,
                tool_name=ending.call.tool.name,
                input=ending.call.input,
                call_id=call_id,
                parent_id="",
                context=self._scope.identity,
                outcome="failed" if ending.is_failed else "completed",
                result=ending.result,
                error=ending.error[:_MAX_ERROR_CHARACTERS],
                error_code=ending.error_code,
                duration_ms=ending.duration_ms,
            )
        )


def make_hook_event(phase: str, params: Mapping[str, JsonValue]) -> JsonObject:
    """The data of a `codex_app_server.hook` event, from `hook/started` or `hook/completed`."""
    run = _object(params.get("run"))
    event: JsonObject = {"phase": phase, "turnId": params.get("turnId")}
    names = ("id", "eventName", "source", "status", "durationMs", "statusMessage", "entries")
    return event | {name: run[name] for name in names if run.get(name) is not None}


def _tool_input(payload: JsonObject) -> JsonObject:
    given = payload.get("tool_input")
    return given if isinstance(given, dict) else {"input": given}


def _fingerprint(payload: JsonObject) -> str:
    parts = [payload.get("tool_name"), payload.get("cwd"), payload.get("tool_input")]
    return json.dumps(parts, sort_keys=True)


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
