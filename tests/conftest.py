"""Fixtures for every test."""

import itertools
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

# Nacre imports it on the first use of a config document, and pydantic reads files while it is
# imported. In a test that would be blocking inside of the event loop, for whichever test is first.
import nacre.config.validation  # noqa: F401  # pyright: ignore[reportUnusedImport]
from nacre.mcp_client import listings

# Packages are installed without bytecode. Where Python may not write it, each of the many processes
# that tests start would compile again all that it imports, which takes seconds.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Nacre runs on asyncio, so the tests do."""
    return "asyncio"


@pytest.fixture(autouse=True)
def no_blocking_in_the_event_loop() -> Iterator[BlockBuster]:
    """Fail a test when code of the package blocks the event loop."""
    with blockbuster_ctx("nacre") as blockbuster:
        yield blockbuster


@pytest.fixture(autouse=True)
def search_by_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search by words only, also where the semantic extra is installed; its own tests enable it."""
    monkeypatch.setenv("NACRE_SEMANTIC_SEARCH", "off")


_numbers = itertools.count()


@pytest.fixture(scope="session")
def _listings_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("listings")


@pytest.fixture(autouse=True)
def no_cached_mcp_listings(_listings_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each test without the tool lists that MCP servers had in other tests."""
    folder = _listings_folder / str(next(_numbers))
    monkeypatch.setattr(listings, "default_cache_directory", lambda: folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in logged text, which pytest-xdist cannot send between processes."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report
