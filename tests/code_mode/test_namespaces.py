"""Namespaces: who may register what, which runs see them, their scopes and their functions."""

import enum
import math
import pathlib
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from nacre.code_mode.namespaces import (
    MAX_SCOPE_BYTES,
    MAX_SCOPE_DEPTH,
    CreateScope,
    Namespace,
    NamespaceContext,
    NamespaceRegistration,
    NamespaceRegistry,
    NamespaceRuntime,
    ResolvedCall,
    namespace_tool,
    open_namespace,
    serialise_scope,
    visible_registrations,
)
from nacre.errors import NamespaceError, ToolInputError, UnknownToolError
from nacre.json_types import JsonObject, JsonValue, encode_json
from nacre.run_context import AbortController, RunContext
from nacre.sandbox import Completed, Sandbox, SandboxOptions
from nacre.tools.catalog import build_catalog
from nacre.tools.definition import Tool
from tests.code_mode.issues_namespace import github_tools, issue_functions, issues
from tests.code_mode.simple_tools import simple_tool


def run_context() -> NamespaceContext:
    context = RunContext(session_id="session_1")
    return NamespaceContext(
        agent_id=context.agent_id,
        session_key=context.session_key,
        session_id=context.session_id,
        run_id=context.run_id,
        config={},
        abort=AbortController().signal,
        context=context,
    )


async def visible(*namespaces: Namespace, tools: list[Tool]) -> list[NamespaceRuntime]:
    registry = NamespaceRegistry()
    for namespace in namespaces:
        registry.register("github", namespace)
    catalog = build_catalog(tools)
    return [
        await open_namespace(registration, catalog, run_context())
        for registration in visible_registrations(registry, catalog)
    ]


async def issues_runtime(create_scope: CreateScope = issue_functions) -> NamespaceRuntime:
    (runtime,) = await visible(issues(create_scope=create_scope), tools=github_tools())
    return runtime


def refusal_of(namespace: Namespace, registry: NamespaceRegistry | None = None) -> str:
    registry = registry or NamespaceRegistry()
    before = registry.registrations
    with pytest.raises(NamespaceError) as caught:
        registry.register("github", namespace)
    assert registry.registrations == before
    return str(caught.value)


# Registration.


@pytest.mark.parametrize(
    "name",
    [
        *("tools", "namespaces", "text", "json", "yield_control", "MCP", "API", "ALL_TOOLS"),
        *("__openclaw", "__openclaw_bridge", "__proto__", "constructor", "then"),
        *("await", "class", "undefined", "arguments", "eval", "NaN", "let", "type"),
        *("Object", "JSON", "Promise", "setTimeout", "URL", "console", "require", "globalThis"),
        *("", "1x", "a-b", "a b", "a.b", "Größe", "x\n", "a;b"),
    ],
)
def test_a_global_name_that_is_taken_or_no_identifier_is_refused(name: str) -> None:
    assert refusal_of(issues(global_name=name)).startswith(
        f"namespace 'github-issues' of plugin 'github': global_name {name!r} is "
    )


async def test_no_global_of_a_cell_can_be_a_namespace() -> None:
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        result = await sandbox.cell("return Object.getOwnPropertyNames(globalThis)").run()
    assert isinstance(result, Completed)
    assert isinstance(result.value, list)
    assert len(result.value) > 60
    for name in result.value:
        assert f"{name!r} is " in refusal_of(issues(global_name=str(name)))


@pytest.mark.parametrize("name", ["Issues", "$", "_calendar", "constructors", "top2"])
def test_any_other_identifier_is_taken(name: str) -> None:
    registry = NamespaceRegistry()
    registry.register("github", issues(global_name=name))
    assert [found.namespace.global_name for found in registry.registrations] == [name]


def test_an_id_of_another_plugin_is_refused_and_both_are_named() -> None:
    registry = NamespaceRegistry()
    registry.register("gitlab", issues(global_name="Other"))
    assert refusal_of(issues(), registry) == (
        "namespace 'github-issues' of plugin 'github': plugin 'gitlab' has registered this id; "
        "clear_plugin() frees it"
    )


def test_a_global_name_belongs_to_one_namespace() -> None:
    registry = NamespaceRegistry()
    registry.register("gitlab", issues(id="gitlab-issues"))
    assert refusal_of(issues(), registry) == (
        "namespace 'github-issues' of plugin 'github': global_name 'Issues' belongs to namespace "
        "'gitlab-issues' of plugin 'gitlab'"
    )


def test_a_namespace_needs_a_tool_a_readable_id_and_a_short_prompt() -> None:
    assert "at least one tool" in refusal_of(issues(required_tool_names=()))
    one_text: Any = "list_issues"
    assert "has to be a tuple" in refusal_of(issues(required_tool_names=one_text))
    assert "readable text" in refusal_of(issues(id=" "))
    assert "readable text" in refusal_of(issues(id="a\nb"))
    assert "its prompt has 5000 characters; the most is 2000" in refusal_of(
        issues(prompt="x" * 5000)
    )


