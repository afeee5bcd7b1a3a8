"""Tools: definitions in the formats of providers, digests, and results as JSON."""

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple, cast
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from nacre.errors import ToolFailedError
from nacre.json_types import JsonObject, JsonValue, encode_json
from nacre.large_json import MAX_VALUE_BYTES, MAX_VALUES
from nacre.tools import definition
from nacre.tools.definition import (
    DefinitionFormat,
    Tool,
    ToolCall,
    ToolResult,
    ToolSource,
    convert_result,
    definition_bytes,
    format_definition,
    format_tool,
    tool_digest,
    value_of_result,
)

SCHEMA: JsonObject = {"type": "object", "properties": {"x": {"type": "string"}}}
OUTPUT: JsonObject = {"type": "object"}


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        (
            "openai",
            {
                "type": "function",
                "function": {"name": "n", "description": "d", "parameters": SCHEMA},
            },
        ),
        (
            "openai-responses",
            {
                "type": "function",
                "name": "n",
                "description": "d",
                "parameters": SCHEMA,
                "strict": False,
            },
        ),
        ("anthropic", {"name": "n", "description": "d", "input_schema": SCHEMA}),
        (
            "mcp",
            {"name": "n", "description": "d", "inputSchema": SCHEMA, "outputSchema": OUTPUT},
        ),
    ],
)
def test_every_format_has_its_shape(format: DefinitionFormat, expected: JsonObject) -> None:
    assert format_definition("n", "d", SCHEMA, format, output_schema=OUTPUT) == expected


def test_without_an_output_schema_mcp_is_told_of_none() -> None:
    assert "outputSchema" not in format_definition("n", "d", SCHEMA, "mcp")


def test_what_an_sdk_does_to_a_definition_does_not_reach_the_tool() -> None:
    schema: JsonObject = {"type": "object", "properties": {}}
    shown = format_definition("n", "d", schema, "anthropic")["input_schema"]
    assert isinstance(shown, dict)
    properties = shown["properties"]
    assert isinstance(properties, dict)
    properties["injected"] = True
    assert schema == {"type": "object", "properties": {}}


async def nothing(input: dict[str, object], call: ToolCall) -> object:
    return None


def tool(description: str = "") -> Tool:
    return Tool(name="t", description=description, execute=nothing)


def test_tools_that_say_the_same_have_equal_digests() -> None:
    one, same = tool("a"), tool("a")
    assert tool_digest(one) == tool_digest(same) == tool_digest(one)


@pytest.mark.parametrize(
    "other",
    [
        replace(tool(), name="u"),
        replace(tool(), label="T"),
        replace(tool(), description="d"),
        replace(tool(), owner="o"),
        replace(tool(), source="client"),
        replace(tool(), parameters={"type": "object", "description": "d"}),
    ],
)
def test_a_tool_that_says_anything_else_has_another_digest(other: Tool) -> None:
    assert tool_digest(other) != tool_digest(tool())


def test_what_one_text_ends_with_is_not_what_the_next_begins_with() -> None:
    one, other = replace(tool("bc"), label="a"), replace(tool("c"), label="ab")
    assert tool_digest(one) != tool_digest(other)


def test_nothing_is_kept_of_a_tool_that_is_gone() -> None:
    kept = definition._MEASURED  # pyright: ignore[reportPrivateUsage]
    gc.collect()
    before = len(kept)
    mortal = tool("mortal")
    tool_digest(mortal)
    assert len(kept) == before + 1
    del mortal
    gc.collect()
    assert len(kept) == before


def test_the_size_of_a_definition_is_what_a_request_carries() -> None:
    labelled = Tool(name="a-name", label="a label", description="x" * 500, execute=nothing)
    for one in (tool(), tool(description='"quoted" ünïcode\n'), labelled):
        assert definition_bytes(one) == len(encode_json(format_tool(one, "openai")))


def a_tool(source: ToolSource = "openclaw") -> Tool:
    return Tool(name="probe", owner="tests", source=source, execute=nothing)


def value_of(returned: object) -> JsonValue:
    return value_of_result(a_tool(), returned)


def failure_of(returned: object) -> ToolFailedError:
    with pytest.raises(ToolFailedError) as caught:
        value_of(returned)
    assert caught.value.tool_id == "openclaw:tests:probe"
    return caught.value


class Colour(Enum):
    """Holds a tuple: its value is converted as well."""

    RED = (1, 2)


class Level(IntEnum):
    """A number to Python."""

    HIGH = 3


class Kind(StrEnum):
    """A text to Python."""

    FILE = "file"


@dataclass
class Point:
    """A plain dataclass with members that need converting."""

    x: float
    when: date


class Account(BaseModel):
    """A model with an alias."""

    user_name: str = Field(alias="userName")
    balance: Decimal
    ratio: float = float("nan")


