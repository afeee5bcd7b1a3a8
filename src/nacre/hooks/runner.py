"""The registered hooks of each event, and the runner that calls them and parses their answers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

import anyio

from nacre.errors import HookError
from nacre.foreign_calls import call_in_thread, describe_error, passes_through
from nacre.hooks.events import (
    HOOK_EVENTS,
    AddToPrompt,
    AskApproval,
    Block,
    ChangeContent,
    ChangeInput,
    ChangeResult,
    HookEvent,
    Revise,
)
from nacre.json_types import NotJsonError, copy_json, decode_json, encode_json
from nacre.large_json import copy_off_loop, is_plain, is_small, run_in_json_thread
from nacre.lazy_dataclasses import dataclass, replace
from nacre.telemetry import Redaction

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from nacre.hooks.events import (
        AfterCompaction,
        AfterToolCall,
        AgentEnd,
        BeforeAgentFinalize,
        BeforeCompaction,
        BeforePromptBuild,
        BeforeToolCall,
        LlmInput,
        LlmOutput,
        ToolResultPersist,
    )
    from nacre.json_types import JsonObject, JsonValue

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")
_MakeEvent: TypeAlias = "Callable[[], Awaitable[object]]"

# Separate threads, so that tools which occupy all shared threads cannot make hooks time out.
_MAX_THREADS: Final = 16
_ERROR_TEXT: Final = Redaction(max_text_characters=300)

HookFunction: TypeAlias = Callable[..., object]
"""A function, async or not, that takes the event and returns an answer."""

_EventAndFunction: TypeAlias = tuple[HookEvent, object]
_Function = TypeVar("_Function", bound=HookFunction)

_MARK: Final = "nacre_hook_event"
_ALLOWED: Final = (
    "allowed: an object with a method named "
    f"{' or '.join(HOOK_EVENTS)}, a function of that name or marked with @hook(...), "
    'a pair ("before_tool_call", function), a mapping {"before_tool_call": function}'
)


def hook(event: HookEvent) -> Callable[[_Function], _Function]:
    """Mark a function as a hook for an event."""
    known = _parse_event(event)

    def mark(function: _Function) -> _Function:
        setattr(function, _MARK, known)
        return function

    return mark


@dataclass(frozen=True, kw_only=True, slots=True)
class RegisteredHook:
    """One function for one event."""

    event: HookEvent
    function: HookFunction
    owner: str
    """The id of the plugin that registered it; empty for a hook of the application."""
    priority: int
    is_async: bool

    @property
    def name(self) -> str:
        """The name of the function and its owner, for messages."""
        function: object = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return f"{function} of {self.owner}" if self.owner else str(function)


class Hooks:
    """Registered hooks, highest priority first, then in the order they were added.

    A synchronous function runs in a worker thread, so it may block. Simultaneous calls may run it
    in several threads at once.
    """

    def __init__(self, hooks: Iterable[object] = ()) -> None:
        self._by_event: dict[HookEvent, tuple[RegisteredHook, ...]] = dict.fromkeys(HOOK_EVENTS, ())
        for item in hooks:
            self.add(item)

    def add(
        self,
        hook: object,
        *,
        event: HookEvent | None = None,
        owner: str = "",
        priority: int = 0,
    ) -> None:
        """Register a hook: an object, a function, a pair or a mapping; raises HookError.

        If a part of it is invalid, nothing is registered.
        """
        functions: Sequence[_EventAndFunction] = (
            _find_functions(hook) if event is None else [(_parse_event(event), hook)]
        )
        registered = [
            _make_registered(found, function, owner=owner, priority=priority)
            for found, function in functions
        ]
        for item in registered:
            # Sorting keeps the order of equal priorities.
            self._by_event[item.event] = tuple(
                sorted((*self._by_event[item.event], item), key=lambda one: -one.priority)
            )

    def remove_owner(self, owner: str) -> None:
        """Remove all hooks of a plugin; events that are being processed still use them."""
        for event, hooks in self._by_event.items():
            self._by_event[event] = tuple(item for item in hooks if item.owner != owner)

    def for_event(self, event: HookEvent) -> tuple[RegisteredHook, ...]:
        return self._by_event[event]


def _make_registered(
    event: HookEvent, function: object, *, owner: str, priority: int
) -> RegisteredHook:
    if not callable(function) or isinstance(function, type):
        kind = "class" if isinstance(function, type) else type(function).__name__
        raise HookError(f"the hook for {event} is a {kind}; it must be a function")
    return RegisteredHook(
        event=event,
        function=function,
        owner=owner,
        priority=priority,
        is_async=_is_async(function),
    )


def _find_functions(hook: object) -> Sequence[_EventAndFunction]:
    found: Sequence[_EventAndFunction] = ()
    if isinstance(hook, Mapping):
        members = cast("Mapping[object, object]", hook)
        found = [(_parse_event(event), function) for event, function in members.items()]
    elif isinstance(hook, tuple):
        pair = cast("tuple[object, ...]", hook)
        found = ((_parse_event(pair[0]), pair[1]),) if len(pair) == 2 else ()
    elif isinstance(hook, type):
        raise HookError(f"{hook.__qualname__} is a class; pass an instance of it; {_ALLOWED}")
    else:
        found = _find_methods(hook)
    if not found:
        raise HookError(f"{_describe_hook(cast('object', hook))} is not a hook; {_ALLOWED}")
    return found


def _find_methods(hook: object) -> Sequence[_EventAndFunction]:
    named: object = getattr(hook, _MARK, None) or getattr(hook, "__name__", None)
    if callable(hook) and named in HOOK_EVENTS:
        return ((_parse_event(named), hook),)
    return [(event, getattr(hook, event)) for event in HOOK_EVENTS if hasattr(hook, event)]


def _parse_event(event: object) -> HookEvent:
    for known in HOOK_EVENTS:
        if event == known:
            return known
    raise HookError(f"there is no hook event {event!r}; known: {', '.join(HOOK_EVENTS)}")


def _is_async(function: HookFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (the method itself is needed)
    )


def _describe_hook(hook: object) -> str:
    name: object = getattr(hook, "__qualname__", None)
    return f"the function {name}" if name and callable(hook) else f"a {type(hook).__qualname__}"


class FailedHookError(Exception):
    """A hook failed or returned an invalid answer; the message is for the caller of the tool."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The combined decision of all `before_tool_call` hooks."""

    input: JsonObject
    """The input of the call; the given one if no hook changed it."""
    block: str | None = None
    """Why the call must not be made; None if it may."""
    approval: str | None = None
    """Why the call needs an approval, perhaps empty; None if it needs none."""
    is_changed: bool = False
    blocked_by: str = ""
    """The name of the hook that blocked."""


