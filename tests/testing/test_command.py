"""Script files: all parts, and errors in a file."""

import pytest

from nacre.json_types import JsonValue
from nacre.testing import Call, Cut, End, Fail, Raw, Say, Stall, Think
from nacre.testing.command import script_from_json
from nacre.testing.script import Part

PARTS: list[tuple[JsonValue, Part]] = [
    ("plain", Say("plain")),
    ({"say": "words"}, Say("words")),
    ({"think": "hm"}, Think("hm")),
    ({"call": "exec", "arguments": {"code": "1"}}, Call("exec", {"code": "1"})),
    ({"call": "exec", "arguments": "{", "callId": "c"}, Call("exec", "{", "c")),
    ({"call": "exec"}, Call("exec")),
    ({"fail": 503}, Fail(503)),
    (
        {"fail": 429, "message": "slow", "retryAfter": 2, "code": "x"},
        Fail(429, "slow", retry_after=2.0, code="x"),
    ),
    ({"cut": True}, Cut()),
    ({"stall": True}, Stall()),
    ({"raw": "data: x"}, Raw("data: x")),
    ({"end": "length"}, End("length")),
]


@pytest.mark.parametrize(("written", "part"), PARTS, ids=str)
def test_every_part_can_be_written(written: JsonValue, part: Part) -> None:
    assert script_from_json([written, [written, "and"]]) == [part, [part, Say("and")]]


def test_conversations_have_scripts_of_their_own() -> None:
    written: JsonValue = {"cats": ["meow", [{"say": "purr"}]], "": []}
    assert script_from_json(written) == {"cats": [Say("meow"), [Say("purr")]], "": []}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("say", "^a script is a list of turns"),
        ({"say": "x"}, "^conversation 'say', a script is a list of turns"),
        ({"a": [], "b": ["fine", 5]}, "^conversation 'b', turn 2: a part is text"),
        (["fine", 5], "turn 2: a part is text or an object with one of: say, think, call"),
        ([["fine", {"sya": "x"}]], "turn 1: a part is text or an object"),
        ([{"say": 5}], "turn 1: `say` is not text"),
        ([{"call": "exec", "arguments": [1]}], "turn 1: `arguments` is neither"),
        ([{"fail": "429"}], "turn 1: `fail` is not an integer"),
        ([{"end": "tired"}], "turn 1: `end` is 'tired'; allowed: stop, tool_calls, length"),
    ],
)
def test_a_fault_is_named_with_its_turn(script: JsonValue, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        script_from_json(script)
