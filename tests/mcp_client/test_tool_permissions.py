"""Allow and deny patterns of a server's configuration."""

from typing import Any

import anyio
import pytest

from nacre import CodeMode, Completed, McpConnections
from nacre.config.mcp_entry import McpServerConfig
from nacre.mcp_client.tools import ToolPatterns, ToolPermissions, build_operations
from nacre.tools.catalog import assign_guest_names
from tests.mcp_client.peers import raw


@pytest.mark.parametrize(
    "pattern",
    [
        "delete_repo",
        "DELETE_REPO",
        "deleteRepo",
        "deleterepo",
        "mcp:git:delete_repo",
        "mcp:Git:*",
        "delete*",
        "*Repo",
        "d?lete_repo",
        "*",
    ],
)
def test_a_pattern_matches_a_tool_by_each_of_its_names(pattern: str) -> None:
    assert ToolPatterns("git", [pattern]).matches("delete_repo")


@pytest.mark.parametrize("pattern", ["", "delete", "mcp:hub:delete_repo", "repo", "delete-repo"])
def test_a_pattern_matches_nothing_else(pattern: str) -> None:
    assert not ToolPatterns("git", [pattern]).matches("delete_repo")


def test_a_name_that_programs_share_is_matched_with_its_hash_too() -> None:
    names = assign_guest_names(["delete_repo", "delete-repo"])
    for name, guest_name in names.items():
        assert ToolPatterns("git", [guest_name]).matches(name)
        assert ToolPatterns("git", ["deleteRepo"]).matches(name)


@pytest.mark.parametrize(
    "pattern", ["resources.read", "$resources.read", "Resources.*", "mcp:git:$resources.read"]
)
def test_an_operation_is_matched_with_and_without_its_mark(pattern: str) -> None:
    assert ToolPatterns("git", [pattern]).matches("$resources.read")


def test_composed_and_decomposed_characters_are_the_same() -> None:
    assert ToolPatterns("s", ["caf\N{LATIN SMALL LETTER E WITH ACUTE}"]).matches("cafe\u0301")


def test_the_patterns_that_match_nothing_are_found() -> None:
    patterns = ToolPatterns("git", ["log", "gone", "create*"])
    assert patterns.find_unmatched(["log", "create_tag"]) == ["gone"]


def test_what_is_denied_is_denied_by_any_name_though_it_is_allowed() -> None:
    permissions = ToolPermissions(raw(allow=("*",), deny=("deleteRepo",)))
    assert not permissions.permits("delete_repo")
    assert permissions.permits("log")


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (raw(), ["$prompts.list", "$prompts.get"]),
        (raw(allow=()), []),
        (raw(allow=("echo",)), []),
        (raw(allow=("echo", "prompts.*")), ["$prompts.list", "$prompts.get"]),
        (raw(deny=("prompts.get",)), ["$prompts.list"]),
    ],
)
def test_operations_are_permitted_as_tools_are(config: McpServerConfig, names: list[str]) -> None:

    async def never(*given: object, **more: object) -> dict[str, object]:
        raise AssertionError

    found = build_operations({"prompts": {}}, config, never)  # pyright: ignore[reportArgumentType]
    assert [tool.name for tool in found] == names


async def test_a_server_that_requires_approval_is_not_called_without_one() -> None:
    """Through the library too, where nobody else watches."""
    config = raw(require_approval=("*",))
    async with (
        McpConnections([config]) as connections,
        CodeMode(mcp=connections.servers(), workers=1) as code_mode,
    ):
        with anyio.fail_after(30):
            result = await code_mode.exec(
                """
                const [name] = (await MCP.plain.$api()).tools;
                return MCP.plain[name]({}).then(() => "called", (error) => error.code);
                """
            )
    assert isinstance(result, Completed)
    assert result.value == "approval_denied"


@pytest.mark.parametrize(
    "rules",
    [{"allow": ()}, {"deny": ("*",)}, {"deny": ("mcp:Empty:**",)}, {"deny": ("echo", "mcp:*")}],
)
async def test_programs_do_not_see_a_server_that_its_own_entry_empties(
    rules: dict[str, Any],
) -> None:
    # Its command does not exist, so a start would be an error.
    config = McpServerConfig(name="Empty", transport="stdio", command="no-such-command", **rules)
    async with (
        McpConnections([config, raw()]) as connections,
        CodeMode(mcp=connections.servers(), workers=1) as code_mode,
    ):
        with anyio.fail_after(60):
            listed = await code_mode.exec("return [Object.keys(MCP), await API.list()];")
        definitions = str(code_mode.definitions("openai"))
        states = {status.name: status.state for status in connections.status()}
    assert isinstance(listed, Completed)
    assert "plain" in str(listed.value)
    assert "empty" not in str(listed.value).lower()
    assert "Empty" not in definitions
    assert states["Empty"] == "idle"


@pytest.mark.parametrize("rules", [{"allow": ("gone",)}, {"deny": ("echo", "ECHO*", "[a-z]*")}])
async def test_known_tools_decide_whether_an_entry_empties_its_server(
    rules: dict[str, Any],
) -> None:
    async with McpConnections([raw(**rules)]) as connections:
        (server,) = connections.servers()
        assert await server.tools() == ()
        assert connections.servers() == connections.servers("other session") == []
        assert connections.servers(with_emptied=True) == [server]
