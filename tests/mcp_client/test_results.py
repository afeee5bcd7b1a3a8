"""Results that are too large to be carried whole."""

import threading

import pytest

from nacre.json_types import JsonObject, encode_json
from nacre.mcp_client.results import limit_result_size, shorten_result
from nacre.mcp_client.upstream import RpcError

LARGE = "A" * 100_000


def test_a_small_result_is_carried_as_it_is() -> None:
    result: JsonObject = {"content": [{"type": "text", "text": "x"}], "own": {"a": [1]}}
    assert shorten_result(result, max_bytes=10_000) is result


def test_only_as_much_is_named_as_has_to_be() -> None:
    result: JsonObject = {
        "content": [
            {"type": "audio", "mimeType": "audio/wav", "data": LARGE},
            {"type": "text", "text": "t" * 5_000, "annotations": {"priority": 1}},
        ],
        "structuredContent": {"kept": True},
    }
    before = encode_json(result)
    assert shorten_result(result, max_bytes=10_000) == {
        "content": [
            {"type": "audio", "mimeType": "audio/wav", "omitted": "audio of 75,000 bytes"},
            {"type": "text", "text": "t" * 5_000, "annotations": {"priority": 1}},
        ],
        "structuredContent": {"kept": True},
    }
    assert encode_json(result) == before


def test_resources_text_and_structured_content_are_named() -> None:
    resource: JsonObject = {"uri": "file:///a.bin", "mimeType": "application/zip", "blob": LARGE}
    result: JsonObject = {
        "content": [
            {"type": "resource", "resource": resource},
            {"type": "text", "text": LARGE},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
        ],
        "structuredContent": {"rows": [LARGE]},
        "isError": True,
    }
    assert shorten_result(result, max_bytes=2_000) == {
        "content": [
            {
                "type": "resource",
                "resource": {
                    "uri": "file:///a.bin",
                    "mimeType": "application/zip",
                    "omitted": "blob of 75,000 bytes",
                },
            },
            {"type": "text", "omitted": "text of 100,000 characters"},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
        ],
        "structuredContent": {"omitted": "rows of 100,004 bytes"},
        "isError": True,
    }


def test_contents_of_resources_are_parts() -> None:
    result: JsonObject = {"contents": [{"uri": "a", "blob": LARGE}, {"uri": "b", "text": "small"}]}
    assert shorten_result(result, max_bytes=5_000) == {
        "contents": [{"uri": "a", "omitted": "blob of 75,000 bytes"}, {"uri": "b", "text": "small"}]
    }


def test_very_many_small_members_are_named_as_one() -> None:
    result: JsonObject = {"structuredContent": {f"key{n}": n for n in range(10_000)}}
    assert shorten_result(result, max_bytes=5_000) == {
        "structuredContent": {"omitted": "value of 147,781 bytes in 10,000 members"}
    }


def test_very_many_small_parts_are_named_as_one() -> None:
    result: JsonObject = {"content": [{"type": "text", "text": str(n)} for n in range(10_000)]}
    assert shorten_result(result, max_bytes=5_000) == {
        "omitted": "a result of 298,903 bytes in 10,000 parts"
    }


def test_what_is_not_json_is_an_error() -> None:
    with pytest.raises(RpcError, match=r"the result is not JSON: \$\.a"):
        shorten_result({"a": float("nan")}, max_bytes=1_000)


@pytest.mark.parametrize(
    ("result", "is_in_thread"),
    [
        ({"content": ["x" * 1_000]}, False),
        ({"content": [{"text": "x" * 300_000}]}, True),
        ({"x" * 300_000: 1}, True),
        ({"content": [0] * 6_000}, True),
        ({"content": [[0] * 100] * 100}, True),
    ],
)
async def test_a_large_result_is_looked_at_in_a_thread(
    result: JsonObject, *, is_in_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []

    def noting(given: JsonObject, *, max_bytes: int) -> JsonObject:
        used.append(threading.get_ident())
        return shorten_result(given, max_bytes=max_bytes)

    monkeypatch.setattr("nacre.mcp_client.results.shorten_result", noting)
    assert await limit_result_size(result, max_bytes=10_000_000) == result
    assert (used != [threading.get_ident()]) == is_in_thread
