"""Tool calls: native results, errors, progress, and hostile responses."""

import json

import pytest

from nacre.errors import ToolFailedError
from nacre.json_types import JsonValue
from tests.mcp_client.conftest import Opening
from tests.mcp_client.peers import call, call_tool, raw, text_of, tool_of


async def test_the_result_is_what_the_server_sent_with_members_nobody_knows(
    opening: Opening,
) -> None:
    server = await opening.one(raw())
    assert await call(server, "echo", city="Zürich", deep=[{"n": 2**70}]) == {
        "content": [
            {"type": "text", "text": json.dumps({"city": "Zürich", "deep": [{"n": 2**70}]})}
        ],
        "structuredContent": {"city": "Zürich", "deep": [{"n": 2**70}]},
        "own": [1, None],
    }


async def test_an_error_result_is_a_result(opening: Opening) -> None:
    server = await opening.one(raw())
    result = await call(server, "is_error")
    assert result["isError"] is True


async def test_an_error_of_the_protocol_fails_the_call_with_its_message(opening: Opening) -> None:
    server = await opening.one(raw())
    with pytest.raises(ToolFailedError) as caught:
        await call(server, "error")
    assert caught.value.message == "no such city"
    assert caught.value.code == "tool_failed"
    assert caught.value.tool_id == "mcp:plain:error"
    assert caught.value.details == {"rpcCode": -32602, "data": {"city": "Atlantis"}}


async def test_progress_is_reported_in_order(opening: Opening) -> None:
    server = await opening.one(raw())
    updates: list[JsonValue] = []
    await call_tool(await tool_of(server, "progress"), {"steps": 3}, updates)
    assert updates == [{"progress": n, "total": 3, "message": f"s{n}"} for n in range(3)]


async def test_a_flood_of_progress_ends_with_a_note(opening: Opening) -> None:
    server = await opening.one(raw())
    updates: list[JsonValue] = []
    await call_tool(await tool_of(server, "progress"), {"steps": 5_000}, updates)
    assert len(updates) == 200
    assert updates[-1] == {
        "progress": 199,
        "total": 5_000,
        "message": "more than 200 updates; later ones are dropped",
    }


async def test_half_a_surrogate_pair_in_the_input_does_not_break_the_connection(
    opening: Opening,
) -> None:
    server = await opening.one(raw())
    result = await call(server, "echo", text="a\ud800b", **{"key\udfff": 1})
    assert result["structuredContent"] == {"text": "a\ufffdb", "key\ufffd": 1}
    assert server.status().restarts == 0


async def test_input_that_json_has_not_is_refused_before_it_is_sent(opening: Opening) -> None:
    server = await opening.one(raw())
    with pytest.raises(ToolFailedError, match="the input cannot be sent"):
        await call(server, "echo", number=float("nan"))
    deep: JsonValue = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(ToolFailedError, match="nested more than"):
        await call(server, "echo", deep=deep)
    assert server.status().restarts == 0


async def test_an_answer_with_half_a_surrogate_pair_is_repaired(opening: Opening) -> None:
    server = await opening.one(raw())
    assert await call(server, "half_pair") == {"half": "\ufffd"}


@pytest.mark.parametrize(
    ("tool", "given", "problem"),
    [
        ("not_json", {}, "its response is not JSON"),
        ("no_object", {}, "its response is not a JSON-RPC message"),
        ("deep", {"depth": 5_000}, "its response is nested more than"),
        ("deep", {"depth": 100_000}, "its response is nested more than"),
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_call_at_once(
    opening: Opening, tool: str, given: dict[str, JsonValue], problem: str
) -> None:
    server = await opening.one(raw())
    with pytest.raises(ToolFailedError, match=problem):
        await call(server, tool, **given)
    assert text_of(await call(server, "echo")) == "{}"
    assert server.status().restarts == 0


async def test_ten_megabytes_are_named(opening: Opening) -> None:
    server = await opening.one(raw())
    assert await call(server, "large", characters=10_000_000) == {
        "content": [
            {"type": "text", "text": "here it is"},
            {"type": "image", "mimeType": "image/png", "omitted": "image of 7,500,000 bytes"},
        ]
    }


async def test_a_message_beyond_all_bounds_fails_its_call_and_nothing_else(
    opening: Opening,
) -> None:
    server = await opening.one(raw())
    with pytest.raises(ToolFailedError, match=r"its response has 40,\d+,\d+ bytes, which is too"):
        await call(server, "large", characters=40_000_000)
    assert text_of(await call(server, "echo")) == "{}"
    assert server.status().restarts == 0


async def test_a_result_that_lies_about_its_schema_is_passed_on(opening: Opening) -> None:
    server = await opening.one(raw("crooked"))
    assert await call(server, "liar") == {"content": "no list", "structuredContent": [1, 2]}


@pytest.mark.parametrize("message", ["Connection closed", "rate limit", "SSE stream ended"])
async def test_an_error_with_the_code_of_a_lost_connection_is_an_error_of_the_tool(
    opening: Opening, message: str
) -> None:
    server = await opening.one(raw())
    with pytest.raises(ToolFailedError, match=message) as failure:
        await call(server, "server_error", message=message)
    assert failure.value.details["rpcCode"] == -32000
    assert text_of(await call(server, "echo")) == "{}"
    assert server.status().restarts == 0


@pytest.mark.parametrize("part", ["[]", "{}", "0", '""'])
async def test_a_result_of_too_many_parts_is_refused_before_it_is_read(
    opening: Opening, part: str
) -> None:
    server = await opening.one(raw())
    with pytest.raises(ToolFailedError, match="its response has more than 200,000 parts"):
        await call(server, "parts", of=part, count=300_000, is_text=False)
    assert text_of(await call(server, "echo")) == "{}"
    assert server.status().restarts == 0


async def test_a_text_full_of_commas_is_one_part(opening: Opening) -> None:
    server = await opening.one(raw())
    result = await call(server, "parts", of="[]", count=300_000, is_text=True)
    assert result == {"a": ",".join(["[]"] * 300_000)}


async def test_ids_that_no_request_has_are_passed_over(opening: Opening) -> None:
    server = await opening.one(raw())
    assert text_of(await call(server, "odd_id")) == "done"
    assert server.status().restarts == 0


async def test_progress_beyond_all_numbers_is_left_out(opening: Opening) -> None:
    server = await opening.one(raw())
    updates: list[JsonValue] = []
    await call_tool(await tool_of(server, "huge_progress"), {}, updates)
    assert updates == [{}, {}, {"progress": 1}]
    assert server.status().restarts == 0