class Pair(NamedTuple):
    """A tuple to Python."""

    left: int
    right: str


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2.5,
        "text",
        [],
        {},
        {"a": [1, None, {"b": "ä"}]},
        {"content": ["not", "parts"]},
    ],
)
def test_json_is_passed_on_as_the_same_object(value: JsonValue) -> None:
    assert value_of(value) is value


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        ((1, 2), [1, 2]),
        (frozenset({7}), [7]),
        (Pair(1, "r"), [1, "r"]),
        (OrderedDict([("a", 1)]), {"a": 1}),
        (MappingProxyType({"a": (1,)}), {"a": [1]}),
        (float("nan"), "NaN"),
        ([float("inf"), float("-inf")], ["Infinity", "-Infinity"]),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02T03:04:00+00:00"),
        ([date(2026, 1, 2), time(3, 4)], ["2026-01-02", "03:04:00"]),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("/a/b"), "/a/b"),
        (Decimal("1.10"), "1.10"),
        ([Colour.RED, Level.HIGH, Kind.FILE], [[1, 2], 3, "file"]),
        (b"abc", {"type": "bytes", "length": 3}),
        ({"data": bytearray(4)}, {"data": {"type": "bytes", "length": 4}}),
        (
            {2: "a", None: "b", True: "c", Kind.FILE: "d", date(2026, 1, 2): "e"},
            {"2": "a", "true": "c", "null": "b", "file": "d", "2026-01-02": "e"},
        ),
        (Point(x=1.5, when=date(2026, 1, 2)), {"x": 1.5, "when": "2026-01-02"}),
        (
            [Account(userName="ann", balance=Decimal("3.50"))],
            [{"userName": "ann", "balance": "3.50", "ratio": "NaN"}],
        ),
    ],
)
def test_python_values_have_one_form_in_json(returned: object, value: JsonValue) -> None:
    assert value_of(returned) == value


def test_what_is_shared_is_written_twice_and_not_taken_for_a_cycle() -> None:
    shared = [1]
    assert value_of({"a": shared, "b": shared}) == {"a": [1], "b": [1]}


def test_a_cycle_is_refused_by_path() -> None:
    inner: list[object] = []
    inner.append(inner)
    error = failure_of({"list": inner})
    assert error.code == "invalid_tool_result"
    assert "$.list[0] is a part of itself" in error.message


def test_a_cycle_that_branches_is_refused_at_once() -> None:
    both: list[object] = []
    both.extend([both, both])
    assert "is a part of itself" in failure_of(both).message


def test_a_value_too_deep_for_json_is_refused() -> None:
    deep: object = 1
    for _ in range(300):
        deep = [deep]
    assert "nested more than 256 levels" in failure_of(deep).message


def test_what_has_no_form_in_json_is_refused_by_type_and_path() -> None:
    error = failure_of({"rows": [1, object()]})
    assert error.code == "invalid_tool_result"
    assert error.message.startswith(
        "probe returned a value that is not JSON: $.rows[1] is of type object"
    )


@pytest.mark.parametrize("key", [(1, 2), b"x"])
def test_a_key_that_is_not_text_is_refused(key: object) -> None:
    assert "has a key of type" in failure_of({key: 1}).message


def test_two_keys_with_the_same_text_are_refused_and_none_is_lost() -> None:
    assert "has two keys that are '1' as text" in failure_of({1: "a", "1": "b"}).message


def test_a_model_that_cannot_be_dumped_is_refused() -> None:
    class Blob(BaseModel):
        data: bytes

    assert "Blob that cannot be dumped to JSON" in failure_of(Blob(data=b"\xff")).message


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (ToolResult(structured={"a": 1}, text="a is 1"), {"a": 1}),
        (ToolResult(text="a is 1"), "a is 1"),
        (ToolResult(structured=[date(2026, 1, 2)]), ["2026-01-02"]),
        (ToolResult(structured=0, text="none"), 0),
        (ToolResult(), None),
    ],
)
def test_the_structured_part_of_a_result_is_its_value_else_its_text(
    result: ToolResult, value: JsonValue
) -> None:
    assert value_of(result) == value


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (ToolResult(is_error=True, text="no such file"), "no such file"),
        (ToolResult(is_error=True, structured={"message": "gone"}), "gone"),
        (ToolResult(is_error=True, structured={"error": "gone"}), "gone"),
        (ToolResult(is_error=True, structured={"code": 5}), '{"code":5}'),
        (ToolResult(is_error=True), "probe failed without an error message"),
    ],
)
def test_an_error_result_is_raised_with_its_message(result: ToolResult, message: str) -> None:
    error = failure_of(result)
    assert (error.code, error.message) == ("tool_failed", message)


def test_an_error_keeps_its_structured_part_for_the_program() -> None:
    error = failure_of(ToolResult(is_error=True, text="no", structured={"status": 404}))
    assert error.details == {"structured": {"status": 404}}


def test_a_long_error_message_is_cut_and_says_how_long_it_was() -> None:
    message = failure_of(ToolResult(is_error=True, text="x" * 100_000)).message
    assert len(message) < 10_000
    assert message.endswith("… (100000 characters)")


TEXT = {"type": "text", "text": "hello"}


