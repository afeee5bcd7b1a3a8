"""Fixtures for every test."""

from collections.abc import Generator, Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx


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
    """Whether or not the extra is installed; its own tests switch it on."""
    monkeypatch.setenv("NACRE_SEMANTIC_SEARCH", "off")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests log halves of characters, which do not travel from one process of pytest to another."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report
