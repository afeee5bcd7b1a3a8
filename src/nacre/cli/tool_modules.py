"""Loads the tools of the option `--tools package.module:attribute`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from nacre.cli.output import UsageError
from nacre.errors import ToolDefinitionError
from nacre.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence


def load_tools(names: Sequence[str]) -> list[Tool]:
    """Load the tools. An attribute is a tool, a typed function, or a list of these.

    Raises UsageError with the name and the reason.
    """
    if names and "" not in sys.path:
        # As `python -m` does, so that modules of the working directory are found.
        sys.path.insert(0, "")
    return [tool for name in names for tool in _load_attribute(name)]


def _load_attribute(name: str) -> list[Tool]:
    found = _find_attribute(name)
    if isinstance(found, Iterable) and not isinstance(found, (str, bytes)):
        return [_to_tool(item, name) for item in cast("Iterable[object]", found)]
    return [_to_tool(found, name)]


def _find_attribute(name: str) -> object:
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise UsageError(f"--tools is {name!r}; write package.module:attribute")
    try:
        found: object = import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--tools {name}: {error}; modules are searched from the working directory"
        ) from error
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise UsageError(f"--tools {name}: cannot import {module_name}: {problem}") from error
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            raise UsageError(f"--tools {name}: {module_name} has no attribute {path!r}")
        found = getattr(found, attribute)
    return found


def _to_tool(found: object, name: str) -> Tool:
    if isinstance(found, Tool):
        return found
    if not callable(found) or isinstance(found, type):
        kind = type(found).__name__
        raise UsageError(
            f"--tools {name} is a {kind}; allowed: a tool, a typed function, or a list of these"
        )
    from nacre.tools import tool

    try:
        return tool(found)
    except ToolDefinitionError as error:
        raise UsageError(f"--tools {name}: {error}") from error
