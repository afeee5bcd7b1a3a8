"""Fixtures for tests of commands."""

from pathlib import Path

import pytest

from tests.cli.mcp.setup import Surroundings


@pytest.fixture
def surroundings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Surroundings:
    """A home and a project without any configuration."""
    return Surroundings(tmp_path, monkeypatch, capsys)
