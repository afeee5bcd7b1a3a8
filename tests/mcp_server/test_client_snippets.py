"""Snippets for clients: what they print can be read by the client, and by us again."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from nacre.config.mcp_entry import starts_nacre
from nacre.mcp_client.client_files import (
    CLIENTS,
    Client,
    ClientFolders,
    client_files,
    client_snippet,
    nacre_command,
)

FOLDERS = ClientFolders(environment={"HOME": "/h"}, project=Path("/p"), platform="linux")
COMMAND = ("/opt/my tools/nacre", "mcp", "--config", 'C:\\é"\x7f\U0001f600.json5')


def text_for(client: Client, name: str = "nacre") -> str:
    return client_snippet(client, FOLDERS, command=COMMAND, name=name).text


@pytest.mark.parametrize("client", ["claude", "cursor"])
def test_claude_and_cursor_are_given_their_section(client: Client) -> None:
    assert json.loads(text_for(client)) == {
        "mcpServers": {"nacre": {"command": COMMAND[0], "args": [*COMMAND[1:]]}}
    }


@pytest.mark.parametrize(
    ("client", "section"), [("claude-code", "mcpServers"), ("vscode", "servers")]
)
def test_claude_code_and_vs_code_are_told_the_type_as_well(client: Client, section: str) -> None:
    assert json.loads(text_for(client)) == {
        section: {"nacre": {"type": "stdio", "command": COMMAND[0], "args": [*COMMAND[1:]]}}
    }


@pytest.mark.parametrize("name", ["nacre", 'my "nacre".x'])
def test_codex_is_given_toml(name: str) -> None:
    assert tomllib.loads(text_for("codex", name)) == {
        "mcp_servers": {name: {"command": COMMAND[0], "args": [*COMMAND[1:]]}}
    }


@pytest.mark.parametrize("client", CLIENTS)
def test_a_snippet_says_where_it_belongs(client: Client) -> None:
    snippet = client_snippet(client, FOLDERS, command=COMMAND)
    assert snippet.language == ("toml" if client == "codex" else "json")
    assert set(snippet.files) <= set(client_files(client, FOLDERS))
    assert [file.name for file in snippet.files if "settings" in file.name] == []
    assert snippet.files


def test_the_command_is_the_program_beside_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert nacre_command("mcp") == [str(tmp_path / "python"), "-m", "nacre.cli.main", "mcp"]
    (tmp_path / "nacre").touch(mode=0o755)
    assert nacre_command("mcp") == [str(tmp_path / "nacre"), "mcp"]


def test_what_is_printed_is_known_as_ourselves_when_it_is_imported() -> None:
    program, *arguments = nacre_command("mcp")
    assert starts_nacre({"command": program, "args": arguments})
