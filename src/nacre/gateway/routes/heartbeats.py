"""Heartbeats: which agents are woken without a message, and waking one now."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Path

from nacre.gateway.errors import ApiError
from nacre.gateway.routing import BEARER, JsonRoute, ResponseModel, State, error_responses


class HeartbeatInfo(ResponseModel):
    """One attempt to wake an agent."""

    status: Literal["skipped", "failed", "running", "quiet", "notified"]
    time: float
    reason: str = ""
    """Why it was skipped: `busy`, `empty_file` or `outside_active_hours`. Otherwise the reason that
    the agent gave."""
    run_id: str = ""
    session_id: str = ""
    outcome: str = ""
    """What the agent recorded with `heartbeat_respond`."""
    summary: str = ""
    text: str = ""
    """What the user is told."""
    priority: str = ""
    next_check: str = ""
    error: str = ""


class AgentHeartbeatInfo(ResponseModel):
    """The heartbeats of an agent."""

    agent_id: str
    every_seconds: float
    next_time: float
    last: HeartbeatInfo | None = None
    """The last attempt since the gateway started."""


class HeartbeatsResponse(ResponseModel):
    """The agents that are woken."""

    heartbeats: tuple[AgentHeartbeatInfo, ...]


_SHUTTING_DOWN: Final = "the gateway is shutting down"

router = APIRouter(
    prefix="/api/heartbeats", tags=["heartbeats"], route_class=JsonRoute, dependencies=[BEARER]
)


@router.get("", summary="List heartbeats", responses=error_responses())
async def list_heartbeats(state: State) -> HeartbeatsResponse:
    """List the agents that are woken without a message, with the next time and the last attempt."""
    found = await state.heartbeats.status()
    return HeartbeatsResponse(
        heartbeats=tuple(AgentHeartbeatInfo.model_validate(it) for it in found)
    )


@router.post(
    "/{agent_id}",
    status_code=202,
    summary="Wake an agent now",
    responses=error_responses(404),
)
async def wake_agent(agent_id: Annotated[str, Path(max_length=500)], state: State) -> HeartbeatInfo:
    """Wake an agent now, also outside of its active hours. Follow the run of `runId`. It is skipped
    while a turn of the session runs."""
    if state.is_closing:
        raise ApiError(503, _SHUTTING_DOWN, code="shutting_down")
    report = await state.heartbeats.wake(agent_id)
    return HeartbeatInfo.model_validate(report.to_json())
