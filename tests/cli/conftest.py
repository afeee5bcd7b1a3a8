"""Fixtures for tests of commands."""

from pathlib import Path

import pytest

from tests.cli.agent_setup import configure_agents
from tests.cli.surroundings import Surroundings


@pytest.fixture
def surroundings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Surroundings:
    """A home and a project without any configuration."""
    return Surroundings(tmp_path, monkeypatch, capsys)


@pytest.fixture
def here(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """A project with one agent, which the demonstration model answers for."""
    for variable in ("XDG_STATE_HOME", "XDG_DATA_HOME", "NO_COLOR", "EDITOR", "VISUAL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    configure_agents(surroundings)
    return surroundings