class HookRunner:
    """Calls the hooks of an event in their order.

    Each hook has at most `timeout_seconds`; a blocking function that takes longer is abandoned in
    its thread. For events that hooks can only observe, return values and exceptions are ignored.
    """

    def __init__(self, hooks: Hooks, *, timeout_seconds: float = 30.0) -> None:
        self._hooks = hooks
        self._timeout_seconds = timeout_seconds
        self._threads = anyio.CapacityLimiter(_MAX_THREADS)

    def has_hooks(self, event: HookEvent) -> bool:
        """Whether the event has hooks; if not, there is no need to create the event."""
        return bool(self._hooks.for_event(event))

    # Hooks around a tool call.

    async def before_tool_call(self, event: BeforeToolCall) -> Decision:
        """Call the hooks until one blocks. A hook that fails blocks the call."""
        given: JsonObject = event.input
        approvals: list[str] = []
        for hook in self._hooks.for_event("before_tool_call"):
            try:
                answer = await self._run_hook(
                    hook, partial(_before_event, event, given), before_answer_from
                )
            except FailedHookError as error:
                reason = f"the hook {hook.name} failed: {error}; the call was not made"
                return _make_block(event, given, reason, hook)
            if answer.block is not None:
                return _make_block(event, given, answer.block, hook)
            if answer.input is not None:
                given = answer.input
            if answer.approval is not None:
                approvals.append(answer.approval)
        return Decision(
            input=given,
            approval="; ".join(filter(None, approvals)) if approvals else None,
            is_changed=given is not event.input,
        )

    async def after_tool_call(self, event: AfterToolCall) -> JsonValue:
        """The result after the changes of all hooks; a hook that fails changes nothing."""
        result = event.result
        for hook in self._hooks.for_event("after_tool_call"):
            try:
                change = await self._run_hook(
                    hook, partial(_after_event, event, result), changed_result_from
                )
            except FailedHookError:
                continue
            if change is not None and event.outcome == "failed":
                logger.warning("the hook %s changed the result of a failed call", hook.name)
            elif change is not None:
                result = change.result
        return result

    # Hooks around model calls, results, answers and the end of a turn.

    async def before_prompt_build(self, event: BeforePromptBuild) -> AddToPrompt:
        """The additions of all hooks, each on lines of its own; a hook that fails adds nothing."""
        found: list[AddToPrompt] = []
        for hook in self._hooks.for_event("before_prompt_build"):
            with suppress(FailedHookError):
                answer = await self._run_hook(hook, partial(_same_event, event), additions_from)
                if answer is not None:
                    found.append(answer)
        return AddToPrompt(
            prepend_context=_join_texts(it.prepend_context for it in found),
            append_context=_join_texts(it.append_context for it in found),
            prepend_system_context=_join_texts(it.prepend_system_context for it in found),
            append_system_context=_join_texts(it.append_system_context for it in found),
        )

    async def llm_input(self, event: LlmInput) -> None:
        await self._notify("llm_input", partial(_llm_input_event, event))

    async def llm_output(self, event: LlmOutput) -> None:
        await self._notify("llm_output", partial(_same_event, event))

    async def agent_end(self, event: AgentEnd) -> None:
        await self._notify("agent_end", partial(_end_event, event))

    async def before_compaction(self, event: BeforeCompaction) -> None:
        await self._notify("before_compaction", partial(_same_event, event))

    async def after_compaction(self, event: AfterCompaction) -> None:
        await self._notify("after_compaction", partial(_same_event, event))

    async def tool_result_persist(self, event: ToolResultPersist) -> str:
        """The text to store.

        If a hook fails, a note is stored instead of the result, because the hook may be the one
        that removes secrets.
        """
        for hook in self._hooks.for_event("tool_result_persist"):
            try:
                change = await self._run_hook(
                    hook, partial(_same_event, event), changed_content_from
                )
            except FailedHookError as error:
                return f"[the result is withheld: the hook {hook.name} failed: {error}]"
            if change is not None:
                event = replace(event, content=change.content)
        return event.content

    async def before_agent_finalize(self, event: BeforeAgentFinalize) -> str | None:
        """The reason of the first hook that rejects the answer, or None.

        A hook that fails does not reject the answer.
        """
        for hook in self._hooks.for_event("before_agent_finalize"):
            with suppress(FailedHookError):
                revision = await self._run_hook(hook, partial(_same_event, event), revision_from)
                if revision is not None:
                    return revision.reason
        return None

    # One hook.

    async def _notify(self, name: HookEvent, make_event: _MakeEvent) -> None:
        for hook in self._hooks.for_event(name):
            with suppress(FailedHookError):
                await self._run_hook(hook, make_event, lambda _ignored: None)

    async def _run_hook(
        self,
        hook: RegisteredHook,
        make_event: _MakeEvent,
        read: Callable[[object], _Answer],
    ) -> _Answer:
        """The answer of one hook; logs the traceback and raises FailedHookError if it fails."""
        task = asyncio.current_task()
        try:
            with anyio.move_on_after(self._timeout_seconds) as scope:
                event = await make_event()
                if hook.is_async:
                    returned = await cast("Awaitable[object]", hook.function(event))
                else:
                    returned = await self._call_in_thread(hook, event)
                answer = (
                    read(returned)
                    if is_small(returned)
                    else await run_in_json_thread(read, returned)
                )
                # A hook that ignores its cancellation is still too late.
                if not scope.cancel_called:
                    return answer
        except HookError as error:
            logger.exception("the hook %s for %s failed", hook.name, hook.event)
            raise FailedHookError(str(error)) from error
        except BaseException as error:
            if passes_through(error, caller=task):
                raise
            logger.exception("the hook %s for %s failed", hook.name, hook.event)
            kind, said = type(error).__name__, describe_error(error)
            message = said if said == kind else f"{kind}: {said}"
            raise FailedHookError(_ERROR_TEXT.text(message)) from error
        logger.error("the hook %s for %s timed out", hook.name, hook.event)
        raise FailedHookError(f"it took longer than {self._timeout_seconds:g} seconds")

    async def _call_in_thread(self, hook: RegisteredHook, event: object) -> object:
        returned = await call_in_thread(partial(hook.function, event), limiter=self._threads)
        # A synchronous function may return the awaitable of an async one.
        return await returned if inspect.isawaitable(returned) else returned


