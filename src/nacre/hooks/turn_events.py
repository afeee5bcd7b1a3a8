"""The points of a turn, around its model calls and at its end, and what hooks are told there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import RunContext


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
