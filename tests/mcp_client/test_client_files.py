"""Servers of other clients: where their files are, and that nothing is lost or made plain."""

import json
from pathlib import Path

import pytest

from nacre.config.mcp import mcp_servers_from
from nacre.errors import ConfigError
from nacre.json_types import JsonObject
from nacre.mcp_client.client_files import (
    CLIENTS,
    Client,
    ClientFolders,
    client_files,
    servers_of_client,
    servers_of_file,
)

GIT: JsonObject = {"command": "uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "${TOKEN}"}}
WEB: JsonObject = {"url": "https://example.com/mcp", "headers": {"A": "${input:token}"}}


@pytest.fixture
def folders(tmp_path: Path) -> ClientFolders:
    # TOKEN is there to be seen if anything should look at it.
    environment = {"HOME": str(tmp_path / "home"), "TOKEN": "hunter2", "INPUT_TOKEN": "hunter2"}
    return ClientFolders(environment=environment, project=tmp_path / "shop", platform="linux")


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("platform", "environment", "claude", "vscode"),
    [
        ("linux", {}, ".config/Claude", ".config/Code/User"),
        ("linux", {"XDG_CONFIG_HOME": "/h/xdg"}, "xdg/Claude", "xdg/Code/User"),
        (
            "darwin",
            {},
            "Library/Application Support/Claude",
            "Library/Application Support/Code/User",
        ),
        ("win32", {}, "AppData/Roaming/Claude", "AppData/Roaming/Code/User"),
        ("win32", {"APPDATA": "/h/roaming"}, "roaming/Claude", "roaming/Code/User"),
    ],
)
def test_each_client_has_its_files_where_its_system_has_them(
    platform: str, environment: dict[str, str], claude: str, vscode: str
) -> None:
    home, project = Path("/h"), Path("/p")
    folders = ClientFolders(
        environment={"HOME": "/h", **environment}, project=project, platform=platform
    )
    assert {client: client_files(client, folders) for client in CLIENTS} == {
        "claude": [home / claude / "claude_desktop_config.json"],
        "claude-code": [project / ".mcp.json", home / ".claude.json"],
        "cursor": [project / ".cursor/mcp.json", home / ".cursor/mcp.json"],
        "vscode": [
            project / ".vscode/mcp.json",
            home / vscode / "mcp.json",
            home / vscode / "settings.json",
        ],
        "codex": [project / ".codex/config.toml", home / ".codex/config.toml"],
    }


def test_codex_may_have_a_home_of_its_own() -> None:
    folders = ClientFolders(environment={"HOME": "/h", "CODEX_HOME": "/c"}, project=Path("/p"))
    assert client_files("codex", folders)[-1] == Path("/c/config.toml")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_file_is_named_once_in_the_home_directory(client: Client) -> None:
    files = client_files(client, ClientFolders(environment={"HOME": "/h"}, project=Path("/h")))
    assert len(files) == len(set(files))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_is_not_there_has_no_servers(client: Client, folders: ClientFolders) -> None:
    found = servers_of_client(client, folders)
    assert (found.servers, found.notes, found.files) == ({}, (), ())


@pytest.mark.parametrize(
    ("client", "section"),
    [("claude", "mcpServers"), ("cursor", "mcpServers"), ("vscode", "servers")],
)
def test_entries_are_taken_as_they_stand_with_their_references(
    client: Client, section: str, folders: ClientFolders
) -> None:
    file = client_files(client, folders)[0]
    text = f"// mine\n{json.dumps({section: {'git': GIT, 'web': WEB}, 'other': 1})}"
    write(file, text)
    found = servers_of_client(client, folders)
    assert found.servers == {"git": GIT, "web": WEB}
    assert found.notes == ()
    assert found.files == (file,)
    assert "hunter2" not in repr(found)


def test_of_two_files_the_nearer_one_wins_and_the_other_is_named(folders: ClientFolders) -> None:
    near, far = client_files("cursor", folders)
    write(near, {"mcpServers": {"git": GIT, "same": WEB}})
    write(far, {"mcpServers": {"git": WEB, "same": WEB, "far": WEB}})
    found = servers_of_client("cursor", folders)
    assert found.servers == {"git": GIT, "same": WEB, "far": WEB}
    assert found.notes == (f"{far}: git is left out: the name is already used",)


def test_claude_code_has_servers_for_one_project_in_the_user_s_file(folders: ClientFolders) -> None:
    projects = {
        str(folders.project): {"mcpServers": {"a": GIT}},
        "/other": {"mcpServers": {"b": GIT}},
    }
    write(folders.home / ".claude.json", {"projects": projects, "mcpServers": {"c": WEB}})
    assert servers_of_client("claude-code", folders).servers == {"a": GIT, "c": WEB}