def _make_block(
    event: BeforeToolCall, given: JsonObject, reason: str, hook: RegisteredHook
) -> Decision:
    return Decision(
        input=given, block=reason, is_changed=given is not event.input, blocked_by=hook.name
    )


def _join_texts(texts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, map(str.strip, texts)))


# Hooks may change their event, so each gets a copy.


async def _same_event(event: object) -> object:
    return event


async def _llm_input_event(event: LlmInput) -> LlmInput:
    return replace(event, messages=await copy_off_loop(event.messages))


async def _end_event(event: AgentEnd) -> AgentEnd:
    return replace(event, messages=await copy_off_loop(event.messages))


async def _before_event(event: BeforeToolCall, given: JsonObject) -> BeforeToolCall:
    return replace(event, input=await copy_off_loop(given))


async def _after_event(event: AfterToolCall, result: JsonValue) -> AfterToolCall:
    copy = await copy_off_loop(event.input)
    return replace(event, input=copy, result=await copy_off_loop(result))


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeAnswer:
    """The answer of one `before_tool_call` hook; None means no change, no block, no approval."""

    input: JsonObject | None = None
    block: str | None = None
    approval: str | None = None


_NOTHING: Final = BeforeAnswer()
_BEFORE_KEYS: Final = (
    "input",
    "params",
    "block",
    "reason",
    "blockReason",
    "approval",
    "requireApproval",
)
_ADDITIONS: Final = {
    "prependContext": "prepend_context",
    "appendContext": "append_context",
    "prependSystemContext": "prepend_system_context",
    "appendSystemContext": "append_system_context",
}
_NO_REASON: Final = "no reason given"
_MAX_SHOWN_CHARACTERS: Final = 60


