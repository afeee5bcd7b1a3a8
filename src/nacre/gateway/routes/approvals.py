"""Approvals: list pending approvals, and answer them."""

from typing import Annotated, Literal, assert_never

from fastapi import APIRouter, Query, Response
from pydantic import ConfigDict, Field

from nacre.agent.approvals import approval_to_json
from nacre.errors import ApprovalError
from nacre.gateway.errors import ApiError
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonMap,
    JsonRoute,
    OpaqueMap,
    RequestModel,
    ResponseModel,
    State,
    error_responses,
)
from nacre.storage import ApprovalRecord, ApprovalState
from nacre.tools import AllowAlways, AllowEdited, AllowOnce, ApprovalRequest, Deny


class PendingApproval(ResponseModel):
    """A tool call that waits for approval."""

    approval_id: str
    tool_call_id: str
    parent_tool_call_id: str = ""
    """The `exec` call that contains it; empty for a direct call."""
    tool_id: str
    tool_name: str
    input: OpaqueMap
    """Without secrets and the ends of long texts; see `GET /api/approvals/{id}/input`."""
    reason: str
    """Why the call needs approval."""
    run_id: str
    session_id: str
    agent_id: str = ""
    created_at: float
    expires_at: float


class ApprovalInfo(PendingApproval):
    """A closed approval and its decision."""

    state: ApprovalState
    answer: OpaqueMap = Field(default_factory=dict)
    answered_at: float | None = None


class ApprovalsResponse(ResponseModel):
    """Pending approvals, and with `all` the closed ones, newest first."""

    pending: tuple[PendingApproval, ...]
    past: tuple[ApprovalInfo, ...] = ()
    """Empty unless `all` is set."""


class ApprovalDecisionRequest(RequestModel):
    """The decision. `allow-always` applies to this tool with this input in this session; `edit`
    makes the call with another input."""

    answer: Literal["allow-once", "allow-always", "deny", "edit"]
    input: JsonMap | None = None
    """With `edit`: the whole input. Redacted values must be written out again."""
    reason: Annotated[str, Field(max_length=2000)] = ""
    """With `deny`: the reason for the program."""

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


class ApprovalInputResponse(ResponseModel):
    """What an open approval is about."""

    approval_id: str
    input: OpaqueMap
    """The whole input of the call, with its secrets."""


class ApprovalDecisionResponse(ResponseModel):
    """The approval is closed."""

    approval_id: str
    answer: str


def pending_approval(request: ApprovalRequest) -> PendingApproval:
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


def approval_info(record: ApprovalRecord) -> ApprovalInfo:
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


router = APIRouter(
    prefix="/api/approvals", tags=["approvals"], route_class=JsonRoute, dependencies=[BEARER]
)


@router.get("", summary="List approvals", responses=error_responses())
async def list_approvals(
    state: State,
    session_id: Annotated[str | None, Query(alias="sessionId", max_length=500)] = None,
    is_all: Annotated[
        bool, Query(alias="all", description="Include closed approvals, newest first.")
    ] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ApprovalsResponse:
    """List pending approvals, oldest first."""
    system = state.system
    pending = [
        pending_approval(request)
        for request in system.agents.approvals.pending
        if session_id in (None, request.context.session_id)
    ]
    if system.store.cluster is not None:
        here = {it.approval_id for it in pending}
        open_ones = await system.store.approvals.find_all(
            session_id=session_id, limit=limit, is_open=True
        )
        # Those of other gateways, oldest first.
        pending += [approval_info(it) for it in reversed(open_ones) if it.id not in here]
    if not is_all:
        return ApprovalsResponse(pending=tuple(pending))
    past = await system.store.approvals.find_all(session_id=session_id, limit=limit, is_closed=True)
    return ApprovalsResponse(pending=tuple(pending), past=tuple(map(approval_info, past)))


@router.get(
    "/{approval_id}/input",
    summary="Get the whole input of an open approval",
    responses=error_responses(404, 409),
)
async def get_approval_input(
    approval_id: str, response: Response, state: State
) -> ApprovalInputResponse:
    """Get the input that the call is going to be made with. The lists of approvals leave out its
    secrets and the ends of long texts, so show this to the person who decides."""
    response.headers["cache-control"] = "no-store"
    try:
        found = await state.system.agents.approvals.read_input(approval_id)
    except ApprovalError as error:
        raise _convert_closed(approval_id, error, state) from None
    return ApprovalInputResponse(approval_id=approval_id, input=found)


@router.post(
    "/{approval_id}", summary="Answer an approval", responses=error_responses(404, 409, 415)
)
async def answer_approval(
    approval_id: str, body: ApprovalDecisionRequest, state: State
) -> ApprovalDecisionResponse:
    """Answer a pending approval. Only the first answer counts."""
    answer = _decision(body)
    try:
        await state.system.agents.approvals.answer(approval_id, answer)
    except ApprovalError as error:
        if state.system.approvals.is_open(approval_id) or str(error).startswith("the edited input"):
            # Everything but the input was checked before.
            raise ApiError(422, str(error), path="body.input") from None
        raise _convert_closed(approval_id, error, state) from None
    return ApprovalDecisionResponse(approval_id=approval_id, answer=body.answer)


def _convert_closed(approval_id: str, error: ApprovalError, state: GatewayState) -> ApiError:
    """The error for an approval that is not open."""
    is_unknown = "does not exist" in str(error)
    is_unknown = is_unknown and not state.system.approvals.was_closed(approval_id)
    return ApiError(404 if is_unknown else 409, str(error))


def _decision(body: ApprovalDecisionRequest) -> AllowOnce | AllowAlways | AllowEdited | Deny:
    if (body.input is not None) != (body.answer == "edit"):
        raise ApiError(
            400, '`input` is required with "edit", and not allowed otherwise', path="body.input"
        )
    match body.answer:
        case "allow-once":
            return AllowOnce()
        case "allow-always":
            return AllowAlways()
        case "deny":
            return Deny(body.reason)
        case "edit":
            assert body.input is not None
            return AllowEdited(body.input)
        case _:
            assert_never(body.answer)
