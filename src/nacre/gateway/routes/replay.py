"""Replay of recorded programs: what they did step by step, and the first difference."""

from typing import TYPE_CHECKING, Annotated, Final, Literal

import anyio
from fastapi import APIRouter
from pydantic import Field

from nacre.errors import ReplayError
from nacre.gateway.errors import RETRY_SECONDS, ApiError, quote_id
from nacre.gateway.routes.messages import CutInfo, cut_json
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonRoute,
    OpaqueJson,
    RequestModel,
    ResponseModel,
    State,
    error_responses,
)
from nacre.gateway.run_events import events_of_run
from nacre.json_types import JsonObject
from nacre.trajectory import TrajectoryEvent

if TYPE_CHECKING:
    from nacre.cell_replay import CellReplay, ReplayStep


class ReplayRequest(RequestModel):
    """Which programs of a run to replay, and how."""

    cell_id: Annotated[str, Field(max_length=500)] = ""
    """Only this program; empty for all programs of the run."""
    until: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """End after this step."""
    code: Annotated[str, Field(min_length=1, max_length=200_000)] | None = None
    """Run this program instead of the recorded one."""
    language: Literal["javascript", "typescript"] | None = None
    """The language of `code`; null for that of the recorded program."""
    first_step: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """The first step in the response. The steps before it run, too."""
    max_steps: Annotated[int, Field(ge=1, le=1000)] = 200
    """How many steps of each program are in the response."""


class ReplayAnswerInfo(ResponseModel):
    """A recorded answer that the program got."""

    id: int
    name: str
    is_success: bool
    value: OpaqueJson = None
    value_cut: CutInfo | None = None
    is_exact: bool
    """False if the record has only a part of it, because it was redacted or too long."""


class ReplayCallInfo(ResponseModel):
    """A call of the program."""

    id: int
    name: str
    input: OpaqueJson = None
    input_cut: CutInfo | None = None
    is_recorded: bool
    """False if the record has no such call: it would really be made."""


class ReplayOutputInfo(ResponseModel):
    """An item of the output."""

    value: OpaqueJson = None
    value_cut: CutInfo | None = None
    is_text: bool


class ReplayStepInfo(ResponseModel):
    """One step: the program runs until it can only wait."""

    number: int
    cause: Literal["start", "answers", "timers"]
    is_restored: bool
    """Whether the program was suspended before this step."""
    answers: tuple[ReplayAnswerInfo, ...]
    output: tuple[ReplayOutputInfo, ...]
    calls: tuple[ReplayCallInfo, ...]
    yields: tuple[str, ...]


class ReplayEndInfo(ResponseModel):
    """How a program ended."""

    status: str
    value: OpaqueJson = None
    value_cut: CutInfo | None = None
    error: str = ""
    reason: str = ""


class CellReplayInfo(ResponseModel):
    """The replay of one program."""

    cell_id: str
    tool_call_id: str
    """The call that started it."""
    is_code_changed: bool
    step_count: int
    """How many steps ran."""
    recorded_steps: int
    steps: tuple[ReplayStepInfo, ...]
    end: ReplayEndInfo | None
    """Null if the program waits."""
    recorded_end: ReplayEndInfo | None
    difference: str | None
    """The first difference from the record; null if there is none."""
    notes: tuple[str, ...]
    """What could not be compared, and why."""


class ReplayResponse(ResponseModel):
    """The replay of a run, or of one of its programs."""

    difference: str | None
    cells: tuple[CellReplayInfo, ...]


# A replay uses a worker of the sandbox, which the programs of agents need, too.
_MAX_SECONDS: Final = 60.0
_MAX_EVENTS: Final = 100_000
_ALL: Final = ReplayRequest()

router = APIRouter(
    prefix="/api", tags=["trajectories"], route_class=JsonRoute, dependencies=[BEARER]
)


