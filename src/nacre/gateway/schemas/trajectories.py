"""Events of trajectories on the wire."""

from nacre.gateway.schemas.base import Answer, OpaqueMap


class TrajectoryEventInfo(Answer):
    """One thing that happened; secrets and long values are cut out."""

    run_id: str
    event: OpaqueMap
    """`sequence`, `time`, `kind`, `toolCallId`, `parentToolCallId` and `data`."""


class TrajectoryResponse(Answer):
    """A page of events, in the order in which they were stored."""

    events: tuple[TrajectoryEventInfo, ...]
    next_after: int | None = None
    """For `after`: the next page. Null when this is all there is so far."""
