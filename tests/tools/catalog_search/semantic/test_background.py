"""The thread for work that can wait."""

import threading
from collections.abc import Iterator

import pytest

from nacre.tools.catalog_search.semantic.embeddings import BackgroundThread

SECONDS = 30


@pytest.fixture
def background() -> Iterator[BackgroundThread]:
    thread = BackgroundThread("test", patience_seconds=0)
    yield thread
    thread.end()


def test_work_takes_turns_so_that_the_short_does_not_wait_for_the_long(
    background: BackgroundThread,
) -> None:
    may_start, is_over = threading.Event(), threading.Event()
    steps: list[str] = []

    def work(name: str, count: int) -> Iterator[None]:
        may_start.wait(SECONDS)
        for _ in range(count):
            steps.append(name)
            yield
        if name == "long":
            is_over.set()

    background.add(work("long", 3))
    background.add(work("short", 1))
    may_start.set()
    assert is_over.wait(SECONDS)
    assert steps == ["long", "short", "long", "long"]


def test_work_that_fails_is_reported_and_the_rest_goes_on(
    background: BackgroundThread, caplog: pytest.LogCaptureFixture
) -> None:
    is_done = threading.Event()

    def failing() -> Iterator[None]:
        yield
        raise ValueError("a broken model")

    def other() -> Iterator[None]:
        yield
        yield
        is_done.set()

    background.add(failing())
    background.add(other())
    assert is_done.wait(SECONDS)
    assert [record.getMessage() for record in caplog.records] == ["work in the background failed"]


def test_an_end_drops_what_is_open_after_its_step() -> None:
    thread = BackgroundThread("test", patience_seconds=0)
    is_started, may_go_on = threading.Event(), threading.Event()

    def endless() -> Iterator[None]:
        while True:
            is_started.set()
            may_go_on.wait(SECONDS)
            yield

    thread.add(endless())
    assert is_started.wait(SECONDS)
    may_go_on.set()
    thread.end()
    assert "test" not in [each.name for each in threading.enumerate()]


def test_work_runs_in_a_thread_that_does_not_keep_the_process(background: BackgroundThread) -> None:
    seen: list[threading.Thread] = []
    is_done = threading.Event()

    def work() -> Iterator[None]:
        seen.append(threading.current_thread())
        is_done.set()
        yield

    background.add(work())
    assert is_done.wait(SECONDS)
    assert seen[0].daemon


def test_an_end_that_comes_soon_finds_nothing_started() -> None:
    thread = BackgroundThread("test", patience_seconds=60)
    started: list[str] = []

    def work() -> Iterator[None]:
        started.append("work")
        yield

    thread.add(work())
    thread.end()
    assert started == []
    assert "test" not in [each.name for each in threading.enumerate()]


def test_who_waits_for_the_work_has_it_started_at_once() -> None:
    thread = BackgroundThread("test", patience_seconds=60)
    is_done = threading.Event()

    def work() -> Iterator[None]:
        is_done.set()
        yield

    thread.add(work())
    thread.start_now()
    assert is_done.wait(SECONDS)
    thread.end()