def before_answer_from(returned: object) -> BeforeAnswer:
    """Parse the return value of a `before_tool_call` hook; raises HookError."""
    match returned:
        case None:
            return _NOTHING
        case Block(reason=reason):
            return BeforeAnswer(block=_check_text(reason, "the reason of Block") or _NO_REASON)
        case ChangeInput(input=changed):
            return BeforeAnswer(input=_json_object(changed, "the input of ChangeInput"))
        case AskApproval(reason=reason):
            return BeforeAnswer(approval=_check_text(reason, "the reason of AskApproval"))
        case Mapping():
            return _before_answer_from_mapping(cast("Mapping[object, object]", returned))
        case _:
            raise HookError(
                f"it returned {_format(returned)}; allowed: None, ChangeInput, Block, AskApproval, "
                f"or a mapping with {', '.join(_BEFORE_KEYS)}"
            )


def changed_result_from(returned: object) -> ChangeResult | None:
    """Parse the return value of an `after_tool_call` hook; raises HookError."""
    match returned:
        case None:
            return None
        case ChangeResult(result=result):
            return ChangeResult(_json(result, "the result of ChangeResult"))
        case Mapping():
            members = cast("Mapping[object, object]", returned)
            _refuse_unknown_keys(members, ("result",))
            return ChangeResult(_json(members["result"], "`result`")) if members else None
        case _:
            raise HookError(
                f"it returned {_format(returned)}; "
                'allowed: None, ChangeResult, or {"result": ...} to change the result'
            )


def changed_content_from(returned: object) -> ChangeContent | None:
    """Parse the return value of a `tool_result_persist` hook; raises HookError."""
    match returned:
        case None:
            return None
        case ChangeContent(content=content):
            return ChangeContent(_check_text(content, "the content of ChangeContent"))
        case Mapping():
            members = cast("Mapping[object, object]", returned)
            _refuse_unknown_keys(members, ("content",))
            return ChangeContent(_check_text(members["content"], "`content`")) if members else None
        case _:
            raise HookError(
                f"it returned {_format(returned)}; "
                'allowed: None, ChangeContent, or {"content": "..."} to change the stored text'
            )


def additions_from(returned: object) -> AddToPrompt | None:
    """Parse the return value of a `before_prompt_build` hook; raises HookError."""
    match returned:
        case None:
            return None
        case AddToPrompt():
            for name in _ADDITIONS.values():
                _check_text(getattr(returned, name), f"`{name}`")
            return returned
        case Mapping():
            members = cast("Mapping[object, object]", returned)
            _refuse_unknown_keys(members, tuple(_ADDITIONS))
            return AddToPrompt(
                **{
                    name: _check_text(members[key], f"`{key}`")
                    for key, name in _ADDITIONS.items()
                    if members.get(key) is not None
                }
            )
        case _:
            raise HookError(
                f"it returned {_format(returned)}; "
                f"allowed: None, AddToPrompt, or a mapping with {', '.join(_ADDITIONS)}"
            )