def test_clearing_a_plugin_removes_its_namespaces_and_no_others() -> None:
    registry = NamespaceRegistry()
    registry.register("github", issues())
    registry.register("github", issues(id="second", global_name="Second"))
    registry.register("gitlab", issues(id="third", global_name="Third"))
    assert registry.clear_plugin("github") == 2
    assert registry.clear_plugin("github") == 0
    assert [found.plugin_id for found in registry.registrations] == ["gitlab"]
    assert visible_registrations(registry, build_catalog(github_tools())) == []
    registry.register("github", issues())
    registry.clear()
    assert registry.registrations == ()


# Visibility.


async def test_a_namespace_is_visible_when_its_plugin_owns_all_its_tools() -> None:
    (runtime,) = await visible(issues(), tools=github_tools())
    assert (runtime.namespace.id, runtime.plugin_id) == ("github-issues", "github")
    assert runtime.descriptor == {
        "o": {
            "session": {"v": "session_1"},
            "list": {"f": True},
            "update": {"f": True},
            "labels": {"o": {"all": {"f": True}}},
        }
    }


@pytest.mark.parametrize(
    "tools",
    [
        [],
        github_tools()[:1],
        github_tools(owner="evil"),
        [*github_tools()[:1], simple_tool("update_issue", owner="evil")],
        # An MCP server and an application choose their names themselves.
        github_tools(source="mcp"),
        github_tools(source="client"),
        github_tools(catalog_mode="direct-only"),
    ],
)
async def test_a_namespace_is_hidden_when_a_tool_is_absent_or_another_s(tools: list[Tool]) -> None:
    def never(context: NamespaceContext) -> Mapping[str, object]:
        raise AssertionError("a hidden namespace makes no scope")

    assert await visible(issues(create_scope=never), tools=tools) == []


async def test_a_namespace_that_is_hidden_cannot_be_opened() -> None:
    registration = NamespaceRegistration(plugin_id="github", namespace=issues())
    with pytest.raises(NamespaceError, match="this run may not call all of its tools"):
        await open_namespace(registration, build_catalog([]), run_context())


async def test_a_scope_may_be_made_by_an_async_function() -> None:
    async def create(context: NamespaceContext) -> Mapping[str, object]:
        return {"agent": context.agent_id}

    assert (await issues_runtime(create)).descriptor == {"o": {"agent": {"v": "main"}}}


async def test_a_scope_that_cannot_be_made_names_plugin_and_namespace() -> None:
    def broken(context: NamespaceContext) -> Mapping[str, object]:
        raise KeyError("token")

    with pytest.raises(NamespaceError) as caught:
        await issues_runtime(broken)
    assert str(caught.value) == (
        "namespace 'github-issues' of plugin 'github': its scope could not be made: "
        "KeyError: 'token'"
    )


async def test_a_scope_with_a_raw_function_is_refused_before_any_program_runs() -> None:
    with pytest.raises(NamespaceError, match=r"'github-issues' of plugin 'github': `list` is a"):
        await issues_runtime(lambda context: {"list": lambda: 1})


# Calls.


@pytest.mark.parametrize(
    ("path", "args", "tool_id", "expected"),
    [
        (["list"], [{"state": "open"}], "openclaw:github:list_issues", {"state": "open"}),
        (["list"], [], "openclaw:github:list_issues", {}),
        (["list"], [None], "openclaw:github:list_issues", {}),
        (["list"], [{"a": 1}, "ignored"], "openclaw:github:list_issues", {"a": 1}),
        (
            ["update"],
            [7, {"x": 1}],
            "openclaw:github:update_issue",
            {"number": 7, "patch": {"x": 1}},
        ),
        (["labels", "all"], ["x"], "openclaw:github:list_issues", {"labels": True}),
    ],
)
async def test_a_function_leads_to_its_tool_with_its_input(
    path: JsonValue, args: JsonValue, tool_id: str, expected: dict[str, JsonValue]
) -> None:
    runtime = await issues_runtime()
    assert runtime.resolve(path, args) == ResolvedCall(tool_id=tool_id, input=expected)


@pytest.mark.parametrize(
    "path",
    [
        [],
        ["labels"],
        ["session"],
        ["labels.all"],
        ["list", "call"],
        ["__proto__"],
        ["constructor", "constructor"],
        ["list_issues"],
        "list",
        None,
        7,
        {"0": "list"},
        [["list"]],
        [{"a": 1}],
        ["list", None],
        ["x" * 1_000_000],
        ["list"] * 100_000,
    ],
)
async def test_a_forged_path_is_refused_in_few_words(path: object) -> None:
    with pytest.raises(UnknownToolError) as caught:
        (await issues_runtime()).resolve(path, [])
    assert caught.value.message.endswith(
        "is not a function of the namespace Issues; "
        "it has: Issues.list, Issues.update, Issues.labels.all"
    )
    assert len(caught.value.message) < 300
    assert len(caught.value.tool_id) < 100


