"""Codex's own tools under every name, and what the tool policy says to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nacre.codex_harness.native_tools import parse_native_call
from nacre.config import ToolRules
from nacre.errors import ToolDefinitionError
from nacre.tools import ToolPolicy
from tests.contract.requirements import requirement

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

SHELLS = ("exec_command", "Bash", "shell", "local_shell", "code_mode_exec", "shell_command", "exec")
PATCHES = ("apply_patch", "apply-patch", "Write", "Edit")


def denying(*names: str) -> ToolPolicy:
    return ToolPolicy([("tools", ToolRules(deny=names))])


def allowing(*names: str) -> ToolPolicy:
    return ToolPolicy([("tools", ToolRules(allow=names))])


@requirement("codex:native-names-never-bypass-policy")
@pytest.mark.parametrize("name", SHELLS)
def test_a_denied_shell_is_denied_under_each_of_its_names(name: str) -> None:
    call = parse_native_call(name, {"command": "ls"})
    assert (call.tool.name, call.tool.id, call.input) == (
        "exec",
        "openclaw:core:exec",
        {"command": "ls"},
    )
    for rule in ("exec", "group:runtime", "bash", "core", "*"):
        assert call.refusal(denying(rule)), rule
    assert call.refusal(allowing("read"))
    assert call.refusal(allowing("exec")) is None
    assert call.refusal(denying("write", "read")) is None


@requirement("codex:native-names-never-bypass-policy")
@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_needs_what_changes_files(name: str) -> None:
    call = parse_native_call(name, {"command": "*** Begin Patch"})
    assert (call.tool.name, call.input) == ("apply_patch", {"input": "*** Begin Patch"})
    for rule in ("apply_patch", "write", "edit", "group:fs"):
        assert call.refusal(denying(rule)), rule
    assert call.refusal(allowing("write"))
    assert call.refusal(allowing("write", "edit")) is None
    assert call.refusal(allowing("apply_patch")) is None


@pytest.mark.parametrize(
    "command", ["apply_patch <<'EOF'\n", "  cd src && apply_patch <<'EOF'\n", "applypatch x"]
)
def test_a_shell_command_that_codex_takes_for_a_patch_is_one(command: str) -> None:
    call = parse_native_call("exec_command", {"cmd": command})
    assert call.tool.name == "exec"
    assert call.refusal(denying("apply_patch"))
    assert parse_native_call("Bash", {"command": "ls"}).refusal(denying("apply_patch")) is None


@requirement("codex:native-names-never-bypass-policy")
def test_tools_of_mcp_servers_have_their_server_as_owner() -> None:
    call = parse_native_call("mcp__notes__add_note", {"text": "x"})
    assert (call.tool.id, call.input) == ("mcp:notes:add_note", {"text": "x"})
    for rule in ("mcp:notes:*", "notes", "add_note", "group:mcp", "mcp__notes__add_note"):
        assert call.refusal(denying(rule)), rule
    # The server may be `my__notes` as well.
    assert parse_native_call("mcp__my__notes__add", {}).refusal(denying("mcp:my__notes:add"))
    assert parse_native_call("mcp__x", {}).refusal(denying("mcp__x"))


@requirement("codex:native-names-never-bypass-policy")
def test_other_tools_are_themselves_and_controls_need_no_permission() -> None:
    assert parse_native_call("spawn_agent", {}).refusal(allowing("exec"))
    assert parse_native_call("spawn_agent", {}).refusal(denying("spawn_agent"))
    assert parse_native_call("update_plan", {}).refusal(allowing("exec")) is None
    assert parse_native_call("tool_search", {}).refusal(denying("tool_search"))
    assert parse_native_call("view_image", {}).refusal(denying("read"))
    assert parse_native_call("write_stdin", {}).refusal(denying("exec"))
    with pytest.raises(ToolDefinitionError):
        parse_native_call("a name with spaces", {})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"cmd": "ls", "workdir": "/x"}, {"command": "ls", "workdir": "/x"}),
        ({"command": ["bash", "-lc", "ls 'a b'"]}, {"command": "bash -lc 'ls '\"'\"'a b'\"'\"''"}),
        ({}, {"command": ""}),
    ],
)
def test_the_input_of_a_shell_is_that_of_exec(given: JsonObject, expected: JsonObject) -> None:
    assert parse_native_call("exec_command", given).input == expected
