"""What a model is told of what was said before."""

from dataclasses import replace

from nacre.agent.transcript import NO_RESULT, estimate_tokens, repair_history
from nacre.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolMessage,
    Usage,
    UserMessage,
    user_message,
)
from tests.agent.fake_models import call, calls, say


def result(call_id: str, content: str = "ok") -> ToolMessage:
    return ToolMessage(call_id=call_id, name="echo", content=content)


def missing(call_id: str) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="echo", content=NO_RESULT, is_error=True)


def test_a_sound_history_stays_as_it_is() -> None:
    sound: list[Message] = [
        SystemMessage(text="summary"),
        user_message("a"),
        calls(("1", "echo", {}), ("2", "echo", {})),
        result("1"),
        result("2"),
        say("done"),
    ]
    assert repair_history(sound) == sound


def test_calls_without_a_result_get_one_before_anything_else_is_said() -> None:
    broken = [user_message("a"), calls(("1", "echo", {}), ("2", "echo", {})), result("2"), say("b")]
    assert repair_history(broken) == [*broken[:3], missing("1"), broken[3]]
    assert repair_history([user_message("a"), call("echo")])[2:] == [missing("call_1")]


def test_results_that_belong_to_no_call_are_left_out() -> None:
    broken = [user_message("a"), result("9"), call("echo"), result("call_1"), result("call_1", "2")]
    assert repair_history(broken) == [broken[0], broken[2], broken[3]]


def test_ids_may_come_again_in_later_answers() -> None:
    sound = [call("echo"), result("call_1", "first"), call("echo"), result("call_1", "second")]
    assert repair_history(sound) == sound


def test_answers_that_say_nothing_are_left_out() -> None:
    empty = AssistantMessage(parts=())
    thought = AssistantMessage(parts=(ThinkingPart(text="hm"), TextPart(text=" ")))
    assert repair_history([user_message("a"), empty, thought]) == [user_message("a")]


def test_tokens_are_what_the_provider_counted_and_a_guess_for_the_rest() -> None:
    counted = replace(say("b"), usage=Usage(input_tokens=1000, output_tokens=50))
    messages = [user_message("x" * 40_000), counted, user_message("y" * 400)]
    assert 1150 <= estimate_tokens(messages) <= 1160
    assert estimate_tokens(messages, trusts_usage=False) > 10_000


def test_a_picture_counts_as_a_picture_and_not_as_its_text() -> None:
    picture = UserMessage(parts=(ImagePart(url="data:image/png;base64," + "A" * 1_000_000),))
    assert 1000 < estimate_tokens([picture]) < 2000
