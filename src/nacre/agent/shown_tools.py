"""Tools as a model is shown them by themselves: specs, and names that every provider takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from nacre.providers.base import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nacre.json_types import JsonObject
    from nacre.tools import Tool

_MAX_NAME_CHARACTERS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")


def make_tool_specs(definitions: Sequence[JsonObject]) -> list[ToolSpec]:
    """Specs of definitions in Anthropic's shape, which is the plainest."""
    return [
        ToolSpec(
            name=str(each["name"]),
            description=str(each["description"]),
            parameters=cast("JsonObject", each["input_schema"]),
        )
        for each in definitions
    ]


def assign_tool_names(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Each tool under a name of its own: its name where that is free and one that providers take,
    else a name with its owner in it."""
    shown: dict[str, Tool] = {}
    for tool in tools:
        is_fine = _NAME.fullmatch(tool.name) and tool.name not in shown
        shown[tool.name if is_fine else _free_name(tool, shown)] = tool
    return shown


def _free_name(tool: Tool, taken: dict[str, Tool]) -> str:
    wanted = _NOT_IN_NAMES.sub("_", f"{tool.owner}__{tool.name}")
    name, count = wanted[:_MAX_NAME_CHARACTERS], 1
    while name in taken:
        count += 1
        ending = f"_{count}"
        name = wanted[: _MAX_NAME_CHARACTERS - len(ending)] + ending
    return name
