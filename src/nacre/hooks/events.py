"""Hook events, and the values that hooks may return."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal, get_args

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import RunContext


HookEvent = Literal[
    "before_tool_call",
    "after_tool_call",
    "tool_result_persist",
    "before_prompt_build",
    "llm_input",
    "llm_output",
    "before_agent_finalize",
    "agent_end",
    "before_compaction",
    "after_compaction",
]
HOOK_EVENTS: Final[tuple[HookEvent, ...]] = get_args(HookEvent)

ToolKind = Literal["tool", "code_mode_exec", "code_mode_wait", "tool_search"]
"""Distinguishes the control tools of a surface from other tools with the same names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _ToolCallEvent:
    """The call, its tool and its run."""

    tool_id: str
    tool_name: str
    input: JsonObject
    """A copy; changing it has no effect."""
    call_id: str
    parent_id: str
    """The id of the `exec` call that contains this nested call; empty for a direct call."""
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
            **_identity(self.context),
        }
        if self.tool_input_kind is not None:
            identity["toolInputKind"] = self.tool_input_kind
        if self.parent_id:
            identity["parentToolCallId"] = self.parent_id
        return identity


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeToolCall(_ToolCallEvent):
    """A call that the policy allows, before it is made."""

    def to_json(self) -> JsonObject:
        """The event for hooks outside this process, without empty keys."""
        return self._identity_json()


@dataclass(frozen=True, kw_only=True, slots=True)
class AfterToolCall(_ToolCallEvent):
    """A call after it has ended, with its outcome."""

    outcome: Literal["completed", "failed"]
    result: JsonValue = None
    """A copy of the result, after the changes of earlier hooks."""
    error: str = ""
    error_code: str = ""
    duration_ms: float = 0.0

    def to_json(self) -> JsonObject:
        """The event for hooks outside this process, without empty keys."""
        ending: JsonObject = {"outcome": self.outcome, "durationMs": self.duration_ms}
        if self.outcome == "completed":
            ending["result"] = self.result
        else:
            ending["error"] = self.error
            ending["errorCode"] = self.error_code
        return {**self._identity_json(), **ending}


@dataclass(frozen=True, slots=True)
class ChangeInput:
    """Make the call with this input instead. Later hooks see it, and it is validated again."""

    input: JsonObject


@dataclass(frozen=True, slots=True)
class Block:
    """Do not make the call; the caller gets the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Make the call only after an approval."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """Return this result instead of the tool's. Later hooks see it."""

    result: JsonValue


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforePromptBuild:
    """A turn, before the prompt of its model is built."""

    context: RunContext
    model: str
    prompt: str
    """The text of the new message."""
    message_count: int
    """How many earlier messages the model gets."""

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "model": self.model,
            "prompt": self.prompt,
            "messageCount": self.message_count,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class AddToPrompt:
    """Add texts to the prompt of this turn. They are not stored in the session."""

    prepend_context: str = ""
    """Before the new message."""
    append_context: str = ""
    """After the new message."""
    prepend_system_context: str = ""
    """Before the instructions."""
    append_system_context: str = ""
    """After the instructions."""


HarnessId = Literal["openclaw", "codex"]
"""`openclaw` is the built-in harness."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LlmInput:
    """A request to a model, before it is sent."""

    context: RunContext
    model: str
    instructions: str
    messages: list[JsonObject]
    """A copy; changing it has no effect."""
    tool_names: tuple[str, ...]
    harness: HarnessId = "openclaw"
    """With `codex`, the event holds what Nacre knows of the turn, not the request of Codex."""

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "harness": self.harness,
            "model": self.model,
            "instructions": self.instructions,
            "messages": [*self.messages],
            "toolNames": [*self.tool_names],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class LlmOutput:
    """The response of a model."""

    context: RunContext
    model: str
    text: str
    called_names: tuple[str, ...] = ()
    """The names of the called tools, in order."""
    usage: JsonObject = field(default_factory=dict[str, "JsonValue"])
    finish_reason: str = "stop"
    harness: HarnessId = "openclaw"
    """With `codex`, the event is the outcome of a whole turn."""
    texts: tuple[str, ...] = ()
    """All texts of a turn of Codex; empty if the turn could not be started."""

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "harness": self.harness,
            **({"texts": [*self.texts]} if self.harness == "codex" else {}),
            "model": self.model,
            "text": self.text,
            "calledNames": [*self.called_names],
            "usage": self.usage,
            "finishReason": self.finish_reason,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResultPersist:
    """The result of a call, before it is stored in the session."""

    context: RunContext
    tool_name: str
    call_id: str
    content: str
    """The text of the result, after the changes of earlier hooks."""
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
    """The final answer of a turn, before the turn ends."""

    context: RunContext
    text: str
    pass_count: int = 0
    """How often a hook has requested a revision in this turn."""

    def to_json(self) -> JsonObject:
        return {**_identity(self.context), "text": self.text, "passCount": self.pass_count}


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentEnd:
    """A turn that has ended, successfully or not."""

    context: RunContext
    status: str
    text: str = ""
    error: str = ""
    usage: JsonObject = field(default_factory=dict[str, "JsonValue"])
    messages: list[JsonObject] = field(default_factory=list["JsonObject"])
    """The messages that the turn added to its session."""
    duration_ms: float = 0.0

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "messages": [*self.messages],
            "durationMs": self.duration_ms,
            "status": self.status,
            "text": self.text,
            "error": self.error,
            "usage": self.usage,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeCompaction:
    """Older messages of a session, before a summary replaces them in the model's context."""

    context: RunContext
    message_count: int | None
    """None with `codex`, which does not tell."""
    estimated_tokens: int | None
    harness: HarnessId = "openclaw"

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "harness": self.harness,
            "messageCount": self.message_count,
            "estimatedTokens": self.estimated_tokens,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class AfterCompaction:
    """The summary that replaces older messages. The session still stores the messages."""

    context: RunContext
    message_count: int | None
    summary: str | None
    """None with `codex`, which does not tell."""
    harness: HarnessId = "openclaw"

    def to_json(self) -> JsonObject:
        return {
            **_identity(self.context),
            "harness": self.harness,
            "messageCount": self.message_count,
            "summary": self.summary,
        }


@dataclass(frozen=True, slots=True)
class ChangeContent:
    """Store this text instead of the result. Later hooks see it."""

    content: str


@dataclass(frozen=True, slots=True)
class Revise:
    """Reject the answer; the model gets the reason and continues."""

    reason: str


def _identity(context: RunContext) -> JsonObject:
    identity: JsonObject = {
        "agentId": context.agent_id,
        "sessionId": context.session_id,
        "sessionKey": context.session_key,
        "runId": context.run_id,
    }
    # Left out if empty: a hook must not take an empty name for a sender.
    known = {"sender": context.sender, "channel": context.channel}
    return {**identity, **{name: value for name, value in known.items() if value}}
