"""Fingerprints of what tools say."""

import gc
from dataclasses import replace

import pytest

from nacre.tools import definition as tool_digests
from nacre.tools.definition import Tool, ToolCall, tool_digest


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
    kept = tool_digests._DIGESTS  # pyright: ignore[reportPrivateUsage]
    gc.collect()
    before = len(kept)
    mortal = tool("mortal")
    tool_digest(mortal)
    assert len(kept) == before + 1
    del mortal
    gc.collect()
    assert len(kept) == before
