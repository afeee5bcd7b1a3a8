"""Approvals: what people are asked, and their answers."""

from typing import Annotated, assert_never

from fastapi import APIRouter, Query

from nacre.errors import ApprovalError
from nacre.gateway.errors import ApiError
from nacre.gateway.routing import JsonRoute, State
from nacre.gateway.schemas.approvals import (
    ApprovalDecisionRequest,
    ApprovalDecisionResponse,
    ApprovalsResponse,
    approval_answer,
    open_approval_answer,
)
from nacre.gateway.schemas.base import error_answers
from nacre.tools import AllowAlways, AllowEdited, AllowOnce, Deny

router = APIRouter(prefix="/api/approvals", tags=["approvals"], route_class=JsonRoute)


@router.get("", summary="Open questions, and those of before", responses=error_answers())
async def list_approvals(
    state: State,
    session_id: Annotated[str | None, Query(alias="sessionId", max_length=500)] = None,
    is_all: Annotated[
        bool, Query(alias="all", description="With those of before, newest first.")
    ] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ApprovalsResponse:
    """What is asked now, oldest first."""
    system = state.system
    pending = [
        open_approval_answer(request)
        for request in system.approvals.pending
        if session_id in (None, request.context.session_id)
    ]
    if not is_all:
        return ApprovalsResponse(pending=tuple(pending))
    past = await system.store.approvals(session_id=session_id, limit=limit, is_closed=True)
    return ApprovalsResponse(pending=tuple(pending), past=tuple(map(approval_answer, past)))


@router.post("/{approval_id}", summary="Answer a question", responses=error_answers(404, 409, 415))
async def answer_approval(
    approval_id: str, asked: ApprovalDecisionRequest, state: State
) -> ApprovalDecisionResponse:
    """Answer a question; each is answered once, by whoever is first."""
    queue = state.system.approvals
    answer = _decision(asked)
    try:
        queue.answer(approval_id, answer)
    except ApprovalError as error:
        if any(request.id == approval_id for request in queue.pending):
            # Whatever else may be wrong with an answer was checked before.
            raise ApiError(422, str(error), path="body.input") from None
        status = 409 if queue.was_closed(approval_id) else 404
        raise ApiError(status, str(error)) from None
    return ApprovalDecisionResponse(approval_id=approval_id, answer=asked.answer)


def _decision(asked: ApprovalDecisionRequest) -> AllowOnce | AllowAlways | AllowEdited | Deny:
    if (asked.input is not None) != (asked.answer == "edit"):
        raise ApiError(400, 'an input is given with "edit", and only then', path="body.input")
    match asked.answer:
        case "allow-once":
            return AllowOnce()
        case "allow-always":
            return AllowAlways()
        case "deny":
            return Deny(asked.reason)
        case "edit":
            assert asked.input is not None
            return AllowEdited(asked.input)
        case _:
            assert_never(asked.answer)
