"""Questions about calls, and answers to them, on the wire."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from nacre.agent.approval_log import approval_to_json
from nacre.gateway.schemas.base import Answer, Asked, JsonMap, OpaqueMap
from nacre.storage import ApprovalRecord, ApprovalState
from nacre.tools import ApprovalRequest


class PendingApproval(Answer):
    """A call that waits for a yes or a no. Secrets in the input are blanked out."""

    approval_id: str
    tool_call_id: str
    parent_tool_call_id: str = ""
    """The call of `exec` that it is nested in; empty for a direct call."""
    tool_id: str
    tool_name: str
    input: OpaqueMap
    reason: str
    """Why somebody has to agree."""
    run_id: str
    session_id: str
    agent_id: str = ""
    created_at: float
    expires_at: float


class ApprovalInfo(Answer):
    """A question of some time ago, and what became of it."""

    approval_id: str
    tool_call_id: str
    parent_tool_call_id: str = ""
    tool_id: str
    tool_name: str
    input: OpaqueMap
    reason: str
    run_id: str
    session_id: str
    agent_id: str = ""
    created_at: float
    expires_at: float
    state: ApprovalState
    answer: OpaqueMap = Field(default_factory=dict)
    answered_at: float | None = None


class ApprovalsResponse(Answer):
    """What is asked now; and, where all was asked for, what was asked before, newest first."""

    pending: tuple[PendingApproval, ...]
    past: tuple[ApprovalInfo, ...] = ()
    """Empty unless all was asked for."""


class ApprovalDecisionRequest(Asked):
    """`allow-always` holds for this tool with just this input in this session; `edit` makes the
    call with another input."""

    answer: Literal["allow-once", "allow-always", "deny", "edit"]
    input: JsonMap | None = None
    """With `edit`: the whole input. What was shown blanked out has to be written out again."""
    reason: Annotated[str, Field(max_length=2000)] = ""
    """With `deny`: what the program is told."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"answer": {"const": "edit"}}},
            "then": {"required": ["input"], "properties": {"input": {"type": "object"}}},
            "else": {"properties": {"input": {"type": "null"}}},
            "examples": [
                {"answer": "allow-once"},
                {"answer": "deny", "reason": "not on a Friday"},
                {"answer": "edit", "input": {"path": "notes.txt", "content": "shorter"}},
            ],
        }
    )


class ApprovalDecisionResponse(Answer):
    """The question is closed."""

    approval_id: str
    answer: str


def open_approval_answer(request: ApprovalRequest) -> PendingApproval:
    shown = approval_to_json(request)
    given = shown["input"]
    return PendingApproval(
        approval_id=request.id,
        tool_call_id=request.call_id,
        parent_tool_call_id=request.parent_id,
        tool_id=request.tool_id,
        tool_name=request.tool_name,
        input=given if isinstance(given, dict) else {},
        reason=request.reason,
        run_id=request.context.run_id,
        session_id=request.context.session_id,
        agent_id=request.context.agent_id,
        created_at=request.created,
        expires_at=request.expires,
    )


def approval_answer(record: ApprovalRecord) -> ApprovalInfo:
    return ApprovalInfo(
        approval_id=record.id,
        tool_call_id=record.call_id,
        parent_tool_call_id=record.parent_id,
        tool_id=record.tool_id,
        tool_name=record.tool_name,
        input=record.input,
        reason=record.reason,
        run_id=record.run_id,
        session_id=record.session_id,
        agent_id=record.agent_id,
        created_at=record.created,
        expires_at=record.expires,
        state=record.state,
        answer=record.answer,
        answered_at=record.answered,
    )