def revision_from(returned: object) -> Revise | None:
    """Parse the return value of a `before_agent_finalize` hook; raises HookError."""
    match returned:
        case None:
            return None
        case Revise(reason=reason):
            return Revise(_check_text(reason, "the reason of Revise") or _NO_REASON)
        case Mapping():
            return _revision_from_mapping(cast("Mapping[object, object]", returned))
        case _:
            raise HookError(
                f"it returned {_format(returned)}; allowed: None, Revise, or "
                '{"action": "revise", "reason": "..."}'
            )


def _revision_from_mapping(members: Mapping[object, object]) -> Revise | None:
    _refuse_unknown_keys(members, ("action", "reason"))
    action = members.get("action", "finalize")
    if action not in ("revise", "finalize"):
        raise HookError(f"it returned `action` as {_format(action)}; allowed: revise and finalize")
    if action == "finalize":
        return None
    return Revise(_check_text(members.get("reason", ""), "`reason`") or _NO_REASON)


def _before_answer_from_mapping(members: Mapping[object, object]) -> BeforeAnswer:
    _refuse_unknown_keys(members, _BEFORE_KEYS)
    return BeforeAnswer(
        input=_parse_input(members), block=_parse_block(members), approval=_parse_approval(members)
    )


def _parse_input(members: Mapping[object, object]) -> JsonObject | None:
    inputs = [
        _json_object(members[key], f"`{key}`")
        for key in ("input", "params")
        if members.get(key) is not None
    ]
    # Compared as JSON, because 1 equals True in Python.
    if len(inputs) == 2 and encode_json(inputs[0]) != encode_json(inputs[1]):
        raise HookError("it returned `input` and `params` that differ; return one of them")
    return inputs[0] if inputs else None


def _parse_block(members: Mapping[object, object]) -> str | None:
    is_blocked = members.get("block", False)
    if not isinstance(is_blocked, bool):
        raise HookError(f"it returned `block` as {_format(is_blocked)}; allowed: true and false")
    reasons = [
        _check_text(members[key], f"`{key}`")
        for key in ("reason", "blockReason")
        if members.get(key) is not None
    ]
    if reasons and "block" not in members:
        # The hook may have forgotten `block`, so do not let the call pass.
        raise HookError("it returned a reason without `block`")
    return (next(filter(None, reasons), _NO_REASON)) if is_blocked else None


def _parse_approval(members: Mapping[object, object]) -> str | None:
    reasons: list[str] = []
    if members.get("approval") is not None:
        reasons.append(_check_text(members["approval"], "`approval`"))
    required = members.get("requireApproval")
    if isinstance(required, Mapping):
        reasons.append(_find_approval_reason(cast("Mapping[object, object]", required)))
    elif required is True:
        reasons.append("")
    elif required is not None and required is not False:
        raise HookError(
            f"it returned `requireApproval` as {_format(required)}; allowed: true, false and "
            "an object with `reason`, `description` or `title`"
        )
    return next(filter(None, reasons), "") if reasons else None


def _find_approval_reason(details: Mapping[object, object]) -> str:
    # Other members describe a dialog; they do not change the decision, so they are ignored.
    for key in ("reason", "description", "title"):
        if details.get(key) is not None:
            return _check_text(details[key], f"`requireApproval.{key}`")
    return ""


def _refuse_unknown_keys(members: Mapping[object, object], known: tuple[str, ...]) -> None:
    for key in members:
        if key not in known:
            raise HookError(
                f"it returned a mapping with the unknown key {_format(key)}; "
                f"known: {', '.join(known)}"
            )


def _check_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise HookError(f"it returned {what} as {_format(value)}, which is not text")
    return value


def _json_object(value: object, what: str) -> JsonObject:
    if not isinstance(value, Mapping):
        raise HookError(f"it returned {what} as {_format(value)}, which is not an object")
    return cast("JsonObject", _json(dict(cast("Mapping[object, object]", value)), what))


def _json(value: object, what: str) -> JsonValue:
    # A copy, because the hook may change its object after the call is approved.
    try:
        if not is_small(value) and is_plain(value):
            return cast("JsonValue", copy_json(value))
        return decode_json(encode_json(value))
    except NotJsonError as error:
        raise HookError(f"it returned {what}, which is not JSON: {error}") from error


def _format(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
