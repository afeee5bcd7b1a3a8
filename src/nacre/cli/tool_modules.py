"""A person's own tools, found by `package.module:attribute`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from nacre.cli.output import UsageProblem
from nacre.errors import ToolDefinitionError
from nacre.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence


def load_tools(names: Sequence[str]) -> list[Tool]:
    """The tools behind the names; raises UsageProblem that says which name and why.

    An attribute is a tool, a typed function, which becomes one, or a list of these.
    """
    if names and "" not in sys.path:
        # As `python -m` does: people name the modules of the project they stand in.
        sys.path.insert(0, "")
    return [tool for name in names for tool in _tools_from(name)]


def _tools_from(name: str) -> list[Tool]:
    found = _attribute(name)
    if isinstance(found, Iterable) and not isinstance(found, (str, bytes)):
        return [_as_tool(item, name) for item in cast("Iterable[object]", found)]
    return [_as_tool(found, name)]


def _attribute(name: str) -> object:
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise UsageProblem(f"--tools is {name!r}; write it as package.module:attribute")
    try:
        found: object = import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageProblem(
            f"--tools {name}: {error}; it is looked for from the working directory"
        ) from error
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise UsageProblem(f"--tools {name}: {module_name} does not import: {problem}") from error
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            raise UsageProblem(f"--tools {name}: {module_name} has no attribute {path!r}")
        found = getattr(found, attribute)
    return found


def _as_tool(found: object, name: str) -> Tool:
    if isinstance(found, Tool):
        return found
    if not callable(found) or isinstance(found, type):
        kind = type(found).__name__
        raise UsageProblem(
            f"--tools {name} holds a {kind}; allowed: a tool, a typed function, or a list of these"
        )
    from nacre.tools import tool

    try:
        return tool(found)
    except ToolDefinitionError as error:
        raise UsageProblem(f"--tools {name}: {error}") from error
