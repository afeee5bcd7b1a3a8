"""Scopes as plain data: what a program is given, and what never reaches one."""

import enum
import math
import pathlib
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

import pytest

from nacre.code_mode.namespace_scope import (
    MAX_SCOPE_BYTES,
    MAX_SCOPE_DEPTH,
    namespace_tool,
    serialise_scope,
)
from nacre.errors import NamespaceError
from nacre.json_types import JsonObject, encode_json


def descriptor_of(scope: object) -> JsonObject:
    return serialise_scope(scope, tool_names=("list", "update")).descriptor


def refusal_of(scope: object) -> str:
    with pytest.raises(NamespaceError) as caught:
        descriptor_of(scope)
    return str(caught.value)


def test_data_and_functions_have_their_kinds_of_node() -> None:
    scope = {
        "repository": {"name": "nacre", "stars": 3},
        "list": namespace_tool("list"),
        "labels": {"all": ["a", "b"], "add": namespace_tool("update")},
        "steps": [namespace_tool("list"), 1],
    }
    serialised = serialise_scope(scope, tool_names=("list", "update"))
    assert serialised.descriptor == {
        "o": {
            "repository": {"v": {"name": "nacre", "stars": 3}},
            "list": {"f": True},
            "labels": {"o": {"all": {"v": ["a", "b"]}, "add": {"f": True}}},
            "steps": {"a": [{"f": True}, {"v": 1}]},
        }
    }
    assert set(serialised.functions) == {("list",), ("labels", "add"), ("steps", "0")}


def test_a_scope_of_data_alone_is_an_object_as_well() -> None:
    assert descriptor_of({"a": [1]}) == {"o": {"a": {"v": [1]}}}
    assert descriptor_of({}) == {"o": {}}


def test_what_stands_in_two_places_is_written_twice() -> None:
    shared = {"open": 1, "close": namespace_tool("update")}
    node = {"o": {"open": {"v": 1}, "close": {"f": True}}}
    assert descriptor_of({"a": shared, "b": [shared, shared]}) == {
        "o": {"a": node, "b": {"a": [node, node]}}
    }


class Colour(enum.Enum):
    """Has a value that JSON has."""

    RED = "red"


class Speaking:
    """Says itself what it is, at length."""

    def __str__(self) -> str:
        return "I say " + "x" * 2000


@dataclass
class Client:
    """What belongs behind a tool."""

    token: str


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (datetime(2024, 1, 2, 3, 4, tzinfo=UTC), "2024-01-02T03:04:00+00:00"),
        (date(2024, 1, 2), "2024-01-02"),
        ({"b", "a"}, ["a", "b"]),
        (frozenset({2}), [2]),
        ((1, "x"), [1, "x"]),
        (b"abc", "[bytes(3)]"),
        (math.nan, None),
        (-math.inf, None),
        (Colour.RED, "red"),
        (Decimal("1.50"), "1.50"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (OrderedDict([("a", 1)]), {"a": 1}),
        (None, None),
        (True, True),
    ],
)
def test_what_json_lacks_becomes_something_that_it_has(value: object, shown: object) -> None:
    assert descriptor_of({"x": value}) == {"o": {"x": {"v": shown}}}


def test_an_object_shows_its_text_shortened_and_never_its_parts_or_address() -> None:
    assert descriptor_of({"x": Client(token="sk-1"), "y": object()}) == {
        "o": {"x": {"v": "[Client]"}, "y": {"v": "[object]"}}
    }
    assert descriptor_of({"x": Speaking()}) == {"o": {"x": {"v": f"I say {'x' * 994}…"}}}


def a_function() -> None: ...


@pytest.mark.parametrize(
    "function", [a_function, lambda: 1, print, partial(a_function), Client, "".upper]
)
def test_a_raw_function_is_refused_with_its_place(function: Callable[..., object]) -> None:
    problem = refusal_of({"issues": [{"list": function}]})
    assert problem.startswith("`issues.0.list` is a function")


def test_a_cycle_is_refused_with_its_place() -> None:
    inner: dict[str, object] = {}
    inner["parent"] = [inner]
    assert refusal_of({"inner": inner}) == "`inner.parent.0` is a part of itself"


@pytest.mark.parametrize(
    "key", ["__proto__", "constructor", "prototype", "", "a.b", "a\0b", "\ud800"]
)
@pytest.mark.parametrize("value", [1, namespace_tool("list")])
def test_an_unsafe_key_is_refused_at_any_depth(key: str, value: object) -> None:
    problem = refusal_of({"deep": [{key: value}]})
    assert problem == f"`deep.0` has the key {key!a}, which is not safe in a namespace"
    assert refusal_of({key: value}).startswith("the scope has the key")


def test_a_key_that_is_not_text_is_refused() -> None:
    # `{1: ..., "1": ...}` would lose one of the two.
    assert refusal_of({"x": {1: "a"}}) == "`x` has a key of type int; keys have to be text"


def test_a_function_may_only_call_a_required_tool() -> None:
    assert refusal_of({"remove": namespace_tool("delete")}) == (
        "`remove` calls 'delete', which is not among its required tools: list, update"
    )


def test_a_scope_that_is_not_a_mapping_is_refused() -> None:
    assert refusal_of([1]) == "the scope is a list; it has to be a mapping"


def test_depth_is_bounded() -> None:
    nested: object = 1
    for _ in range(MAX_SCOPE_DEPTH - 1):
        nested = {"x": nested}
    encode_json(descriptor_of({"x": nested}))
    assert "levels deep" in refusal_of({"x": {"x": nested}})


def test_the_deepest_scope_with_a_function_can_still_be_written_as_json() -> None:
    nested: object = namespace_tool("list")
    for _ in range(MAX_SCOPE_DEPTH):
        nested = {"x": nested}
    encode_json(descriptor_of(nested))


def test_size_is_bounded_by_what_is_written() -> None:
    text = "x" * (MAX_SCOPE_BYTES // 2)
    assert "larger than" in refusal_of({"a": text, "b": text})
    assert "larger than" in refusal_of({"a": "é" * (MAX_SCOPE_BYTES // 2)})


def test_a_few_objects_that_hold_each_other_many_times_cost_no_memory() -> None:
    laughs: object = ["ha"] * 10
    for _ in range(40):
        laughs = [laughs] * 10
    assert "larger than" in refusal_of({"laughs": laughs})


def test_a_long_key_is_shortened_in_the_message() -> None:
    assert len(refusal_of({"x" * 5000 + ".": 1})) < 200
