"""Events of a run: which text is for the user, whatever pieces it comes in."""

import pytest

from nacre.agent.visible_replies import ReplyEventLog
from nacre.json_types import JsonObject


def events_of(log: ReplyEventLog) -> list[tuple[str, JsonObject]]:
    return [(event.kind, event.data) for event in log.events]


def answer(log: ReplyEventLog, *pieces: str) -> None:
    for piece in pieces:
        log.add("text.delta", {"text": piece})
    log.add("message.completed", {"text": "".join(pieces), "model": "m"})


def test_text_is_passed_on_as_soon_as_it_is_no_silent_reply() -> None:
    log = ReplyEventLog()
    log.add("text.delta", {"text": "NO_"})
    assert events_of(log) == []
    log.add("text.delta", {"text": "WAY"})
    log.add("text.delta", {"text": " home"})
    assert [data["text"] for _, data in events_of(log)] == ["NO_WAY", " home"]


@pytest.mark.parametrize("pieces", [("NO_REPLY",), ("\n NO", "_RE", "PLY \n"), ("HEARTBEAT_OK",)])
def test_a_silent_reply_is_not_shown(pieces: tuple[str, ...]) -> None:
    log = ReplyEventLog()
    answer(log, *pieces)
    assert events_of(log) == [("message.completed", {"model": "m", "text": "", "isSilent": True})]
    assert log.visibility_of("".join(pieces)) == "silent"


def test_text_that_only_begins_like_a_silent_reply_is_shown_at_its_end() -> None:
    log = ReplyEventLog()
    answer(log, "NO")
    assert events_of(log) == [
        ("text.delta", {"text": "NO"}),
        ("message.completed", {"text": "NO", "model": "m"}),
    ]
    assert log.visibility_of("NO") == "visible"


def test_an_answer_that_repeats_a_sent_message_is_not_shown_again() -> None:
    log = ReplyEventLog()
    log.add("message.sent", {"text": "The build is green.\n"})
    answer(log, "The build", " is green.")
    answer(log, "The build", " is red.")
    assert [kind for kind, _ in events_of(log)] == [
        "message.sent",
        "message.completed",
        "text.delta",
        "message.completed",
    ]
    assert events_of(log)[2][1] == {"text": "The build is red."}


def test_a_private_answer_has_events_of_its_own() -> None:
    log = ReplyEventLog()
    log.is_private = True
    answer(log, "I will ", "tell nobody.")
    assert events_of(log) == [
        ("private.delta", {"text": "I will "}),
        ("private.delta", {"text": "tell nobody."}),
        ("message.completed", {"model": "m", "privateText": "I will tell nobody."}),
    ]