@pytest.mark.parametrize("args", [None, {}, "x", {"length": 1}])
async def test_forged_arguments_are_refused(args: object) -> None:
    with pytest.raises(ToolInputError, match=r"Issues\.list: its arguments are not a list"):
        (await issues_runtime()).resolve(["list"], args)


async def test_arguments_that_a_mapper_cannot_use_are_the_program_s_to_hear() -> None:
    with pytest.raises(ToolInputError) as caught:
        (await issues_runtime()).resolve(["update"], [7])
    assert (caught.value.message, caught.value.tool_id) == (
        "Issues.update cannot use its 1 argument(s): IndexError: list index out of range",
        "openclaw:github:update_issue",
    )


@pytest.mark.parametrize("first", ["text", 7, True, [1]])
async def test_an_input_that_is_no_object_is_refused(first: JsonValue) -> None:
    with pytest.raises(ToolInputError, match=r"Issues\.list takes an object; this is an? "):
        (await issues_runtime()).resolve(["list"], [first])


async def test_an_input_that_is_not_json_is_refused() -> None:
    runtime = await issues_runtime(
        lambda context: {"list": namespace_tool("list_issues", lambda args: {"when": object()})}
    )
    with pytest.raises(ToolInputError, match=r"Issues\.list: the input \$\.when is of type object"):
        runtime.resolve(["list"], [])


async def test_what_a_mapper_keeps_is_not_what_the_tool_gets() -> None:
    kept: dict[str, object] = {"filter": {"state": "open"}}
    runtime = await issues_runtime(
        lambda context: {"list": namespace_tool("list_issues", lambda args: kept)}
    )
    first = runtime.resolve(["list"], []).input
    first["filter"] = None
    assert runtime.resolve(["list"], []).input == {"filter": {"state": "open"}}


def descriptor_of(scope: object) -> JsonObject:
    return serialise_scope(scope, tool_names=("list", "update")).descriptor


def scope_refusal_of(scope: object) -> str:
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
    problem = scope_refusal_of({"issues": [{"list": function}]})
    assert problem.startswith("`issues.0.list` is a function")


def test_a_cycle_is_refused_with_its_place() -> None:
    inner: dict[str, object] = {}
    inner["parent"] = [inner]
    assert scope_refusal_of({"inner": inner}) == "`inner.parent.0` is a part of itself"


@pytest.mark.parametrize(
    "key", ["__proto__", "constructor", "prototype", "", "a.b", "a\0b", "\ud800"]
)
@pytest.mark.parametrize("value", [1, namespace_tool("list")])
def test_an_unsafe_key_is_refused_at_any_depth(key: str, value: object) -> None:
    problem = scope_refusal_of({"deep": [{key: value}]})
    assert problem == f"`deep.0` has the key {key!a}, which is not safe in a namespace"
    assert scope_refusal_of({key: value}).startswith("the scope has the key")


def test_a_key_that_is_not_text_is_refused() -> None:
    # `{1: ..., "1": ...}` would lose one of the two.
    assert scope_refusal_of({"x": {1: "a"}}) == "`x` has a key of type int; keys have to be text"


def test_a_function_may_only_call_a_required_tool() -> None:
    assert scope_refusal_of({"remove": namespace_tool("delete")}) == (
        "`remove` calls 'delete', which is not among its required tools: list, update"
    )


def test_a_scope_that_is_not_a_mapping_is_refused() -> None:
    assert scope_refusal_of([1]) == "the scope is a list; it has to be a mapping"


def test_depth_is_bounded() -> None:
    nested: object = 1
    for _ in range(MAX_SCOPE_DEPTH - 1):
        nested = {"x": nested}
    encode_json(descriptor_of({"x": nested}))
    assert "levels deep" in scope_refusal_of({"x": {"x": nested}})


def test_the_deepest_scope_with_a_function_can_still_be_written_as_json() -> None:
    nested: object = namespace_tool("list")
    for _ in range(MAX_SCOPE_DEPTH):
        nested = {"x": nested}
    encode_json(descriptor_of(nested))


def test_size_is_bounded_by_what_is_written() -> None:
    text = "x" * (MAX_SCOPE_BYTES // 2)
    assert "larger than" in scope_refusal_of({"a": text, "b": text})
    assert "larger than" in scope_refusal_of({"a": "é" * (MAX_SCOPE_BYTES // 2)})


def test_a_few_objects_that_hold_each_other_many_times_cost_no_memory() -> None:
    laughs: object = ["ha"] * 10
    for _ in range(40):
        laughs = [laughs] * 10
    assert "larger than" in scope_refusal_of({"laughs": laughs})


def test_a_long_key_is_shortened_in_the_message() -> None:
    assert len(scope_refusal_of({"x" * 5000 + ".": 1})) < 200