def test_a_file_of_settings_without_servers_has_none(folders: ClientFolders) -> None:
    write(client_files("vscode", folders)[2], '{"editor.fontSize": 12, /* x */ "mcp": {}}')
    write(client_files("vscode", folders)[1], "")
    assert servers_of_client("vscode", folders).servers == {}


def test_nacre_itself_is_left_out(folders: ClientFolders) -> None:
    entry = {"command": "/usr/bin/nacre", "args": ["mcp"]}
    file = write(client_files("claude", folders)[0], {"mcpServers": {"nacre": entry, "git": GIT}})
    found = servers_of_client("claude", folders)
    assert found.servers == {"git": GIT}
    assert found.notes == (f"{file}: nacre is left out: it starts `nacre mcp` itself",)


CODEX = """
model = "gpt"

[mcp_servers.git]
command = "uvx"
args = ["mcp-server-git", "${HOME}"]
cwd = "/srv"
env = { A = "1" }
env_vars = ["TOKEN", { name = "B" }]
startup_timeout_sec = 20
tool_timeout_sec = 1.5
enabled_tools = ["a", "b"]
disabled_tools = ["b"]
name = "old"
required = true

[mcp_servers.web]
url = "https://example.com/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { X = "y" }
env_http_headers = { Z = "odd name" }
startup_timeout_ms = 1500
enabled = false
"""


def test_codex_servers_become_entries_of_ours(folders: ClientFolders) -> None:
    file = write(folders.home / ".codex" / "config.toml", CODEX)
    found = servers_of_client("codex", folders)
    assert found.servers == {
        "git": {
            "command": "uvx",
            "args": ["mcp-server-git", "$${HOME}"],
            "cwd": "/srv",
            "env": {"TOKEN": "${TOKEN:-}", "A": "1"},
            "startupSeconds": 20,
            "timeoutSeconds": 1.5,
            "allow": ["a", "b"],
            "deny": ["b"],
        },
        "web": {
            "url": "https://example.com/mcp",
            "headers": {"X": "y", "Z": "${env:odd name}", "Authorization": "Bearer ${TOKEN}"},
            "startupSeconds": 1.5,
            "disabled": True,
        },
    }
    assert found.notes == (
        f"{file}: mcp_servers.git.env_vars[1] is not imported",
        f"{file}: mcp_servers.git.required is not imported",
    )


def test_what_was_imported_can_be_read_and_means_what_codex_meant(folders: ClientFolders) -> None:
    file = write(folders.home / ".codex" / "config.toml", CODEX)
    warnings: list[str] = []
    git, web = mcp_servers_from(
        dict(servers_of_file(file).servers), environment={"TOKEN": "t"}, warnings=warnings
    )
    assert warnings == []
    assert git.args == ("mcp-server-git", "${HOME}")
    assert git.env == {"TOKEN": "t", "A": "1"}
    assert web.is_disabled


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.json", "{", "`{file}` is not JSON5: line 1, column 2: unexpected end of input"),
        ("a.json", {"tools": {}}, "`{file}` has no MCP servers"),
        ("a.toml", "x", "`{file}` is not TOML: "),
        ("a.toml", "x = 1", "`{file}` has no MCP servers"),
        ("a.toml", "mcp_servers = 1", "`{file}: mcp_servers` is a number; allowed: an object"),
        ("a.toml", "x = " + "[" * 10_000, "`{file}` is nested too deep"),
    ],
)
def test_a_file_that_cannot_be_taken_over_is_refused_by_its_name(
    tmp_path: Path, name: str, content: object, problem: str
) -> None:
    file = write(tmp_path / name, content)
    with pytest.raises(ConfigError) as refusal:
        servers_of_file(file)
    assert str(refusal.value).startswith(problem.format(file=file))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        servers_of_file(tmp_path / "no.json")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (
            "a.json",
            {"mcpServers": {"x": "hunter2", "y": {"command": "y"}}},
            "`{file}: x` is a text; allowed: an object; it is left out",
        ),
        (
            "a.json",
            {"mcpServers": {"x": None, "y": {"command": "y"}}},
            "`{file}: x` is null; allowed: an object; it is left out",
        ),
        (
            "a.toml",
            "[mcp_servers.x]\ncommand = 1979-05-27\n[mcp_servers.y]\ncommand = 'y'",
            "`{file}: mcp_servers.x.command` is of type date; allowed: text; it is left out",
        ),
    ],
)
def test_an_entry_that_is_wrong_costs_that_server_alone(
    tmp_path: Path, name: str, content: object, problem: str
) -> None:
    file = write(tmp_path / name, content)
    found = servers_of_file(file)
    assert found.servers == {"y": {"command": "y"}}
    assert found.notes == (problem.format(file=file),)