@router.post(
    "/runs/{run_id}/replay",
    summary="Replay the programs of a run",
    responses=error_responses(404, 409, 415, 429),
)
async def replay_run(run_id: str, state: State, body: ReplayRequest = _ALL) -> ReplayResponse:
    """Run the recorded programs of a run again, without calling a tool, and compare them with
    their record. One replay runs at a time, for at most 60 seconds. 409 if the record does not
    allow a replay."""
    # Imported here: programs are replayed rarely.
    from nacre.cell_replay import replay

    events = await _read_events(run_id, state)
    try:
        state.replays.acquire_nowait()
    except anyio.WouldBlock:
        message = "another replay is running; try again when it has ended"
        raise ApiError(429, message, retry_after_seconds=RETRY_SECONDS) from None
    try:
        with anyio.fail_after(_MAX_SECONDS):
            replayed = await replay(
                events,
                cell_id=body.cell_id or None,
                until=body.until,
                code=body.code,
                language=body.language,
                sandbox=state.system.runtime.sandbox,
            )
    except ReplayError as error:
        raise ApiError(409, str(error), code="not_replayable") from None
    except TimeoutError:
        message = (
            f"the replay took more than {_MAX_SECONDS:.0f} seconds; end it earlier with `until`, "
            "or use the command `nacre replay`"
        )
        raise ApiError(409, message, code="not_replayable") from None
    finally:
        state.replays.release()
    return ReplayResponse(
        difference=replayed.difference or None,
        cells=tuple(_cell_info(cell, body) for cell in replayed.cells),
    )


async def _read_events(run_id: str, state: GatewayState) -> list[TrajectoryEvent]:
    store = state.system.store
    events, has_more = await events_of_run(store, run_id, max_events=_MAX_EVENTS)
    if has_more:
        message = f"the run has more than {_MAX_EVENTS} events; use the command `nacre replay`"
        raise ApiError(409, message, code="not_replayable")
    if not events and await store.turn(run_id) is None:
        raise ApiError(404, f"there is no run {quote_id(run_id)} with a record")
    return events


def _cell_info(cell: "CellReplay", body: ReplayRequest) -> CellReplayInfo:
    first = body.first_step - 1
    return CellReplayInfo(
        cell_id=cell.cell_id,
        tool_call_id=cell.call_id,
        is_code_changed=cell.is_code_changed,
        step_count=len(cell.steps),
        recorded_steps=cell.recorded_steps,
        steps=tuple(map(_step_info, cell.steps[first : first + body.max_steps])),
        end=_end_info(cell.end),
        recorded_end=_end_info(cell.recorded_end),
        difference=cell.difference or None,
        notes=cell.notes,
    )


def _step_info(step: "ReplayStep") -> ReplayStepInfo:
    answers: list[ReplayAnswerInfo] = []
    for answer in step.answers:
        value, cut = cut_json(answer.value)
        answers.append(
            ReplayAnswerInfo(
                id=answer.id,
                name=answer.name,
                is_success=answer.is_success,
                value=value,
                value_cut=cut,
                is_exact=answer.is_exact,
            )
        )
    calls: list[ReplayCallInfo] = []
    for call in step.calls:
        given, cut = cut_json(call.input)
        calls.append(
            ReplayCallInfo(
                id=call.id,
                name=call.name,
                input=given,
                input_cut=cut,
                is_recorded=call.is_recorded,
            )
        )
    output: list[ReplayOutputInfo] = []
    for item in step.output:
        is_text = "text" in item
        value, cut = cut_json(item["text"] if is_text else item.get("result"))
        output.append(ReplayOutputInfo(value=value, value_cut=cut, is_text=is_text))
    return ReplayStepInfo(
        number=step.number,
        cause=step.cause,
        is_restored=step.is_restored,
        answers=tuple(answers),
        output=tuple(output),
        calls=tuple(calls),
        yields=step.yields,
    )


def _end_info(end: JsonObject | None) -> ReplayEndInfo | None:
    if end is None:
        return None
    value, cut = cut_json(end.get("value"))
    return ReplayEndInfo(
        status=str(end.get("status")),
        value=value,
        value_cut=cut,
        error=str(end.get("error") or ""),
        reason=str(end.get("reason") or ""),
    )
