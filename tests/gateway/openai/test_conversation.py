"""Messages of a request, put in an order that providers take."""

from nacre.gateway.openai.turn_input import ConversationBuilder
from nacre.messages import (
    AssistantMessage,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    user_message,
)


def call(call_id: str) -> ToolCallPart:
    return ToolCallPart(call_id=call_id, name="f", arguments="{}")


def result(call_id: str, content: str) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="f", content=content)


def test_parts_of_an_answer_are_one_message_until_something_else_comes() -> None:
    builder = ConversationBuilder()
    builder.user([TextPart(text="go")])
    builder.assistant([TextPart(text="I look.")])
    builder.assistant([call("a")])
    builder.result("a", "1")
    builder.assistant([call("b")])
    built = builder.build()
    assert built.messages == (
        user_message("go"),
        AssistantMessage(parts=(TextPart(text="I look."), call("a"))),
        result("a", "1"),
        AssistantMessage(parts=(call("b"),)),
    )


def test_results_stand_after_their_calls_in_the_order_of_the_calls() -> None:
    builder = ConversationBuilder()
    builder.assistant([call("a"), call("b")])
    builder.user([TextPart(text="and?")])
    builder.result("b", "2")
    builder.result("a", "1")
    assert builder.build().messages[1:] == (
        result("a", "1"),
        result("b", "2"),
        user_message("and?"),
    )


def test_an_id_that_is_used_again_has_its_results_in_order() -> None:
    builder = ConversationBuilder()
    for text in ("first", "second"):
        builder.assistant([call("a")])
        builder.result("a", text)
    built = builder.build()
    assert built.messages[1::2] == (result("a", "first"), result("a", "second"))
    assert (built.results, built.unplaced) == ({"a": "second"}, ())


def test_results_without_a_call_are_named() -> None:
    builder = ConversationBuilder()
    builder.user([TextPart(text="hm")])
    builder.result("a", "1")
    built = builder.build()
    assert (built.unplaced, built.results) == (("a",), {"a": "1"})
    assert built.messages == (user_message("hm"),)


def test_what_is_said_after_the_last_result_is_told_apart() -> None:
    builder = ConversationBuilder()
    builder.user([TextPart(text="before")])
    builder.result("a", "1")
    assert builder.build().message_after_results is None
    builder.user([TextPart(text="after")])
    assert builder.build().message_after_results == user_message("after")


def test_what_ends_with_no_word_of_a_person_has_nothing_to_answer() -> None:
    builder = ConversationBuilder()
    builder.user([TextPart(text="hm")])
    builder.system("Be brief.")
    built = builder.build()
    assert built.last_user_message is None
    assert built.earlier == (user_message("hm"), SystemMessage(text="Be brief."))
