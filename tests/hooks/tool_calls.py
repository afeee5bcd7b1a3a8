"""Events for tests: a call that is about to be made, and one that has been made."""

from nacre.hooks import AfterToolCall, BeforeToolCall
from nacre.json_types import JsonObject, JsonValue
from nacre.run_context import RunContext

CONTEXT = RunContext(agent_id="main", session_id="session_1", session_key="k", run_id="agentrun_1")


def before(input: JsonObject | None = None) -> BeforeToolCall:
    return BeforeToolCall(
        tool_id="openclaw:core:read",
        tool_name="read",
        input={"path": "a"} if input is None else input,
        call_id="call_2",
        parent_id="call_1",
        context=CONTEXT,
    )


def completed(result: JsonValue) -> AfterToolCall:
    return AfterToolCall(
        tool_id="openclaw:core:read",
        tool_name="read",
        input={"path": "a"},
        call_id="call_2",
        parent_id="call_1",
        context=CONTEXT,
        outcome="completed",
        result=result,
        duration_ms=1.5,
    )
