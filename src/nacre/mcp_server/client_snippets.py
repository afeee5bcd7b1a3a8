"""What to paste into a client's file so that the client starts `nacre mcp`."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, assert_never

from nacre.mcp_client.client_files import client_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nacre.mcp_client.client_files import Client, ClientFolders

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSnippet:
    """Text, and where it belongs."""

    text: str
    language: Literal["json", "toml"]
    files: tuple[Path, ...]
    """Where the client looks; the project's file first, if it has one, and the user's last."""


def client_snippet(
    client: Client, folders: ClientFolders, *, command: Sequence[str], name: str = "nacre"
) -> ClientSnippet:
    """For a client that shall start `command` as its server `name`."""
    return ClientSnippet(
        text=_text(client, name, command),
        language="toml" if client == "codex" else "json",
        # VS Code's settings are where older versions had servers.
        files=tuple(file for file in client_files(client, folders) if file.name != "settings.json"),
    )


def nacre_command(*arguments: str) -> list[str]:
    """How to start this very `nacre` from anywhere: a client may not have the shell's PATH."""
    program = shutil.which("nacre", path=os.path.dirname(sys.executable))
    start = [program] if program else [sys.executable, "-m", "nacre.cli.main"]
    return [*start, *arguments]


def _text(client: Client, name: str, command: Sequence[str]) -> str:
    program, *arguments = command
    entry = {"command": program, "args": arguments}
    match client:
        case "claude" | "cursor":
            return _json({"mcpServers": {name: entry}})
        case "claude-code":
            return _json({"mcpServers": {name: {"type": "stdio", **entry}}})
        case "vscode":
            return _json({"servers": {name: {"type": "stdio", **entry}}})
        case "codex":
            key = name if _BARE_KEY.fullmatch(name) else _toml_text(name)
            listed = ", ".join(map(_toml_text, arguments))
            return f"[mcp_servers.{key}]\ncommand = {_toml_text(program)}\nargs = [{listed}]\n"
        case _:
            assert_never(client)


def _json(value: object) -> str:
    return f"{json.dumps(value, indent=2, ensure_ascii=False)}\n"


def _toml_text(text: str) -> str:
    # As in JSON, but for one character that TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
