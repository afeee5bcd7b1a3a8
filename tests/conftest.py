"""Fixtures for every test."""

import asyncio
import gc
import itertools
import math
import os
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import anyio
import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

# Nacre imports it on the first use of a config document, and pydantic reads files while it is
# imported. In a test that would be blocking inside of the event loop, for whichever test is first.
import nacre.config.validation  # noqa: F401  # pyright: ignore[reportUnusedImport]
from nacre.mcp_client import listings
from nacre.sandbox import Limits, Sandbox, SandboxOptions
from tests.forked_python import ForkedStarts

# Packages are installed without bytecode. Where Python may not write it, each of the many processes
# that tests start would compile again all that it imports, which takes seconds.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Under nohup, processes that tests start would ignore it, too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Until all tests are collected: what is imported stays.
gc.disable()


# No time limits for examples: a machine may be busy.
settings.register_profile("any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-speed")

_forked_starts = ForkedStarts()

# Their tests take seconds each.
_SLOW_FOLDERS = ("web", "e2e", "codex_harness", "gateway")


def pytest_configure(config: pytest.Config) -> None:
    """Compile the images of the sandbox, unless they are in the cache: no test waits for that."""
    config.add_cleanup(_forked_starts.close)
    _trust_one_authority(config)
    is_first_process = not hasattr(config, "workerinput")
    if is_first_process:
        anyio.run(_run_first_program)


def _trust_one_authority(config: pytest.Config) -> None:
    """Tests stay on this machine, and each HTTP client reads all authorities, which takes 40 ms."""
    authorities = ssl.create_default_context().get_ca_certs(binary_form=True)
    if authorities:
        folder = TemporaryDirectory()
        config.add_cleanup(folder.cleanup)
        file = Path(folder.name) / "authority.pem"
        file.write_text(ssl.DER_cert_to_PEM_cert(authorities[0]), encoding="ascii")
        os.environ["SSL_CERT_FILE"] = str(file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow files first. Begun last, one of them would keep a process after the others end."""
    items.sort(key=lambda item: item.path.parent.name not in _SLOW_FOLDERS)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, which is slow with so many objects."""
    gc.collect()
    gc.freeze()
    # Less often than by default: a tenth of the time of the tests was spent on it.
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    _forked_starts.prepare_if_used()


async def _run_first_program() -> None:
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        limits = Limits(timeout_ms=60_000)
        await sandbox.cell("return 1", language="typescript", limits=limits).run()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Nacre runs on asyncio, so the tests do."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def no_blocking_in_the_event_loop() -> Iterator[None]:
    """Fail a test when code of the package blocks the event loop."""
    with blockbuster_ctx("nacre") as blockbuster:
        for function in blockbuster.functions.values():
            # It looks for passwords and certificates, small files, when it connects.
            function.can_block_in("asyncpg/connect_utils.py", "_parse_connect_arguments")
        yield


# The goal of the product is 100 ms on a quiet machine; benchmarks/loop_stalls.py measures it. Tests
# import packages and build data in the loop, and CPU time grows on a busy machine, too.
_MAX_STEP_SECONDS = 1.0
# How old the measurement before a step may be: to ask for CPU time twice per step is slow.
_MEASUREMENT_SECONDS = 0.01


class _Measurement(threading.local):
    """The CPU time that a thread had, and when."""

    made_at = -math.inf
    cpu_seconds = 0.0


@pytest.fixture(autouse=True)
def no_stall_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test in which one step of a task computes for too long.

    Counts the CPU time of the loop's thread, because the machine may be busy, without that of the
    garbage collector, because the process of the tests has a large heap.
    """
    stalls: list[str] = []
    collecting = 0.0
    last = _Measurement()
    run_handle = cast("Callable[[asyncio.Handle], None]", vars(asyncio.Handle)["_run"])

    def count_collection(phase: str, _info: dict[str, int]) -> None:
        nonlocal collecting
        collecting += -time.thread_time() if phase == "start" else time.thread_time()

    def run_and_measure(handle: asyncio.Handle) -> None:
        started = time.perf_counter()
        if started - last.made_at > _MEASUREMENT_SECONDS:
            last.made_at, last.cpu_seconds = started, time.thread_time() - collecting
        run_handle(handle)
        if time.perf_counter() - started > _MAX_STEP_SECONDS:
            seconds = time.thread_time() - collecting - last.cpu_seconds
            if seconds > _MAX_STEP_SECONDS:
                stalls.append(f"{seconds:.1f} s CPU in {handle!r}")

    gc.callbacks.append(count_collection)
    monkeypatch.setattr(asyncio.Handle, "_run", run_and_measure)
    yield
    gc.callbacks.remove(count_collection)
    assert not stalls, f"the event loop stopped: {', '.join(stalls)}"


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
