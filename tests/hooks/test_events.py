"""What hooks outside the process are told, in the keys that they know."""

from dataclasses import replace

from nacre.hooks import AgentEnd, BeforeToolCall
from tests.hooks.tool_calls import CONTEXT, before, completed


def test_a_nested_call_is_told_with_its_run_and_its_parent() -> None:
    assert before().to_json() == {
        "toolKind": "tool",
        "toolName": "read",
        "toolId": "openclaw:core:read",
        "input": {"path": "a"},
        "toolCallId": "call_2",
        "parentToolCallId": "call_1",
        "agentId": "main",
        "sessionId": "session_1",
        "sessionKey": "k",
        "runId": "agentrun_1",
    }


def test_every_event_names_the_sender_and_the_channel_if_there_are_any() -> None:
    context = replace(CONTEXT, sender="ann", channel="mail")
    for event in (
        replace(before(), context=context),
        replace(completed(None), context=context),
        AgentEnd(context=context, status="completed"),
    ):
        wire = event.to_json()
        assert (wire["sender"], wire["channel"]) == ("ann", "mail")


def test_a_cell_is_told_apart_from_a_shell_command_of_the_same_name() -> None:
    told = BeforeToolCall(
        tool_id="openclaw:core:exec",
        tool_name="exec",
        input={"code": "return 1"},
        call_id="call_1",
        parent_id="",
        context=CONTEXT,
        tool_kind="code_mode_exec",
        tool_input_kind="typescript",
    ).to_json()
    assert (told["toolKind"], told["toolInputKind"]) == ("code_mode_exec", "typescript")
    assert "parentToolCallId" not in told


def test_a_completed_call_is_told_with_its_result() -> None:
    told = completed(None).to_json()
    assert (told["outcome"], told["durationMs"], told["result"]) == ("completed", 1.5, None)
    assert "error" not in told


def test_a_failed_call_is_told_with_its_error() -> None:
    event = replace(completed(None), outcome="failed", error="no", error_code="tool_failed")
    told = event.to_json()
    assert (told["outcome"], told["error"], told["errorCode"]) == ("failed", "no", "tool_failed")
    assert "result" not in told
