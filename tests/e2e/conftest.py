"""Gateways are dear: the tests of a module share one where they can."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.e2e.gateways import Home, open_home


@pytest.fixture
async def home(tmp_path: Path) -> AsyncGenerator[Home]:
    """A place of the test's own."""
    async with open_home(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
async def shared_home(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Home]:
    """A place for all tests of a module."""
    async with open_home(tmp_path_factory.mktemp("home")) as opened:
        yield opened
