"""The call path: policy, hooks, input check, approval, the tool, hooks, trajectory.

Direct calls, nested calls and calls of namespaces all use it, so the same rules apply to all.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict, TypeVar, cast

from nacre.config import CORE_GROUPS, fold_tool_name
from nacre.errors import (
    StorageError,
    ToolAbortedError,
    ToolDeniedError,
    ToolError,
    ToolFailedError,
    ToolInputError,
)
from nacre.foreign_calls import describe_error, passes_through
from nacre.hooks import AfterToolCall, BeforeToolCall, HookRunner, ToolKind
from nacre.json_types import JsonObject, JsonValue, describe_json_type
from nacre.large_json import copy_off_loop
from nacre.lazy_dataclasses import dataclass
from nacre.run_context import AbortSignal, RunContext
from nacre.telemetry import Span, format_log_line, span
from nacre.tools.approvals import Approvals, Granted, Refused
from nacre.tools.definition import CORE_OWNER, SOURCES, Tool, ToolCall, convert_result

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from nacre.config import ToolRules, ToolsConfig
    from nacre.tools.definition import ToolSource
    from nacre.tools.input_checks import InputValidators
    from nacre.trajectory import EventKind, TrajectoryRecorder

logger = logging.getLogger(__name__)

# The name for the tools of all MCP servers in a configuration.
_MCP_PLUGIN: Final = "bundle-mcp"
_MCP_GROUPS: Final = ("group:mcp", _MCP_PLUGIN)

# A tool name that only the pattern `*` matches.
_NO_NAME: Final = "\0"

_PatternKind = Literal["any", "group", "id", "core", "name or owner"]
"""What a pattern is compared with. Patterns in `deny` match anything; each pattern in `allow`
matches one kind of name."""
_Names: TypeAlias = "Mapping[_PatternKind, Sequence[str]]"


class ToolPolicy:
    """The rules of all sections. A tool is permitted only if every section permits it."""

    def __init__(self, rules: Sequence[tuple[str, ToolRules]] = ()) -> None:
        self._layers = [_Layer(path, layer) for path, layer in rules]

    @property
    def has_rules(self) -> bool:
        """Whether there is a tool that the policy does not permit."""
        return any(layer.has_rules for layer in self._layers)

    def permits(self, tool: Tool) -> bool:
        return self.refusal(tool) is None

    def refusal(self, tool: Tool) -> str | None:
        """Why the tool is not permitted, with the setting; None if it is permitted."""
        if not self._layers:
            return None
        names = _names_of(tool)
        for layer in self._layers:
            refusal = layer.refusal(names)
            if refusal is not None:
                return f"{tool.name} is not permitted: {refusal}"
        return None

    def denial(self, tool: Tool) -> str | None:
        """Why a `deny` list refuses the tool; None if none does, whatever `allow` says."""
        names = _names_of(tool)
        for layer in self._layers:
            denial = layer.denial(names)
            if denial is not None:
                return f"{tool.name} is not permitted: {denial}"
        return None

    def may_permit_server(self, owner: str, *, other_names: Collection[str] = ()) -> bool:
        """Whether the policy may permit a tool of this MCP server, whose tools are unknown.

        A name in `allow` is that of the tool in `other_names`, if there is one.
        """
        folded = fold_tool_name(owner)
        others = frozenset(map(fold_tool_name, other_names))
        return not any(layer.rules_out_server(folded, others) for layer in self._layers)


def effective_tools(tools: Iterable[Tool], policy: ToolPolicy) -> list[Tool]:
    """The tools that the policy permits, in order."""
    return [tool for tool in tools if policy.permits(tool)]


def policy_for(tools: ToolsConfig, context: RunContext) -> ToolPolicy:
    """The policy of a run; a sandboxed run has the rules for the sandbox in addition."""
    return ToolPolicy((*tools.rules, *(tools.sandbox_rules if context.is_sandboxed else ())))


class _Layer:
    """The compiled rules of one section."""

    def __init__(self, path: str, rules: ToolRules) -> None:
        self._path = path
        self._deny = _Patterns((pattern, "any") for pattern in rules.deny)
        self._allow = None
        if rules.allow is not None:
            allow = (*rules.allow, *rules.also_allow)
            self._allow = _Patterns((pattern, _kind_of(pattern)) for pattern in allow)
        self.has_rules = rules.allow is not None or bool(rules.deny)

    def refusal(self, names: _Names) -> str | None:
        denial = self.denial(names)
        if denial is not None:
            return denial
        if self._allow is not None and self._allow.find_match(names) is None:
            return f"`{self._path}.allow` does not name it"
        return None

    def denial(self, names: _Names) -> str | None:
        denied_by = self._deny.find_match(names)
        if denied_by is None:
            return None
        return f"`{self._path}.deny` has {json.dumps(denied_by, ensure_ascii=False)}"

    def rules_out_server(self, owner: str, other_names: Collection[str]) -> bool:
        """Whether the rules exclude all tools of an MCP server, whatever their names are."""
        if self._deny.find_match(_names("mcp", owner, _NO_NAME)) is not None:
            return True
        return self._allow is not None and not self._allow.may_match_server(owner, other_names)


class _Patterns:
    """A set of patterns; those without wildcards are in a dict, because tools may be many."""

    def __init__(self, patterns: Iterable[tuple[str, _PatternKind]]) -> None:
        self._exact: dict[tuple[_PatternKind, str], str] = {}
        self._globs: list[tuple[_PatternKind, str, str]] = []
        for pattern, kind in patterns:
            folded = fold_tool_name(pattern)
            if "*" in folded or "?" in folded:
                self._globs.append((kind, folded, pattern))
            else:
                self._exact[kind, folded] = pattern

    def may_match_server(self, owner: str, other_names: Collection[str]) -> bool:
        """Whether a pattern may match a tool of this MCP server."""
        globs: list[tuple[_PatternKind, str]] = [(kind, text) for kind, text, _ in self._globs]
        return any(
            folded == "*" or _may_match_server(kind, folded, owner, other_names)
            for kind, folded in (*self._exact, *globs)
        )

    def find_match(self, names: _Names) -> str | None:
        """The pattern that matches one of the names."""
        for kind, texts in names.items():
            for text in texts:
                if (kind, text) in self._exact:
                    return self._exact[kind, text]
        for kind, folded, pattern in self._globs:
            matches = _matches_id if kind == "id" else _matches
            if folded == "*" or any(matches(folded, text) for text in names[kind]):
                return pattern
        return None


def _may_match_server(
    kind: _PatternKind, pattern: str, owner: str, other_names: Collection[str]
) -> bool:
    match kind:
        case "any" | "name or owner":
            return pattern not in other_names or _matches(pattern, owner)
        case "group":
            return any(_matches(pattern, group) for group in _MCP_GROUPS)
        case "id":
            source, of, *names = pattern.split(":", 2)
            # A pattern of two parts, such as `mcp:*` or `*:read_file`, is for any owner.
            return _matches(source, "mcp") and (not names or _matches(of, owner))
        case "core":
            return False


def _kind_of(pattern: str) -> _PatternKind:
    """The kind of a pattern in `allow`."""
    # Providers choose the names of their tools. So a tool with the name of a group or an id must
    # not match a pattern for the group or the id.
    folded = fold_tool_name(pattern)
    start, *rest = folded.split(":")
    if (start == "group" and rest) or folded == _MCP_PLUGIN:
        return "group"
    is_glob = "*" in start or "?" in start
    if rest and (start in SOURCES or is_glob):
        return "id"
    return "core" if folded == CORE_OWNER else "name or owner"


def _names_of(tool: Tool) -> _Names:
    return _names(tool.source, fold_tool_name(tool.owner), fold_tool_name(tool.name))


def _names(source: ToolSource, owner: str, name: str) -> _Names:
    tool_id = f"{source}:{owner}:{name}"
    is_core = source == "openclaw" and owner == CORE_OWNER
    groups = list(_MCP_GROUPS) if source == "mcp" else [f"group:{source}"]
    if is_core:
        groups += [group for group, members in CORE_GROUPS.items() if name in members]
    # Clients choose the owner of their tools; all other owners come from the configuration.
    owners = [] if source == "client" else [owner]
    return {
        "any": (name, tool_id, owner, *groups),
        "group": tuple(groups),
        "id": (tool_id,),
        "core": (CORE_OWNER,) if is_core else (),
        "name or owner": (name, *owners),
    }


def _matches_id(pattern: str, tool_id: str) -> bool:
    """Match source, owner and name separately, so that a colon in a name has no effect."""
    pattern_parts, id_parts = pattern.split(":", 2), tool_id.split(":", 2)
    if len(pattern_parts) < len(id_parts):
        # Patterns such as `mcp:*` and `*:read_file`, which match any owner.
        return _matches(pattern, tool_id)
    return all(_matches(part, text) for part, text in zip(pattern_parts, id_parts, strict=True))


def _matches(pattern: str, text: str) -> bool:
    """Match a glob; it backtracks only to the last `*`, so that no pattern is slow."""
    at, here, star, mark = 0, 0, -1, 0
    while here < len(text):
        # A name may contain a literal star, so check for the wildcard first.
        if at < len(pattern) and pattern[at] == "*":
            star, mark = at, here
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", text[here]):
            at += 1
            here += 1
        elif star >= 0:
            mark += 1
            at, here = star + 1, mark
        else:
            return False
    return not pattern[at:].strip("*")


@dataclass(frozen=True, kw_only=True, slots=True)
class CallSite:
    """The origin of a call: its id, its parent, and the signal that aborts it."""

    call_id: str
    parent_id: str = ""
    abort: AbortSignal = field(default_factory=AbortSignal)
    pause_for_approval: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while the call waits for an approval, to pause the caller's timeout."""
    pause_for_client: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while the tool waits for a client, to pause the caller's timeout."""
    before_execute: Callable[[str], Awaitable[None]] | None = None
    """Called with the id of the tool just before it runs. If it raises StorageError, the tool does
    not run."""
    is_continued: bool = False
    """Whether another process has begun this call, so that hooks and people have permitted it."""
    parent_span: Span | None = None
    """The parent of the call's span; by default the current span."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallSubject:
    """The called tool, as hooks, approvals and the trajectory see it."""

    tool_id: str
    tool_name: str
    source: str = "openclaw"
    owner: str = CORE_OWNER
    needs_approval: str = ""
    kind: ToolKind = "tool"
    input_kind: Callable[[JsonObject], str | None] = lambda _given: None
    """The kind of an input, such as the language of a program. Hooks may change the input."""


class _Identity(TypedDict):
    """The common fields of all hook events of a call."""

    tool_id: str
    tool_name: str
    tool_kind: ToolKind
    tool_input_kind: str | None
    input: JsonObject
    call_id: str
    parent_id: str
    context: RunContext


_ValueT = TypeVar("_ValueT")
# Returns the value for the caller, and the JSON that hooks and the record see.
_Perform: TypeAlias = Callable[[JsonObject], Awaitable[tuple[_ValueT, JsonValue]]]


class ToolExecutor:
    """Executes the calls of one run."""

    def __init__(
        self,
        *,
        context: RunContext,
        policy: ToolPolicy,
        hooks: HookRunner,
        approvals: Approvals,
        recorder: TrajectoryRecorder,
        validators: InputValidators,
        on_result: Callable[[JsonValue], Awaitable[None]] | None = None,
    ) -> None:
        """`on_result` is given the result of each completed call of a tool, after all hooks."""
        self.context = context
        self.policy = policy
        self.recorder = recorder
        self._hooks = hooks
        self._approvals = approvals
        self._validators = validators
        self._on_result = on_result
        # The subjects of called tools by their ids, because a program calls the same few.
        self._subjects: dict[str, tuple[Tool, CallSubject]] = {}
        self._recorded: dict[str, tuple[CallSubject, tuple[JsonObject, int]]] = {}

    async def call(self, tool: Tool, given: object, *, site: CallSite) -> JsonValue:
        """Call a tool and return its value as JSON; raises ToolError."""
        call = self._tool_call(site)

        async def perform(checked: JsonObject) -> tuple[None, JsonValue]:
            return None, await convert_result(tool, await self._execute(tool, checked, call, site))

        _, value = await self._call_tool(tool, given, site, perform)
        return value

    async def call_directly(self, tool: Tool, given: object, *, site: CallSite) -> object:
        """Call a tool for the model itself; a direct-only tool may return any object.

        The abort signal cancels the call, because there is no cell that would do it.
        """
        call = self._tool_call(site)
        is_direct_only = tool.catalog_mode == "direct-only"

        async def perform(checked: JsonObject) -> tuple[object, JsonValue]:
            with site.abort.cancelling():
                returned = await self._execute(tool, checked, call, site)
                if is_direct_only:
                    return returned, {"type": type(returned).__name__}
                return None, await convert_result(tool, returned)
            raise ToolAbortedError(site.abort.reason, tool_id=tool.id)

        returned, value = await self._call_tool(tool, given, site, perform)
        return returned if is_direct_only else value

    async def control(
        self,
        subject: CallSubject,
        given: JsonObject,
        *,
        site: CallSite,
        perform: _Perform[_ValueT],
    ) -> _ValueT:
        """Call a control tool, such as `exec`, with hooks, approvals and a record.

        `perform` returns the value of the call and its JSON for hooks and the record. A control
        tool checks its own input, and policy applies to the tools behind it. Hooks can observe the
        result but not change it: they have already seen the results of the nested calls.
        """
        value, _ = await self._run_guarded(subject, given, site, _accept_input, perform)
        return value

    async def _call_tool(
        self, tool: Tool, given: object, site: CallSite, perform: _Perform[_ValueT]
    ) -> tuple[_ValueT, JsonValue]:
        subject = self._subject_of(tool)
        check = partial(self._validators.check, tool)
        refusal = self.policy.refusal(tool)
        value, result = await self._run_guarded(
            subject, given, site, check, perform, refusal=refusal
        )
        if self._on_result is not None:
            await self._on_result(result)
        return value, result

    def _subject_of(self, tool: Tool) -> CallSubject:
        found = self._subjects.get(tool.id)
        # Another tool of this id has replaced it when a server has listed its tools again.
        if found is None or found[0] is not tool:
            subject = CallSubject(
                tool_id=tool.id,
                tool_name=tool.name,
                source=tool.source,
                owner=tool.owner,
                needs_approval=tool.needs_approval,
            )
            found = self._subjects[tool.id] = (tool, subject)
        return found[1]

    def _recorded_subject(self, subject: CallSubject) -> tuple[JsonObject, int]:
        """The subject as it is recorded, redacted once for all calls."""
        found = self._recorded.get(subject.tool_id)
        if found is None or found[0] is not subject:
            data: JsonObject = {
                "toolId": subject.tool_id,
                "toolName": subject.tool_name,
                "source": subject.source,
                "owner": subject.owner,
                "toolKind": subject.kind,
            }
            found = self._recorded[subject.tool_id] = (subject, self.recorder.redact(data))
        return found[1]

    async def _run_guarded(
        self,
        subject: CallSubject,
        given: object,
        site: CallSite,
        check: Callable[[JsonObject], JsonObject],
        perform: _Perform[_ValueT],
        *,
        refusal: str | None = None,
    ) -> tuple[_ValueT, JsonValue]:
        started = time.monotonic()
        self.recorder.record(
            "call.started",
            call_id=site.call_id,
            parent_id=site.parent_id,
            data={"input": cast("JsonValue", given)},
            redacted_before=self._recorded_subject(subject),
        )
        checked: JsonObject = {}
        attributes = partial(_span_attributes, subject, site)
        with span("nacre.tool_call", attributes, parent=site.parent_span) as current:
            try:
                if refusal is not None:
                    raise ToolDeniedError(refusal, code="denied_by_policy", tool_id=subject.tool_id)
                checked = wanted = _object_in(given, subject)
                if not site.is_continued:
                    checked = await self._authorize(subject, wanted, site, check)
                if checked is not wanted and checked != wanted:
                    # A hook or a person changed it; the trajectory contains the actual input.
                    self._record("call.changed", site, {"input": checked})
                _refuse_if_aborted(subject, site)
                value, result = await perform(checked)
            except ToolError as error:
                current.fail(error.code)
                await self._finish_failed(subject, checked, site, _ms_since(started), error)
                raise
            except BaseException:
                current.fail("aborted")
                reason = site.abort.reason or "the call was cancelled"
                self._note_failure(site, _ms_since(started), reason, "aborted")
                raise
            result = await self._finish_completed(
                subject, checked, site, _ms_since(started), result
            )
            return value, result

    async def _execute(
        self, tool: Tool, checked: JsonObject, call: ToolCall, site: CallSite
    ) -> object:
        # The tool may have an effect; if the process is killed, the trajectory names the call.
        try:
            await self.recorder.wait_until_stored()
            if site.before_execute is not None:
                await site.before_execute(tool.id)
        except StorageError as error:
            message = f"the call was not made, because its start cannot be stored: {error}"
            raise ToolFailedError(message, code="tool_failed", tool_id=tool.id) from error
        return await _execute_tool(tool, checked, call)

    def _tool_call(self, site: CallSite) -> ToolCall:
        return ToolCall(
            id=site.call_id,
            parent_id=site.parent_id,
            context=self.context,
            abort=site.abort,
            update=lambda update: self._record("call.updated", site, {"update": update}),
            pause_timeout=site.pause_for_client,
            idempotency_key=f"{self.context.run_id}:{site.call_id}",
        )

    # Before the call.

    async def _authorize(
        self,
        subject: CallSubject,
        given: JsonObject,
        site: CallSite,
        check: Callable[[JsonObject], JsonObject],
    ) -> JsonObject:
        """The input of the call, after hooks, the input check and, if required, an approval."""
        _refuse_if_aborted(subject, site)
        if not self._hooks.has_hooks("before_tool_call") and not subject.needs_approval:
            return check(given)
        event = BeforeToolCall(**self._identity(subject, site, given))
        decision = await self._hooks.before_tool_call(event)
        if decision.block is not None:
            raise ToolDeniedError(decision.block, code="blocked_by_hook", tool_id=subject.tool_id)
        # Checked before the approval, and again after it, because it may have been edited.
        checked = check(decision.input)
        if decision.approval is None and not subject.needs_approval:
            return checked
        reason = "; ".join(filter(None, (subject.needs_approval, decision.approval)))
        approved = await self._ask_approval(subject, checked, site, reason=reason, check=check)
        return check(approved)

    async def _ask_approval(
        self,
        subject: CallSubject,
        checked: JsonObject,
        site: CallSite,
        *,
        reason: str,
        check: Callable[[JsonObject], JsonObject],
    ) -> JsonObject:
        self._record("approval.requested", site, {"reason": reason})
        with site.pause_for_approval(), site.abort.cancelling() as scope:
            answer: Granted | Refused = await self._approvals.request(
                tool_id=subject.tool_id,
                tool_name=subject.tool_name,
                input=checked,
                reason=reason,
                context=self.context,
                call_id=site.call_id,
                parent_id=site.parent_id,
                check=check,
            )
        if scope.cancelled_caught:
            raise _abort_error(subject, site)
        if isinstance(answer, Refused):
            self._record("approval.answered", site, {"answer": "deny", "reason": answer.reason})
            raise ToolDeniedError(answer.reason, code=answer.code, tool_id=subject.tool_id)
        how = "always" if answer.is_remembered else "edited" if answer.is_edited else "once"
        self._record("approval.answered", site, {"answer": "allow", "how": how})
        return answer.input

    # After the call.

    async def _finish_completed(
        self,
        subject: CallSubject,
        checked: JsonObject,
        site: CallSite,
        duration_ms: float,
        result: JsonValue,
    ) -> JsonValue:
        """Record the end of the call; return the result after the changes of hooks."""
        try:
            if self._hooks.has_hooks("after_tool_call"):
                # A copy, because the tool may still use the object that it returned.
                result = await copy_off_loop(result)
                result = await self._hooks.after_tool_call(
                    AfterToolCall(
                        outcome="completed",
                        result=result,
                        duration_ms=duration_ms,
                        **self._identity(subject, site, checked),
                    )
                )
            return result
        finally:
            # Recorded even if the run is aborted in a hook, because the tool has finished.
            ended: JsonObject = {"outcome": "completed", "durationMs": duration_ms}
            if site.abort.is_aborted:
                ended["abortReason"] = site.abort.reason
            self._record("call.ended", site, {**ended, "result": result})

    async def _finish_failed(
        self,
        subject: CallSubject,
        checked: JsonObject,
        site: CallSite,
        duration_ms: float,
        error: ToolError,
    ) -> None:
        self._note_failure(site, duration_ms, error.message, error.code)
        if self._hooks.has_hooks("after_tool_call"):
            await self._hooks.after_tool_call(
                AfterToolCall(
                    outcome="failed",
                    error=error.message,
                    error_code=error.code,
                    duration_ms=duration_ms,
                    **self._identity(subject, site, checked),
                )
            )

    def _note_failure(self, site: CallSite, duration_ms: float, error: str, code: str) -> None:
        data: JsonObject = {
            "outcome": "failed",
            "error": error,
            "errorCode": code,
            "durationMs": duration_ms,
        }
        self._record("call.ended", site, data)

    def _identity(self, subject: CallSubject, site: CallSite, given: JsonObject) -> _Identity:
        return {
            "tool_id": subject.tool_id,
            "tool_name": subject.tool_name,
            "tool_kind": subject.kind,
            "tool_input_kind": subject.input_kind(given),
            "input": given,
            "call_id": site.call_id,
            "parent_id": site.parent_id,
            "context": self.context,
        }

    def _record(self, kind: EventKind, site: CallSite, data: JsonObject) -> None:
        self.recorder.record(kind, call_id=site.call_id, parent_id=site.parent_id, data=data)


async def _execute_tool(tool: Tool, checked: JsonObject, call: ToolCall) -> object:
    """Execute the tool; any exception is logged and raised as ToolError."""
    task = asyncio.current_task()
    try:
        # A copy, because hooks and the trajectory get the same input after the tool changed it.
        returned: object = tool.execute(await copy_off_loop(checked), call)
        # A synchronous function is allowed too.
        if isinstance(returned, CoroutineType) or inspect.isawaitable(returned):
            return await cast("Awaitable[object]", returned)
        return returned
    except ToolError:
        raise
    except BaseException as error:
        if passes_through(error, caller=task):
            raise
        if call.abort.is_aborted:
            raise ToolAbortedError(call.abort.reason, tool_id=tool.id) from error
        message = format_log_line(describe_error(error))
        logger.info("tool %s failed: %s: %s", tool.id, type(error).__name__, message)
        logger.debug("the traceback of tool %s", tool.id, exc_info=True)
        raise ToolFailedError(
            describe_error(error),
            code="tool_failed",
            tool_id=tool.id,
            details={"errorType": type(error).__name__},
        ) from error


def _refuse_if_aborted(subject: CallSubject, site: CallSite) -> None:
    if site.abort.is_aborted:
        raise _abort_error(subject, site)


def _abort_error(subject: CallSubject, site: CallSite) -> ToolAbortedError:
    return ToolAbortedError(site.abort.reason, tool_id=subject.tool_id)


def _object_in(given: object, subject: CallSubject) -> JsonObject:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ToolInputError(
            f"the input is {describe_json_type(given)}; {subject.tool_name} takes one object",
            tool_id=subject.tool_id,
        )
    return cast("JsonObject", given)


def _accept_input(given: JsonObject) -> JsonObject:
    return given


def _span_attributes(subject: CallSubject, site: CallSite) -> dict[str, str]:
    return {
        "nacre.tool.id": subject.tool_id,
        "nacre.tool.kind": subject.kind,
        "nacre.call.id": site.call_id,
        "nacre.call.parent_id": site.parent_id,
    }


def _ms_since(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 3)