@pytest.mark.parametrize(
    ("envelope", "value"),
    [
        ({"content": [TEXT]}, "hello"),
        ({"content": [TEXT, TEXT], "isError": False}, "hello\nhello"),
        ({"content": [TEXT], "structuredContent": {"a": 1}, "details": 2}, {"a": 1}),
        ({"content": [TEXT], "details": {"b": 2}}, {"b": 2}),
        ({"content": [], "structuredContent": [1]}, [1]),
        ({"content": [], "isError": False}, ""),
        (
            {"content": [TEXT, {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="}]},
            "hello\n[image image/png, 5 bytes]",
        ),
        ({"content": [{"type": "resource_link", "uri": "file:///a"}]}, "[resource_link file:///a]"),
        ({"content": [{"type": "resource", "resource": {"uri": "x:1", "text": "body"}}]}, "body"),
        (
            {"content": [{"type": "resource", "resource": {"uri": "x:1", "blob": "aGk="}}]},
            "[resource x:1, 2 bytes]",
        ),
        ({"content": [{"type": "text", "text": 5}]}, "[text]"),
    ],
)
def test_an_envelope_is_opened(envelope: object, value: JsonValue) -> None:
    assert value_of(envelope) == value


@pytest.mark.parametrize(
    "data",
    [
        {"content": []},
        {"content": [TEXT], "title": "a page"},
        {"content": "text"},
        {"content": [{"kind": "text"}]},
    ],
)
def test_data_that_only_looks_like_an_envelope_is_passed_on(data: JsonValue) -> None:
    assert value_of(data) == data


def test_an_error_envelope_is_raised() -> None:
    error = failure_of({"content": [TEXT], "isError": True})
    assert (error.code, error.message) == ("tool_failed", "hello")


def test_the_result_of_an_mcp_tool_is_native_even_when_it_is_an_error() -> None:
    envelope = cast("JsonValue", {"content": [TEXT], "isError": True, "_meta": {}})
    assert value_of_result(a_tool("mcp"), envelope) is envelope


class Number(int):
    """Cannot be read as a number."""

    def __int__(self) -> int:
        raise RuntimeError("boom")


class Items(dict[str, object]):
    """Cannot be gone through."""

    def items(self) -> Any:
        raise KeyError("boom")


class Masked:
    """Does not say what it is."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("boom")

    # A property cannot be overridden without its setter.
    @__class__.setter
    def __class__(self, kind: object) -> None:
        raise NotImplementedError


@dataclass
class Lazy:
    """Has no attribute to give."""

    value: int

    def __getattribute__(self, name: str) -> Any:
        raise LookupError("boom")


# Made in the test: pytest looks at parameters more closely than they can bear.
@pytest.mark.parametrize(
    "make",
    [
        lambda: Number(5),
        lambda: Items(a=1),
        Masked,
        lambda: Lazy(1),
        lambda: [Lazy(1)],
        lambda: ToolResult(structured=Number(5)),
    ],
)
def test_a_value_whose_own_code_raises_is_an_invalid_result(make: Callable[[], object]) -> None:
    failure = failure_of(make())
    assert failure.code == "invalid_tool_result"
    assert failure.message.startswith("probe returned a value whose own code raised ")
    assert failure.__cause__ is not None


@pytest.mark.parametrize("is_error", [False, True])
def test_the_text_of_a_result_has_to_be_text(is_error: bool) -> None:
    result = ToolResult(text=cast("str", 5), is_error=is_error)
    assert failure_of(result).code == "invalid_tool_result"


def doubled(times: int) -> list[object]:
    """Small in memory, but with 2 to the power of `times` values as JSON."""
    value: list[object] = [0]
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ("x" * (MAX_VALUE_BYTES + 1), f"has more than {MAX_VALUE_BYTES} bytes"),
        ([0] * (MAX_VALUES + 1), f"has more than {MAX_VALUES} values"),
        (doubled(40), f"has more than {MAX_VALUES} values"),
        (ToolResult(text="x" * (MAX_VALUE_BYTES + 1)), f"has more than {MAX_VALUE_BYTES} bytes"),
    ],
    ids=["text", "list", "shared lists", "result"],
)
def test_a_result_that_is_too_large_is_refused_before_it_is_converted(
    returned: object, problem: str
) -> None:
    failure = failure_of(returned)
    assert failure.code == "result_too_large"
    assert failure.message == f"the result of probe {problem}; request less data at a time"


async def test_a_large_result_is_converted_in_another_thread() -> None:
    threads: list[int] = []

    class Noting(Mapping[str, object]):
        """Large, and notes the threads that read it."""

        def __getitem__(self, key: str) -> object:
            threads.append(threading.get_ident())
            return key

        def __iter__(self) -> Iterator[str]:
            return map(str, range(10_000))

        def __len__(self) -> int:
            return 10_000

    value = await convert_result(a_tool(), Noting())
    assert isinstance(value, dict)
    assert len(value) == 10_000
    assert set(threads[-10_000:]) != {threading.get_ident()}


async def test_a_small_result_whose_own_code_raises_is_an_invalid_result() -> None:
    with pytest.raises(ToolFailedError) as caught:
        await convert_result(a_tool(), Lazy(1))
    assert caught.value.code == "invalid_tool_result"
