"""The rules that all tool surfaces share: calls, results and names."""

import json
import re

import pytest

from nacre.errors import ToolPayloadError
from nacre.json_types import JsonObject, JsonValue, encode_json
from nacre.messages import ImagePart, SentPayload
from nacre.run_context import AbortController
from nacre.tools.surface import (
    MAX_RESULT_BYTES,
    CallResult,
    DirectResult,
    InvalidCall,
    assign_tool_names,
    format_direct_result,
    format_result,
    make_call_site,
    parse_call,
    verify_payload,
)
from tests.agent.tools import echo_tool

# Calls.


@pytest.mark.parametrize("given", [{"a": 1}, '{"a": 1}'])
def test_arguments_are_an_object_or_the_json_text_of_one(given: object) -> None:
    assert parse_call("x", given, known=["x"]) == {"a": 1}


@pytest.mark.parametrize("given", [None, "", " \n"])
def test_no_arguments_are_an_empty_object(given: object) -> None:
    assert parse_call("x", given, known=["x"]) == {}


def test_arguments_are_a_copy() -> None:
    given = {"a": 1}
    parse_call("x", given, known=["x"])["a"] = 2
    assert given == {"a": 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "the arguments are not JSON: Expecting"),
        ("\ud800", "the arguments are not JSON"),
        ("[1]", "the arguments are an array; they have to be an object"),
        (5, "the arguments are a number; they have to be an object"),
    ],
)
def test_other_arguments_are_refused_in_words_for_the_model(given: object, message: str) -> None:
    with pytest.raises(InvalidCall, match=message) as caught:
        parse_call("x", given, known=["x"])
    assert caught.value.code == "invalid_input"


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    abort = AbortController().signal
    first, second = (make_call_site("", abort) for _ in range(2))
    assert first.call_id != second.call_id
    assert make_call_site("call_7", abort).call_id == "call_7"
    assert first.abort is abort


def unknown_tool(name: str, known: list[str]) -> str:
    with pytest.raises(InvalidCall) as caught:
        parse_call(name, {}, known=known)
    assert caught.value.code == "unknown_tool"
    return caught.value.message


def test_a_model_that_calls_an_unknown_tool_is_told_what_there_is() -> None:
    assert unknown_tool("x", ["exec", "wait"]) == "there is no tool 'x'; there are: exec, wait"
    assert unknown_tool("x", []).endswith("there are: none")


def test_of_many_tools_only_some_are_named() -> None:
    text = unknown_tool("x" * 1000, [f"tool_{number}" for number in range(1000)])
    assert text.endswith("tool_39 and 960 more")
    assert len(text) < 1000


# Results as the model reads them.


@pytest.mark.parametrize(
    ("value", "text"),
    [("plain", "plain"), ({"a": [1, "ä"]}, '{"a":[1,"ä"]}'), (None, "null"), ("", "")],
)
def test_text_stays_text_and_everything_else_is_json(value: JsonValue, text: str) -> None:
    assert format_result(value) == CallResult(content=text)


@pytest.mark.parametrize(
    "value",
    [
        {"status": "completed", "value": '"' * MAX_RESULT_BYTES, "output": [{"text": "kept"}]},
        {"status": "completed", "value": "ä" * MAX_RESULT_BYTES, "output": ["\x00"] * 100_000},
        {f"{number}": "x" * 10 for number in range(50_000)},
        ["x" * 100] * 10_000,
        {"x" * MAX_RESULT_BYTES: 1},
        {"cut": "x" * MAX_RESULT_BYTES},
    ],
)
def test_a_large_result_is_cut_and_stays_json(value: JsonValue) -> None:
    content = format_result(value).content
    assert len(content.encode()) <= MAX_RESULT_BYTES
    cut = json.loads(content)
    assert f"{len(encode_json(value))} bytes" in cut["cut"]


def test_a_cut_result_keeps_its_small_members() -> None:
    value: JsonObject = {"status": "completed", "value": "x" * MAX_RESULT_BYTES, "output": [1]}
    cut = json.loads(format_result(value).content)
    assert (cut["status"], cut["output"], cut["value"][:3]) == ("completed", [1], '"xx')
    assert len(cut["value"]) > MAX_RESULT_BYTES // 3


