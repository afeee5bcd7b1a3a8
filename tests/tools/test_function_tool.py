"""The `tool` decorator: schemas, docstrings, calls and refused functions."""

import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from nacre.errors import ToolDefinitionError, ToolInputError
from nacre.run_context import AbortController, RunContext
from nacre.tools.definition import Tool, ToolCall, ToolResult
from nacre.tools.function_tool import tool
from nacre.tools.input_checks.validation import InputValidators


def a_call() -> ToolCall:
    return ToolCall(
        id="call-1",
        parent_id="",
        context=RunContext(),
        abort=AbortController().signal,
        update=lambda value: None,
    )


async def called(made: Tool, **given: Any) -> object:
    with anyio.fail_after(5):
        return await made.execute(given, a_call())


class Place(BaseModel):
    """A model with a name of its own for JSON."""

    city: str
    zip_code: str = Field(default="", alias="zipCode")


@dataclass
class Report:
    """A result."""

    total: int
    day: date


class Row(TypedDict):
    """A result, too."""

    id: int


async def search(query: str, limit: Annotated[int, Field(ge=1, le=100)] = 10) -> str:
    """Find documents.

    Looks at titles first.

    Args:
        query: What to look for.
        limit: How many at most.

    Returns:
        One title per line.
    """
    return f"{query}:{limit}"


def test_schema_and_words_come_from_annotations_and_docstring() -> None:
    made = tool(search)
    assert (made.name, made.id) == ("search", "openclaw:core:search")
    assert made.description == (
        "Find documents.\n\nLooks at titles first.\n\nReturns: One title per line."
    )
    assert made.parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": 100,
                "default": 10,
                "description": "How many at most.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }


def numpy_style(size: int) -> None:
    """Do it.

    Parameters
    ----------
    size : int
        How large.
    """


def sphinx_style(size: int) -> None:
    """Do it.

    :param size: How large.
    """


@pytest.mark.parametrize("function", [numpy_style, sphinx_style])
def test_parameters_are_described_by_every_style_of_docstring(
    function: Callable[..., object],
) -> None:
    made = tool(function)
    assert made.description == "Do it."
    assert made.parameters["properties"] == {
        "size": {"type": "integer", "description": "How large."}
    }


def test_a_field_of_pydantic_says_more_than_the_docstring() -> None:
    @tool
    def sized(size: Annotated[int, Field(description="in bytes")] = Field(default=3, le=9)) -> None:
        """Do it.

        Args:
            size: of something
        """

    assert sized.parameters["properties"] == {
        "size": {"type": "integer", "default": 3, "maximum": 9, "description": "in bytes"}
    }


def test_options_of_the_decorator_win() -> None:
    @tool(
        name="notes.add",
        label="Add note",
        description="Adds.",
        owner="notes",
        source="client",
        catalog_mode="direct-only",
        output_schema={"type": "string"},
    )
    def add() -> Report:
        """Something else."""
        raise NotImplementedError

    assert (add.id, add.label, add.description) == ("client:notes:notes.add", "Add note", "Adds.")
    assert (add.catalog_mode, add.output_schema) == ("direct-only", {"type": "string"})


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    @tool
    def ping() -> str:
        return "pong"

    assert ping.description == ""
    assert ping.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


async def test_values_arrive_as_the_types_that_the_function_asked_for() -> None:
    @tool
    async def book(
        place: Place,
        day: date,
        mode: Literal["train", "plane"] = "train",
        tags: set[str] | None = None,
    ) -> object:
        return place, day, mode, tags

    given = {"place": {"city": "Bern", "zipCode": "3000"}, "day": "2026-05-01", "tags": ["a", "a"]}
    expected = (Place(city="Bern", zipCode="3000"), date(2026, 5, 1), "train", {"a"})
    assert await called(book, **given) == expected


async def test_names_that_pydantic_keeps_for_itself_are_usable() -> None:
    @tool
    async def odd(schema: int, _hidden: int, model_config: int, json: int, copy: int = 5) -> int:
        return schema + _hidden + model_config + json + copy

    given = {"schema": 1, "_hidden": 2, "model_config": 3, "json": 4}
    assert await called(odd, **given) == 15


async def test_an_alias_is_the_name_that_the_model_sees() -> None:
    @tool
    async def find(max_results: Annotated[int, Field(alias="maxResults")]) -> int:
        return max_results

    assert find.parameters["required"] == ["maxResults"]
    assert await called(find, maxResults=3) == 3


async def test_positional_only_parameters_are_passed() -> None:
    @tool
    async def minus(a: int, b: int, /, *, c: int = 0) -> int:
        return a - b - c

    assert await called(minus, b=1, a=10, c=2) == 7


async def test_the_call_is_passed_and_not_described() -> None:
    @tool
    async def whoami(call: ToolCall, shout: bool = False) -> str:
        return call.id.upper() if shout else call.id

    assert list(cast_object(whoami.parameters["properties"])) == ["shout"]
    assert await called(whoami, shout=True) == "CALL-1"


