"""Asks the hooks around model calls, results, answers and the end of a turn."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from nacre.hooks.answers import changed_content_from, revision_from
from nacre.hooks.asking import FailedHookError, HookCaller
from nacre.json_types import copy_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.hooks.events import (
        AfterCompaction,
        AgentEnd,
        BeforeAgentFinalize,
        BeforeCompaction,
        HookEvent,
        LlmInput,
        LlmOutput,
        ToolResultPersist,
    )


class TurnHooks(HookCaller):
    """Asks in order. Those that only observe change nothing, whatever they return or raise."""

    async def llm_input(self, event: LlmInput) -> None:
        # A copy for each: one that writes to it must not tell the next one tales.
        await self._notify("llm_input", lambda: replace(event, messages=copy_json(event.messages)))

    async def llm_output(self, event: LlmOutput) -> None:
        await self._notify("llm_output", lambda: event)

    async def agent_end(self, event: AgentEnd) -> None:
        await self._notify("agent_end", lambda: event)

    async def before_compaction(self, event: BeforeCompaction) -> None:
        await self._notify("before_compaction", lambda: event)

    async def after_compaction(self, event: AfterCompaction) -> None:
        await self._notify("after_compaction", lambda: event)

    async def tool_result_persist(self, event: ToolResultPersist) -> str:
        """The text to keep. Where a hook fails the result is withheld: it may be the one that takes
        secrets out."""
        for hook in self._hooks.for_event("tool_result_persist"):
            try:
                change = await self._ask(hook, lambda event=event: event, changed_content_from)
            except FailedHookError as error:
                return f"[the result is withheld: the hook {hook.name} failed: {error}]"
            if change is not None:
                event = replace(event, content=change.content)
        return event.content

    async def before_agent_finalize(self, event: BeforeAgentFinalize) -> str | None:
        """Why the model has to work on, from the first hook that says so; None if the answer
        stands, as it does where a hook fails."""
        for hook in self._hooks.for_event("before_agent_finalize"):
            with suppress(FailedHookError):
                revision = await self._ask(hook, lambda: event, revision_from)
                if revision is not None:
                    return revision.reason
        return None

    async def _notify(self, name: HookEvent, make_event: Callable[[], object]) -> None:
        for hook in self._hooks.for_event(name):
            with suppress(FailedHookError):
                await self._ask(hook, make_event, lambda _ignored: None)
