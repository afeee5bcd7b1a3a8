"""Hook events, and the values that hooks may return."""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass(frozen=True, kw_only=True, slots=True)
class LlmInput:
    """A request that is about to go to a model."""

    context: RunContext
    model: str
    instructions: str
    messages: list[JsonObject]
    """A copy of the hook's own: writing to it changes nothing."""
    tool_names: tuple[str, ...]

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "model": self.model,
            "instructions": self.instructions,
            "messages": [*self.messages],
            "toolNames": [*self.tool_names],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class LlmOutput:
    """What a model answered."""

    context: RunContext
    model: str
    text: str
    called_names: tuple[str, ...] = ()
    """The names of the tools that it called, in their order."""
    usage: JsonObject = field(default_factory=dict[str, "JsonValue"])
    finish_reason: str = "stop"

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "model": self.model,
            "text": self.text,
            "calledNames": [*self.called_names],
            "usage": self.usage,
            "finishReason": self.finish_reason,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResultPersist:
    """The result of a call as it is about to become part of the session."""

    context: RunContext
    tool_name: str
    call_id: str
    content: str
    """After the changes of the hooks before this one."""
    is_error: bool = False

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "toolName": self.tool_name,
            "toolCallId": self.call_id,
            "content": self.content,
            "isError": self.is_error,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeAgentFinalize:
    """An answer that would end the turn."""

    context: RunContext
    text: str
    pass_count: int = 0
    """How often a hook has already sent the model back to work in this turn."""

    def to_json(self) -> JsonObject:
        return {**_identity(self.context), "text": self.text, "passCount": self.pass_count}


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentEnd:
    """A turn that is over, however it ended."""

    context: RunContext
    status: str
    text: str = ""
    error: str = ""
    usage: JsonObject = field(default_factory=dict[str, "JsonValue"])

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "status": self.status,
            "text": self.text,
            "error": self.error,
            "usage": self.usage,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeCompaction:
    """Old messages of a session that are about to be replaced by a summary, for the model."""

    context: RunContext
    message_count: int
    estimated_tokens: int

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "messageCount": self.message_count,
            "estimatedTokens": self.estimated_tokens,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class AfterCompaction:
    """What stands for them now; the messages themselves stay in the session's record."""

    context: RunContext
    message_count: int
    summary: str

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "messageCount": self.message_count,
            "summary": self.summary,
        }


@dataclass(frozen=True, slots=True)
class ChangeContent:
    """Keep this text instead of the result; later hooks see it."""

    content: str


@dataclass(frozen=True, slots=True)
class Revise:
    """The answer is not good enough: the model is told why and works on."""

    reason: str


def _identity(context: RunContext) -> JsonObject:
    return {
        "agentId": context.agent_id,
        "sessionId": context.session_id,
        "sessionKey": context.session_key,
        "runId": context.run_id,
    }
