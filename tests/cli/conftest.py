"""Fixtures for tests of commands."""

import shutil
from pathlib import Path

import pytest

from tests.cli.agent_setup import configure_agents
from tests.cli.surroundings import Surroundings
from tests.compiled_modules import copy_compiled_modules


@pytest.fixture(scope="session")
def module_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory of all tests, with the compiled images of the sandbox."""
    directory = tmp_path_factory.mktemp("modules")
    copy_compiled_modules(directory)
    return directory


@pytest.fixture
def surroundings(
    tmp_path: Path,
    module_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Surroundings:
    """A home and a project without any configuration, and no cached lists of MCP servers."""
    shutil.rmtree(module_cache / "mcp-listings", ignore_errors=True)
    monkeypatch.setenv("NACRE_CACHE_DIR", str(module_cache))
    return Surroundings(tmp_path, monkeypatch, capsys)


@pytest.fixture
def here(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """A project with one agent, which the demonstration model answers for."""
    for variable in ("XDG_STATE_HOME", "XDG_DATA_HOME", "NO_COLOR", "EDITOR", "VISUAL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    configure_agents(surroundings)
    return surroundings
