"""Sandboxes for attacks; each is checked for what it leaves behind."""

import math
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from nacre.sandbox import Sandbox, SandboxOptions
from nacre.sandbox.worker_process import WorkerProcess
from nacre.sandbox.worker_protocol import Command, Event, Frame
from tests.compiled_modules import copy_compiled_modules
from tests.security.attacks import nothing_left_behind


@pytest.fixture(scope="session")
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that nobody else writes to, filled."""
    directory = tmp_path_factory.mktemp("cache")
    copy_compiled_modules(directory)
    # In a thread: an async fixture would keep the thread's event loop until the session ends, and
    # tests that run commands in this process could not have one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(anyio.run, _fill, directory).result()
    return directory


async def _fill(directory: Path) -> None:
    async with Sandbox(SandboxOptions(workers=1, cache_directory=directory)) as sandbox:
        assert (await sandbox.check()).problem == ""


@pytest.fixture(scope="module")
async def sandbox(cache_directory: Path) -> AsyncIterator[Sandbox]:
    """One sandbox for a whole file: every attack has to leave it sound for the next."""
    with nothing_left_behind(cache_directory):
        async with Sandbox(SandboxOptions(workers=2, cache_directory=cache_directory)) as sandbox:
            assert (await sandbox.check()).problem == ""
            yield sandbox


@pytest.fixture
def one_worker(cache_directory: Path) -> Iterator[SandboxOptions]:
    """Options of a sandbox that the test opens and closes by itself."""
    with nothing_left_behind(cache_directory):
        yield SandboxOptions(workers=1, cache_directory=cache_directory)


@pytest.fixture
def when_sent(monkeypatch: pytest.MonkeyPatch) -> Callable[[Command], anyio.Event]:
    """An event that is set as soon as a worker has been sent a command of this kind."""
    send = WorkerProcess.send
    events: dict[int, anyio.Event] = {}

    async def watched_send(worker: WorkerProcess, data: bytes, *, until: float = math.inf) -> None:
        await send(worker, data, until=until)
        if data[0] in events:
            events[data[0]].set()

    monkeypatch.setattr(WorkerProcess, "send", watched_send)
    return lambda command: events.setdefault(command, anyio.Event())


@pytest.fixture
def when_started(monkeypatch: pytest.MonkeyPatch) -> anyio.Event:
    """An event that is set as soon as a worker has said that it started a program."""
    event = WorkerProcess.event
    started = anyio.Event()

    async def watched_event(worker: WorkerProcess, *, until: float = math.inf) -> Frame:
        frame = await event(worker, until=until)
        if frame.kind == Event.STARTED:
            started.set()
        return frame

    monkeypatch.setattr(WorkerProcess, "event", watched_event)
    return started
