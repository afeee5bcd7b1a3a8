"""Codex's own tools, by the names that Nacre's tool policy and hooks use."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from nacre.config import fold_tool_name
from nacre.errors import ToolDefinitionError, ToolFailedError
from nacre.json_types import get_text
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


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeEnding:
    """The end of a call of one of Codex's own tools."""

    call: NativeCall
    result: JsonValue = None
    """As the result of Nacre's tool of this name, where there is one."""
    error: str = ""
    error_code: str = ""
    """Empty if the call was made. A command that was run has not failed, whatever its exit code."""
    duration_ms: float = 0.0

    @property
    def is_failed(self) -> bool:
        return bool(self.error_code)

    def to_json(self) -> JsonObject:
        """The data of a `call.ended` event."""
        if self.is_failed:
            return {
                "outcome": "failed",
                "durationMs": self.duration_ms,
                "error": self.error,
                "errorCode": self.error_code,
            }
        ended: JsonObject = {"outcome": "completed", "durationMs": self.duration_ms}
        return ended if self.result is None else {**ended, "result": self.result}


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


def parse_item_call(item: JsonObject) -> NativeCall | None:
    """The call of an item of the app-server; None for items that are not calls of native tools."""
    match item.get("type"):
        case "commandExecution":
            name, given = "exec", {"command": item.get("command"), "cwd": item.get("cwd")}
        case "fileChange":
            name, given = "apply_patch", {"changes": item.get("changes")}
        case "mcpToolCall":
            name = f"{_MCP_PREFIX}{item.get('server')}__{item.get('tool')}"
            arguments = item.get("arguments")
            given = arguments if isinstance(arguments, dict) else {}
        case "webSearch":
            name, given = "web_search", {"query": item.get("query")}
        case "imageView":
            name, given = "view_image", {"path": item.get("path")}
        case "imageGeneration":
            name, given = "image_generation", {}
        case "collabAgentToolCall":
            name, given = get_text(item, "tool"), {"prompt": item.get("prompt")}
        case _:
            return None
    try:
        return parse_native_call(name, given)
    except ToolDefinitionError:
        return None


def parse_item_ending(item: JsonObject, call: NativeCall) -> NativeEnding:
    """The end of the call of a completed item."""
    duration, status = item.get("durationMs"), item.get("status")
    duration_ms = float(duration) if isinstance(duration, int | float) else 0.0
    exit_code = item.get("exitCode")
    if status == "declined" or (status == "failed" and not isinstance(exit_code, int)):
        return NativeEnding(
            call=call,
            error=_describe_failure(item),
            error_code="approval_denied" if status == "declined" else "tool_failed",
            duration_ms=duration_ms,
        )
    result: JsonValue = None
    match item.get("type"):
        case "commandExecution":
            result = {"exitCode": exit_code, "output": item.get("aggregatedOutput") or ""}
        case "fileChange":
            result = {"changes": item.get("changes")}
        case "mcpToolCall":
            result = item.get("result")
        case "imageGeneration":
            result = {"savedPath": item.get("savedPath")}
        case _:
            # Codex does not report it.
            pass
    return NativeEnding(call=call, result=result, duration_ms=duration_ms)


def _describe_failure(item: JsonObject) -> str:
    error = item.get("error")
    if isinstance(error, dict):
        return str(error.get("message", error))
    status = item.get("status")
    problem = "it was not approved" if status == "declined" else f"it has the status {status}"
    return str(error or problem)


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
