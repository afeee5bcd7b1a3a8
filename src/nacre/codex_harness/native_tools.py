"""Codex's own tools, by the names that Nacre's tool policy and hooks use."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from nacre.config import fold_tool_name
from nacre.errors import ToolFailedError
from nacre.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools import ToolCall, ToolPolicy

NO_REWRITE: Final = (
    "a hook changed the input of this call; Codex runs its own tools with the input of the model "
    "only, so the call was not made"
)
"""Why a call is refused whose input a hook has changed."""
# Codex and its versions have several names for one tool. Names are compared folded.
_SHELL_NAMES: Final = (
    "exec",
    "exec_command",
    "bash",
    "shell",
    "shell_command",
    "local_shell",
    "container.exec",
    "unified_exec",
    "code_mode_exec",
)
_PATCH_NAMES: Final = ("apply_patch", "applypatch", "write", "edit", "multiedit")
_STDIN_NAMES: Final = ("process", "write_stdin")
_IMAGE_NAMES: Final = ("view_image", "read")
# They change nothing outside of the turn, so that a list in `allow` does not have to name them.
_CONTROL_NAMES: Final = frozenset(
    (
        "codex_permission_approval",
        "create_goal",
        "get_goal",
        "request_permissions",
        "request_user_input",
        "tool_search",
        "update_goal",
        "update_plan",
        "wait",
    )
)
_NATIVE_NAMES: Final = frozenset((*_SHELL_NAMES, *_PATCH_NAMES, *_STDIN_NAMES, "view_image"))
_MCP_PREFIX: Final = "mcp__"
# Codex applies such a command as a patch, without a shell.
_PATCH_COMMAND: Final = re.compile(r"\s*(?:cd\s[^;&|]*&&\s*)?apply_?patch\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeCall:
    """A call of one of Codex's own tools."""

    tool: Tool
    """The tool as policy, hooks and records see it. It cannot be executed by Nacre."""
    input: JsonObject
    """The input in the form of Nacre's tool of this name, where there is one."""
    names: tuple[Tool, ...] = field(repr=False)
    """All tools whose denial refuses this call."""
    alternatives: tuple[tuple[Tool, ...], ...] = field(repr=False)
    """If policy permits all tools of one of these groups, it permits the call."""
    is_control: bool = False
    """Whether only a denial refuses the call."""

    def refusal(self, policy: ToolPolicy) -> str | None:
        """Why the policy does not permit the call, with the setting; None if it does."""
        for tool in self.names:
            denial = policy.denial(tool)
            if denial is not None:
                return denial
        if self.is_control or any(
            all(policy.permits(tool) for tool in group) for group in self.alternatives
        ):
            return None
        return policy.refusal(self.tool)


def is_native_name(name: str) -> bool:
    """Whether a call with this name in a native hook may be one of Codex's own tools."""
    folded = _fold(name)
    return folded in _NATIVE_NAMES or folded.startswith(_MCP_PREFIX)


def parse_native_call(name: str, given: JsonObject) -> NativeCall:
    """Find the tool behind a name of Codex. Raises ToolDefinitionError for an impossible name."""
    folded = _fold(name)
    if folded in _SHELL_NAMES:
        return _parse_shell_call(given)
    if folded in _PATCH_NAMES:
        # A patch creates and changes files, as `write` and `edit` do together.
        either = (_tools("apply_patch"), _tools("applypatch"), _tools("write", "edit"))
        return _make_call("apply_patch", _patch_input(given), _PATCH_NAMES, either)
    if folded in _STDIN_NAMES:
        return _make_call("process", given, (*_STDIN_NAMES, *_SHELL_NAMES), _each(_STDIN_NAMES))
    if folded == "view_image":
        return _make_call("view_image", given, _IMAGE_NAMES, _each(_IMAGE_NAMES))
    if folded.startswith(_MCP_PREFIX):
        return _parse_mcp_call(name, given)
    tool = _tool(name)
    return NativeCall(
        tool=tool,
        input=given,
        names=(tool,),
        alternatives=((tool,),),
        is_control=folded in _CONTROL_NAMES,
    )


def _fold(name: str) -> str:
    return fold_tool_name(name).replace("-", "_")


def _parse_shell_call(given: JsonObject) -> NativeCall:
    command = _command_text(given.get("command", given.get("cmd")))
    is_patch = _PATCH_COMMAND.match(command) is not None
    names = (*_SHELL_NAMES, *_PATCH_NAMES) if is_patch else _SHELL_NAMES
    rest = {key: value for key, value in given.items() if key not in ("command", "cmd")}
    return _make_call("exec", {"command": command, **rest}, names, _each(_SHELL_NAMES))


def _parse_mcp_call(name: str, given: JsonObject) -> NativeCall:
    parts = name[len(_MCP_PREFIX) :].split("__")
    # The name of a server may contain the separator as well, so each split may be the right one.
    splits = [
        ("__".join(parts[:count]), "__".join(parts[count:])) for count in range(1, len(parts))
    ]
    tools = [_tool(tool, owner=server, is_mcp=True) for server, tool in splits if server and tool]
    whole = _tool(name)
    if not tools:
        return NativeCall(tool=whole, input=given, names=(whole,), alternatives=((whole,),))
    return NativeCall(
        tool=tools[0],
        input=given,
        names=(*tools, whole),
        alternatives=tuple((tool,) for tool in (*tools, whole)),
    )


def _make_call(
    name: str,
    given: JsonObject,
    names: Iterable[str],
    alternatives: tuple[tuple[Tool, ...], ...],
) -> NativeCall:
    return NativeCall(
        tool=_tool(name), input=given, names=_tools(*names), alternatives=alternatives
    )


def _command_text(command: JsonValue) -> str:
    if isinstance(command, list):
        return shlex.join(str(part) for part in command)
    return command if isinstance(command, str) else ""


def _patch_input(given: JsonObject) -> JsonObject:
    """Codex calls the text of a patch `command` or `input`."""
    rest = {key: value for key, value in given.items() if key != "command"}
    command = given.get("command")
    return {"input": command, **rest} if isinstance(command, str) else rest


def _each(names: Iterable[str]) -> tuple[tuple[Tool, ...], ...]:
    return tuple((tool,) for tool in _tools(*names))


def _tools(*names: str) -> tuple[Tool, ...]:
    return tuple(_tool(name) for name in names)


@lru_cache(maxsize=256)
def _tool(name: str, *, owner: str = "core", is_mcp: bool = False) -> Tool:
    async def refuse(_given: dict[str, object], _call: ToolCall) -> object:
        raise ToolFailedError(
            f"{name} is a tool of Codex; Nacre cannot execute it", code="tool_failed", tool_id=name
        )

    return Tool(name=name, execute=refuse, owner=owner, source="mcp" if is_mcp else "openclaw")