def test_half_a_surrogate_pair_does_not_break_the_request() -> None:
    assert format_result("a\ud800b").content.encode().decode() == "a?b"


def test_an_mcp_result_is_its_parts() -> None:
    value: JsonValue = {
        "content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "QUJD", "mimeType": "image/png"},
        ],
        "isError": True,
    }
    left_out = "[image image/png, 3 bytes, left out: its data is not image/png]"
    assert format_result(value, is_mcp=True) == CallResult(
        content=f"one\n{left_out}", is_error=True
    )
    assert format_result(value).content.startswith('{"content"')


def test_the_images_of_an_mcp_result_are_images_and_not_text() -> None:
    part: JsonObject = {"type": "image", "data": "R0lGODlh", "mimeType": "image/gif"}
    value: JsonValue = {"content": [part for _ in range(21)]}
    result = format_result(value, is_mcp=True)
    assert result.images == (ImagePart(url="data:image/gif;base64,R0lGODlh"),) * 20
    *markers, last = result.content.splitlines()
    assert markers == ["[image image/gif, 6 bytes]"] * 20
    assert last == "[image image/gif, 6 bytes, left out: a result may have 20 images]"
    assert "R0lGODlh" not in format_result(value).content


def test_an_mcp_result_without_parts_is_its_structure() -> None:
    value: JsonValue = {"content": [], "structuredContent": {"a": 1}}
    assert format_result(value, is_mcp=True).content == '{"a":1}'


# The tools of a request.


def verify(names: list[str], expected: list[str]) -> None:
    sent = SentPayload(tool_names=tuple(names), tool_bytes=0, payload_bytes=0)
    verify_payload(sent, expected=expected)


@pytest.mark.parametrize("names", [["exec", "wait", "show_image"], ["show_image", "wait", "exec"]])
def test_a_payload_with_exactly_the_surface_passes(names: list[str]) -> None:
    verify(names, ["exec", "wait", "show_image"])


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], "too many: none; missing: exec, wait"),
        (["exec"], "too many: none; missing: wait"),
        (["exec", "wait", "read"], "too many: read; missing: none"),
        (["exec", "exec", "wait"], "too many: exec; missing: none"),
        (["exec", "waiting"], "too many: waiting; missing: wait"),
        (
            ["exec", "wait", *(f"t{number}" for number in range(500))],
            "too many: t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 490 more; missing: none",
        ),
    ],
)
def test_any_other_payload_is_not_sent(names: list[str], problem: str) -> None:
    with pytest.raises(ToolPayloadError) as caught:
        verify(names, ["exec", "wait"])
    assert problem in str(caught.value)


# Names of tools that the model sees themselves.


def test_every_tool_has_a_name_of_its_own_that_providers_take() -> None:
    names = ["echo", "echo", "echo", "read.file", "größe", "x" * 200, "x" * 201]
    owners = ["core", "a", "a", "b", "c", "d", "d"]
    tools = [echo_tool(name, owner=owner) for name, owner in zip(names, owners, strict=True)]
    shown = assign_tool_names(tools)
    assert list(shown.values()) == tools
    assert list(shown)[:5] == ["echo", "a__echo", "a__echo_2", "b__read_file", "c__gr_e"]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in shown)


def test_a_name_that_another_tool_would_be_given_is_not_taken_twice() -> None:
    tools = [echo_tool("a__echo"), echo_tool("echo"), echo_tool("echo", owner="a")]
    assert list(assign_tool_names(tools)) == ["a__echo", "echo", "a__echo_2"]


# Direct results.


async def test_a_large_direct_result_is_formatted_as_a_small_one() -> None:
    rows: list[JsonValue] = [{"id": at, "half": "\ud83d"} for at in range(20_000)]
    large = await format_direct_result(DirectResult(value=rows))
    assert large == format_result(rows)
    assert large.content.startswith('{"value":"[{')
    assert "the whole result has 508891 bytes" in large.content


async def test_a_direct_result_that_is_not_json_is_named_by_its_type() -> None:
    for value in (object(), [object()] * 10_000):
        shown = await format_direct_result(DirectResult(value=value))
        assert shown.content == f'{{"type":"{type(value).__name__}"}}'
