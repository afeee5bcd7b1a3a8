"""Cells: list the programs that run or wait, resume and abort them."""

import time
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query

from nacre.code_mode import CellInfo
from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonRoute,
    ResponseModel,
    State,
    error_responses,
)


class PendingCallInfo(ResponseModel):
    """A call that a cell waits for."""

    tool_call_id: str
    tool_id: str
    method: str
    is_awaiting_somebody: bool
    """Whether a person or a client has to answer."""


class CellStateInfo(ResponseModel):
    """A program that runs or waits."""

    cell_id: str
    run_id: str
    session_id: str
    agent_id: str
    tool_call_id: str
    """The call of `exec` that started it."""
    state: Literal["running", "waiting"]
    reason: str | None
    """Why it waits: `yield`, `pending_tools` or another reason of `exec`."""
    created_at: float
    expires_at: float | None
    """When a waiting cell is aborted if nobody resumes it."""
    can_be_resumed: bool
    """Whether you can resume it: it waits, and not for an answer of a person or a client."""
    is_stored: bool
    """Whether it survives a restart of the gateway: it waits, and is durable."""
    snapshot_bytes: int | None
    pending_calls: tuple[PendingCallInfo, ...]
    language: str
    code: str
    is_cut: bool
    """Whether the code is longer."""


class CellsResponse(ResponseModel):
    """The live cells, oldest first."""

    cells: tuple[CellStateInfo, ...]


class CellActionResponse(ResponseModel):
    """The cell was aborted, or is being resumed."""

    cell_id: str


_MAX_CODE_CHARACTERS: Final = 16_384

router = APIRouter(
    prefix="/api/cells", tags=["operation"], route_class=JsonRoute, dependencies=[BEARER]
)


@router.get("", summary="List cells", responses=error_responses())
async def list_cells(
    state: State,
    session_id: Annotated[str | None, Query(alias="sessionId", max_length=500)] = None,
) -> CellsResponse:
    """List the programs that run or wait."""
    found = state.system.runtime.cells()
    return CellsResponse(
        cells=tuple(
            _cell_info(cell) for cell in found if session_id in (None, cell.context.session_id)
        )
    )


def _cell_info(cell: CellInfo) -> CellStateInfo:
    now, left = time.time(), cell.expires_in_seconds
    return CellStateInfo(
        cell_id=cell.cell_id,
        run_id=cell.context.run_id,
        session_id=cell.context.session_id,
        agent_id=cell.context.agent_id,
        tool_call_id=cell.call_id,
        state="waiting" if cell.state == "waiting" else "running",
        reason=cell.reason or None,
        created_at=now - cell.age_seconds,
        expires_at=None if left is None else now + left,
        can_be_resumed=cell.can_be_resumed,
        is_stored=cell.is_stored,
        snapshot_bytes=cell.snapshot_bytes or None,
        pending_calls=tuple(
            PendingCallInfo(
                tool_call_id=call.call_id,
                tool_id=call.tool_id,
                method=call.method,
                is_awaiting_somebody=call.is_awaiting_somebody,
            )
            for call in cell.pending
        ),
        language=cell.language,
        code=cell.code[:_MAX_CODE_CHARACTERS],
        is_cut=len(cell.code) > _MAX_CODE_CHARACTERS,
    )


@router.post("/{cell_id}/resume", summary="Resume a cell", responses=error_responses(404, 409))
async def resume_cell(cell_id: str, state: State) -> CellActionResponse:
    """Continue a program that waits. It runs until it ends or waits again. The model gets the
    result when it calls `wait`; if its turn ends first, the program ends with it."""
    if not state.system.runtime.resume_cell(cell_id):
        raise ApiError(409, _explain_refusal(_find_cell(cell_id, state)))
    return CellActionResponse(cell_id=cell_id)


def _explain_refusal(cell: CellInfo) -> str:
    awaited = [call.tool_id for call in cell.pending if call.is_awaiting_somebody]
    if awaited:
        return (
            f"the cell waits for an answer to {', '.join(awaited)}, and continues by itself when "
            "it has one; answer it, or abort the cell"
        )
    if cell.state != "waiting":
        return (
            "the cell runs already: its model called `wait`, or somebody resumed it; wait for its "
            "result, or abort it"
        )
    return "the cell cannot be resumed, because its run has ended; abort it"


@router.post("/{cell_id}/abort", summary="Abort a cell", responses=error_responses(404))
async def abort_cell(cell_id: str, state: State) -> CellActionResponse:
    """Abort a program and its calls. Its run continues: the model sees that it was aborted."""
    _find_cell(cell_id, state)
    await state.system.runtime.abort_cell(cell_id, "the cell was aborted over the API")
    return CellActionResponse(cell_id=cell_id)


def _find_cell(cell_id: str, state: GatewayState) -> CellInfo:
    for cell in state.system.runtime.cells():
        if cell.cell_id == cell_id:
            return cell
    raise ApiError(404, f"there is no cell {quote_id(cell_id)} that runs or waits")