def cast_object(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value  # pyright: ignore[reportUnknownVariableType]


async def test_a_plain_function_runs_in_a_thread_and_the_loop_goes_on() -> None:
    release = threading.Event()

    @tool
    def slow() -> int:
        release.wait(5)
        return threading.get_ident()

    found: list[object] = []

    async def run() -> None:
        found.append(await called(slow))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            release.set()
    assert found[0] != threading.get_ident()


async def test_nobody_waits_for_the_thread_of_an_aborted_call() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool
    def stubborn() -> None:
        started.set()
        release.wait(5)
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(called, stubborn)
        with anyio.fail_after(5):
            while not started.is_set():
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert not ended.is_set()
    release.set()


async def test_what_a_plain_function_hands_on_is_awaited() -> None:
    async def inner() -> int:
        return 7

    assert await called(tool(name="outer")(lambda: inner())) == 7


async def test_objects_methods_and_partials_can_be_tools() -> None:
    class Adder:
        async def __call__(self, a: int) -> int:
            return a + 1

        async def plus(self, a: int) -> int:
            """Add two."""
            return a + 2

    def add(a: int, b: int) -> int:
        return a + b

    assert await called(tool(name="one")(Adder()), a=1) == 2
    assert await called(tool(Adder().plus), a=1) == 3
    assert await called(tool(name="three")(functools.partial(add, b=3)), a=1) == 4


def test_the_function_stays_reachable() -> None:
    assert inspect.unwrap(tool(search).execute) is search


class Stop(BaseModel):
    """Reads only the keys of its fields."""

    place: Place


class Open(BaseModel):
    """Takes other keys."""

    model_config = ConfigDict(extra="allow")
    name: str


class Renamed(BaseModel):
    """Reads a key that its schema does not name."""

    name: str = Field(default="", validation_alias=AliasChoices("name", "title"))


def travel(stops: list[Stop], open: Open | None = None, renamed: Renamed | None = None) -> int:
    return len(stops)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"stops": [{"place": {"city": "Ulm", "zip": "1"}}]}, "`$.stops[0].place.zip`"),
        ({"stops": [{"place": {"city": "Ulm"}, "day": 1}]}, "`$.stops[0].day`"),
    ],
)
def test_unknown_keys_of_nested_models_are_refused(given: Any, problem: str) -> None:
    made = tool(travel)
    with pytest.raises(ToolInputError, match=f"{re.escape(problem)}: is not known"):
        InputValidators().check(made, given)


async def test_a_nested_model_that_takes_other_keys_gets_them() -> None:
    given: Any = {"stops": [], "open": {"name": "a", "b": 1}, "renamed": {"title": "c"}}
    InputValidators().check(tool(travel), given)
    assert await called(tool(travel), **given) == 0


async def test_a_wrong_input_is_explained_by_path_and_value() -> None:
    with pytest.raises(ToolInputError) as caught:
        await called(tool(search), query="x", limit=900, extra=1)
    assert caught.value.tool_id == "openclaw:core:search"
    assert caught.value.message == (
        "the input does not fit search:\n"
        "- `$.limit`: Input should be less than or equal to 100; given: 900\n"
        "- `$.extra`: Extra inputs are not permitted; given: 1\n"
        'given: {"query": "x", "limit": 900, "extra": 1}'
    )


async def test_a_validation_error_of_the_functions_own_is_no_input_error() -> None:
    @tool
    async def parse() -> None:
        Place.model_validate({})

    with pytest.raises(ValueError, match="city"):
        await called(parse)


@pytest.mark.parametrize(
    ("returns", "properties"),
    [(Report, {"total", "day"}), (Place, {"city", "zipCode"}), (Row, {"id"})],
)
def test_a_structured_return_type_becomes_the_output_schema(
    returns: type, properties: set[str]
) -> None:
    def made() -> None: ...

    made.__annotations__["return"] = returns
    schema = tool(made).output_schema
    assert schema is not None
    assert set(cast_object(schema["properties"])) == properties


@pytest.mark.parametrize("returns", [str, list[int], ToolResult, None, Any])
def test_other_return_types_say_nothing(returns: object) -> None:
    def made() -> None: ...

    made.__annotations__["return"] = returns
    assert tool(made).output_schema is None


def untyped(a: int, b: int) -> None: ...


del untyped.__annotations__["a"]


def many(*items: int) -> None: ...


def anything(**options: int) -> None: ...


def indescribable(ok: int, callback: Callable[[], int]) -> None: ...


def foreign(lock: threading.Event) -> None: ...


def unknown_type(item: int) -> None: ...


unknown_type.__annotations__["item"] = "NoSuchType"


def yields() -> Iterator[int]:
    yield 1


@dataclass
class Strange:
    """What pydantic knows no schema for."""

    lock: threading.Event


def strange_result() -> Strange: ...  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (untyped, ["untyped", "'a' has no type annotation"]),
        (many, ["many", "`*items`"]),
        (anything, ["anything", "`**options`"]),
        (indescribable, ["indescribable", "'callback' cannot be described"]),
        (foreign, ["foreign", "'lock' cannot be described"]),
        (unknown_type, ["unknown_type", "'NoSuchType' is not defined at run time"]),
        (yields, ["yields", "it is a generator"]),
        (strange_result, ["strange_result", "return type has no schema", "output_schema"]),
        (Report, ["Report", "is a class"]),
        (lambda: 1, ["lambda", "name="]),
        (functools.partial(numpy_style, size=1), ["name="]),
    ],
)
def test_what_cannot_be_a_tool_is_refused_by_function_and_parameter(
    function: Callable[..., object], words: list[str]
) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        tool(function)
    for word in words:
        assert word in str(caught.value)
