"""Fixtures for tests of the commands that run an agent."""

import pytest

from tests.cli.agent.setup import configure_agents
from tests.cli.mcp.setup import Surroundings


@pytest.fixture
def here(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """A project with one agent, which the demonstration model answers for."""
    for variable in ("XDG_STATE_HOME", "XDG_DATA_HOME", "NO_COLOR", "EDITOR", "VISUAL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    configure_agents(surroundings)
    return surroundings
