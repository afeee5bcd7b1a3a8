"""Configurations for tests of the `mcp` commands, in a folder of their own."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nacre.cli.main import main

SMALL_SERVER = Path(__file__).with_name("small_mcp_server.py")


class Surroundings:
    """A home and a project without any configuration, and the command run in them."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.config = self.home / ".config" / "nacre" / "nacre.json5"
        self.project.mkdir()
        self.config.parent.mkdir(parents=True)
        self._capsys = capsys
        for variable in ("XDG_CONFIG_HOME", "NACRE_CONFIG", "CODEX_HOME", "NACRE_MCP_TOKEN"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.chdir(self.project)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """`nacre mcp` in this process: exit status, standard output, standard error."""
        return self.nacre("mcp", *arguments)

    def nacre(self, *arguments: str) -> tuple[int, str, str]:
        """Any command in this process."""
        status = main(list(arguments))
        out, err = self._capsys.readouterr()
        return status, out, err

    def configure(self, servers: dict[str, Any], **more: Any) -> None:
        document = {"mcp": {"servers": servers}, **more}
        self.config.write_text(json.dumps(document), encoding="utf-8")


def small_server(*arguments: str) -> dict[str, Any]:
    """An entry that starts a server with tools of these names."""
    return {"command": sys.executable, "args": [str(SMALL_SERVER), *arguments]}
