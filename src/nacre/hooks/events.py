"""The points where hooks are asked; what they are told about a tool call, and may decide of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import RunContext

HookEvent = Literal[
    "before_tool_call",
    "after_tool_call",
    "tool_result_persist",
    "llm_input",
    "llm_output",
    "before_agent_finalize",
    "agent_end",
    "before_compaction",
    "after_compaction",
]
HOOK_EVENTS: Final[tuple[HookEvent, ...]] = get_args(HookEvent)

ToolKind = Literal["tool", "code_mode_exec", "code_mode_wait", "tool_search"]
"""Tells the controls of a surface from tools that happen to have these names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _ToolCallEvent:
    """Which call of which tool in which run."""

    tool_id: str
    tool_name: str
    input: JsonObject
    """A copy of the hook's own: writing to it changes nothing."""
    call_id: str
    parent_id: str
    """The call of `exec` that this one is nested in; empty for a direct call."""
    context: RunContext
    tool_kind: ToolKind = "tool"
    tool_input_kind: str | None = None
    """`javascript` or `typescript` for a code-mode cell."""

    def _identity_json(self) -> JsonObject:
        identity: JsonObject = {
            "toolKind": self.tool_kind,
            "toolName": self.tool_name,
            "toolId": self.tool_id,
            "input": self.input,
            "toolCallId": self.call_id,
            "agentId": self.context.agent_id,
            "sessionId": self.context.session_id,
            "sessionKey": self.context.session_key,
            "runId": self.context.run_id,
        }
        if self.tool_input_kind is not None:
            identity["toolInputKind"] = self.tool_input_kind
        if self.parent_id:
            identity["parentToolCallId"] = self.parent_id
        return identity


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeToolCall(_ToolCallEvent):
    """A call that policy allows and that has not been made yet."""

    def to_json(self) -> JsonObject:
        """For hooks outside this process; keys that have nothing to say are left out."""
        return self._identity_json()


@dataclass(frozen=True, kw_only=True, slots=True)
class AfterToolCall(_ToolCallEvent):
    """A call that has been made, and how it ended."""

    outcome: Literal["completed", "failed"]
    result: JsonValue = None
    """A copy of the hook's own, after the changes of the hooks before it."""
    error: str = ""
    error_code: str = ""
    duration_ms: float = 0.0

    def to_json(self) -> JsonObject:
        """For hooks outside this process; keys that have nothing to say are left out."""
        ending: JsonObject = {"outcome": self.outcome, "durationMs": self.duration_ms}
        if self.outcome == "completed":
            ending["result"] = self.result
        else:
            ending["error"] = self.error
            ending["errorCode"] = self.error_code
        return {**self._identity_json(), **ending}


@dataclass(frozen=True, slots=True)
class ChangeInput:
    """Make the call with this input instead; later hooks see it, and it is checked again."""

    input: JsonObject


@dataclass(frozen=True, slots=True)
class Block:
    """Do not make the call; whoever called is told the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Make the call only if a person agrees."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """Give the caller this result instead of the tool's; later hooks see it."""

    result: JsonValue
