"""Hook events about turns of Codex, from what the adapter knows: its request and notifications.

They are observations. Codex builds the request to the model itself, and does not tell what it keeps
when it compacts a thread, so that no event says so.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import anyio

from nacre.hooks import AfterCompaction, BeforeCompaction, LlmInput, LlmOutput
from nacre.messages import message_to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent import TurnContext
    from nacre.json_types import JsonObject
    from nacre.messages import FinishReason, Message, Usage

_COMPACTION: Final = "contextCompaction"
_STEPS: Final = {"item/started": "before_compaction", "item/completed": "after_compaction"}


class Observations:
    """Calls the hooks that observe one turn. `run` has to be running for those of compactions."""

    def __init__(self, turn: TurnContext, *, model: str) -> None:
        self._turn = turn
        self._model = model
        self._hooks = turn.service.hooks
        self._steps: deque[str] = deque()
        self._is_closed = False
        self._change = anyio.Event()
        self.is_done = anyio.Event()
        """Set when `run` has called all hooks."""
        self.has_compacted = False
        """Whether Codex has compacted the thread in this turn."""
        self._seen: set[tuple[str, str]] = set()

    async def llm_input(
        self, *, instructions: str, messages: Sequence[Message], tool_names: Sequence[str]
    ) -> None:
        """Call the hooks before `turn/start`, with the developer instructions and the messages
        that Nacre has of the conversation, the new one last."""
        if self._hooks.has_hooks("llm_input"):
            await self._hooks.llm_input(
                LlmInput(
                    context=self._turn.identity,
                    model=self._model,
                    instructions=instructions,
                    messages=[message_to_json(message) for message in messages],
                    tool_names=tuple(tool_names),
                    harness="codex",
                )
            )

    async def llm_output(
        self,
        *,
        texts: Sequence[str],
        called_names: Sequence[str],
        usage: Usage,
        finish_reason: FinishReason,
    ) -> None:
        """Call the hooks after the turn, also if it could not be started; then there is no text."""
        if self._hooks.has_hooks("llm_output"):
            await self._hooks.llm_output(
                LlmOutput(
                    context=self._turn.identity,
                    model=self._model,
                    text=texts[-1] if texts else "",
                    texts=tuple(texts),
                    called_names=tuple(called_names),
                    usage=usage.to_json(),
                    finish_reason=finish_reason,
                    harness="codex",
                )
            )

    def see(self, method: str, params: JsonObject) -> None:
        """Note a notification of the thread; never blocks."""
        step = _STEPS.get(method)
        match params.get("item"):
            case {"type": str(kind), "id": str(item_id)} if step and kind == _COMPACTION:
                if (step, item_id) not in self._seen:
                    self._seen.add((step, item_id))
                    self.has_compacted = True
                    self._steps.append(step)
                    self._change.set()
            case _:
                pass

    async def run(self) -> None:
        """Call the hooks of compactions in their order, until `close`."""
        while True:
            while self._steps:
                await self._call_compaction_hooks(self._steps.popleft())
            if self._is_closed:
                self.is_done.set()
                return
            await self._change.wait()
            self._change = anyio.Event()

    def see_compaction(self, method: str, params: JsonObject) -> None:
        """As `see`, for a compaction without a turn: its end is the last notification."""
        self.see(method, params)
        if method == "turn/completed":
            self.close()

    def close(self) -> None:
        """End `run` when it has called the hooks of all compactions so far."""
        self._is_closed = True
        self._change.set()

    async def _call_compaction_hooks(self, step: str) -> None:
        context = self._turn.identity
        if step == "before_compaction":
            await self._hooks.before_compaction(
                BeforeCompaction(
                    context=context, message_count=None, estimated_tokens=None, harness="codex"
                )
            )
        else:
            await self._hooks.after_compaction(
                AfterCompaction(context=context, message_count=None, summary=None, harness="codex")
            )
