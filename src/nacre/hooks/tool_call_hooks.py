"""Asks the hooks around a tool call, one after the other; closed when one fails."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from nacre.hooks.answers import before_answer_from, changed_result_from
from nacre.hooks.asking import FailedHookError, HookCaller
from nacre.json_types import copy_json

if TYPE_CHECKING:
    from nacre.hooks.events import AfterToolCall, BeforeToolCall
    from nacre.hooks.registry import RegisteredHook
    from nacre.json_types import JsonObject, JsonValue

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What all `before_tool_call` hooks together want."""

    input: JsonObject
    """What to call with; the given one if no hook changed it."""
    block: str | None = None
    """Why the call must not be made; None if it may."""
    approval: str | None = None
    """Why a person has to agree, perhaps empty; None if nobody has to."""
    is_changed: bool = False
    blocked_by: str = ""
    """The name of the hook that blocked."""


class ToolCallHooks(HookCaller):
    """Asks the hooks around a tool call, in order."""

    async def before_tool_call(self, event: BeforeToolCall) -> Decision:
        """Ask until one blocks. One that fails blocks: nobody knows what it would have said."""
        given: JsonObject = event.input
        approvals: list[str] = []
        for hook in self._hooks.for_event("before_tool_call"):
            try:
                answer = await self._ask(
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
        """Tell everybody and return the result as they leave it; one that fails changes nothing."""
        result = event.result
        for hook in self._hooks.for_event("after_tool_call"):
            try:
                change = await self._ask(
                    hook, partial(_after_event, event, result), changed_result_from
                )
            except FailedHookError:
                continue
            if change is not None and event.outcome == "failed":
                logger.warning("the hook %s changed the result of a failed call", hook.name)
            elif change is not None:
                result = change.result
        return result


def _make_block(
    event: BeforeToolCall, given: JsonObject, reason: str, hook: RegisteredHook
) -> Decision:
    return Decision(
        input=given, block=reason, is_changed=given is not event.input, blocked_by=hook.name
    )


def _before_event(event: BeforeToolCall, given: JsonObject) -> BeforeToolCall:
    return replace(event, input=copy_json(given))


def _after_event(event: AfterToolCall, result: JsonValue) -> AfterToolCall:
    return replace(event, input=copy_json(event.input), result=copy_json(result))
