"""Which texts of a run its user sees: answers, messages of the `message` tool, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.config import choose_runtime
from nacre.tools import CORE_OWNER, effective_tools, policy_for
from nacre.trajectory import MAX_RUN_EVENTS, RunEventLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent.turn_request import TurnRequest
    from nacre.config import AgentConfig, SystemConfig, VisibleReplies
    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext
    from nacre.storage import Visibility
    from nacre.tools import Tool
    from nacre.trajectory import RunEventKind

SILENT_REPLIES: Final = ("NO_REPLY", "HEARTBEAT_OK")
"""An answer that is one of these is not shown to anybody."""
MESSAGE_TOOL: Final = "message"

REPLY_RULE: Final = (
    "Your answer at the end of the turn is private: the user does not see it. To tell the user "
    f"something, call the tool `{MESSAGE_TOOL}` with the action `send`. If there is nothing to "
    "tell, do not call it."
)
"""For the instructions of a turn whose answer is private."""


def choose_reply_mode(
    config: SystemConfig,
    *,
    agent: AgentConfig,
    request: TurnRequest,
    identity: RunContext,
    tools: Sequence[Tool],
    model: str,
) -> VisibleReplies:
    """`messages.visibleReplies` for a turn. Without the tool `message`, answers are visible: the
    user would never see anything."""
    if config.visible_replies == "automatic" or request.tools_disabled:
        return "automatic"
    permitted = effective_tools(tools, policy_for(agent.tools, identity))
    is_available = any(tool.name == MESSAGE_TOOL and tool.owner == CORE_OWNER for tool in permitted)
    runtime = choose_runtime(model, agent, config.models, config.codex)
    is_excluded = runtime.id == "codex" and MESSAGE_TOOL in config.codex.tools_exclude
    return "message_tool" if is_available and not is_excluded else "automatic"


class ReplyEventLog(RunEventLog):
    """The events of a run, in which text that is not for the user is marked.

    Harnesses add `text.delta` and `message.completed` as the model answers. If the answer is
    private, they become `private.delta`, and the text of a message becomes `privateText`. Text that
    may still become a silent reply, or repeat a sent message, is held back until it is known.
    """

    def __init__(self, *, max_events: int = MAX_RUN_EVENTS) -> None:
        super().__init__(max_events=max_events)
        self.is_private = False
        """Whether answers are not for the user; set before the model is asked."""
        self.sent: list[str] = []
        """The texts that were sent to the user during the turn."""
        self._held: list[str] = []
        self._is_passing = False

    def add(self, kind: RunEventKind, data: JsonObject | None = None) -> None:
        data = data or {}
        text = data.get("text")
        match kind:
            case "text.delta" if isinstance(text, str):
                self._add_delta(text)
            case "message.completed" if isinstance(text, str):
                self._add_message(text, data)
            case "message.sent" if isinstance(text, str):
                if text.strip():
                    self.sent.append(text)
                super().add(kind, data)
            case "model.started" | "run.completed" | "run.failed" | "run.aborted":
                self._start_message()
                super().add(kind, data)
            case _:
                super().add(kind, data)

    def start_message(self) -> None:
        """Another message of the model begins, before `message.completed` of the last one."""
        held = "".join(self._held)
        if held and not self._is_hidden(held):
            super().add("text.delta", {"text": held})
        self._start_message()

    def visibility_of(self, text: str) -> Visibility:
        """Whether the user sees an answer with this text."""
        if self.is_private:
            return "private"
        return "silent" if self._is_hidden(text) else "visible"

    def _add_delta(self, text: str) -> None:
        if self.is_private:
            super().add("private.delta", {"text": text})
            return
        if not self._is_passing:
            self._held.append(text)
            if self._may_be_hidden("".join(self._held)):
                return
            self._is_passing = True
            text = "".join(self._held)
            self._held = []
        super().add("text.delta", {"text": text})

    def _add_message(self, text: str, data: JsonObject) -> None:
        rest = {key: value for key, value in data.items() if key != "text"}
        match self.visibility_of(text):
            case "private":
                super().add("message.completed", {**rest, "privateText": text})
            case "silent" if text.strip() and not self._is_passing:
                super().add("message.completed", {**rest, "text": "", "isSilent": True})
            case _:
                if self._held:
                    super().add("text.delta", {"text": "".join(self._held)})
                super().add("message.completed", data)
        self._start_message()

    def _start_message(self) -> None:
        self._held, self._is_passing = [], False

    def _hidden_texts(self) -> list[str]:
        return [*SILENT_REPLIES, *(text.strip() for text in self.sent)]

    def _is_hidden(self, text: str) -> bool:
        return text.strip() in self._hidden_texts()

    def _may_be_hidden(self, text: str) -> bool:
        start = text.strip()
        return any(hidden.startswith(start) for hidden in self._hidden_texts())
