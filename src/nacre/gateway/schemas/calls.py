"""Tool calls as a tree: what a program called stands beneath its call of `exec`."""

from typing import Literal

from nacre.gateway.schemas.base import Answer, OpaqueJson, OpaqueMap
from nacre.trajectory import CallNode


class CallInfo(Answer):
    """One call, and those that were made inside it. Secrets and long values are cut out."""

    tool_call_id: str
    tool_id: str
    tool_name: str
    source: str
    input: OpaqueJson = None
    outcome: Literal["completed", "failed", "running"]
    result: OpaqueJson = None
    error: str = ""
    error_code: str = ""
    abort_reason: str = ""
    """Of a call that returned all the same: `exec` does, with a program that was aborted."""
    started_at: float | None
    """Seconds since the epoch, here and everywhere."""
    ended_at: float | None
    duration_ms: float | None
    approvals: tuple[OpaqueMap, ...] = ()
    updates: int = 0
    """How often the tool reported progress."""
    children: tuple["CallInfo", ...] = ()


def call_answer(node: CallNode) -> CallInfo:
    # As deep as the projection lets calls stand, which is not deep.
    return CallInfo(
        tool_call_id=node.call_id,
        tool_id=node.tool_id,
        tool_name=node.tool_name,
        source=node.source,
        input=node.input,
        outcome=node.outcome,
        result=node.result,
        error=node.error,
        error_code=node.error_code,
        abort_reason=node.abort_reason,
        started_at=node.started,
        ended_at=node.ended,
        duration_ms=node.duration_ms,
        approvals=tuple(node.approvals),
        updates=node.updates,
        children=tuple(map(call_answer, node.children)),
    )
