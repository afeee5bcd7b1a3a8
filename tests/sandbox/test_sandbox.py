"""The sandbox as a whole: opening, closing, and machines where it cannot work."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil
import pytest

from nacre.errors import ConfigError, ImageError, RuntimeUnavailableError
from nacre.json_types import JsonValue
from nacre.sandbox import (
    Completed,
    Failed,
    HostRequest,
    Limits,
    Sandbox,
    SandboxOptions,
    pool,
    worker_process,
)
from nacre.sandbox.cell_leg import LegBudget
from nacre.sandbox.executor import Worker
from nacre.sandbox.hardening import FilterNotCompiledError
from nacre.sandbox.image import load_image
from nacre.sandbox.pool import WorkerPool
from tests.compiled_modules import compiled_module, copy_compiled_modules
from tests.contract.requirements import requirement

IMAGE = load_image("cell")
# Longer than any sound sandbox needs on a busy machine.
PATIENCE_SECONDS = 50


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A new sandbox for each test: they look at its processes, or close it."""
    async with Sandbox(SandboxOptions(workers=2)) as sandbox:
        yield sandbox


def worker_pids() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture
def filled_cache(tmp_path: Path) -> Path:
    """A cache directory with the compiled images."""
    copy_compiled_modules(tmp_path)
    return tmp_path


def cut_off_module(cache: Path) -> None:
    module = cache / compiled_module("cell").name
    module.write_bytes(module.read_bytes()[:-100])


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes().strip(b"\0")


@requirement("security:snapshots-dropped")
async def test_closing_leaves_no_process_and_no_descriptor() -> None:
    before = set(os.listdir("/proc/self/fd"))
    processes = worker_pids()
    for _ in range(3):
        async with Sandbox(SandboxOptions(workers=3)) as sandbox:
            result = await sandbox.cell("return 1").run()
            assert isinstance(result, Completed)
    assert worker_pids() <= processes
    assert set(os.listdir("/proc/self/fd")) <= before


async def test_a_sandbox_that_was_never_used_closes_cleanly() -> None:
    processes = worker_pids()
    with anyio.fail_after(PATIENCE_SECONDS):
        async with Sandbox():
            pass
    assert worker_pids() <= processes


async def test_an_exception_in_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with Sandbox(SandboxOptions(workers=1)):
            raise KeyError("mine")


async def test_cancelling_the_block_closes_the_sandbox() -> None:
    processes = worker_pids()
    with anyio.move_on_after(0) as scope:
        async with Sandbox(SandboxOptions(workers=1)) as sandbox:
            await sandbox.check()
    assert scope.cancelled_caught
    assert worker_pids() <= processes


async def test_a_sandbox_is_opened_once() -> None:
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        pass
    with pytest.raises(RuntimeUnavailableError, match="opened only once"):
        await sandbox.__aenter__()


async def test_a_cell_outside_of_an_open_sandbox_is_refused() -> None:
    with pytest.raises(RuntimeUnavailableError, match="not open"):
        Sandbox().cell("return 1")


async def test_a_cell_after_the_sandbox_has_closed_fails_as_unavailable() -> None:
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        cell = sandbox.cell("return 1")
    result = await cell.run()
    assert isinstance(result, Failed)
    assert (result.code, result.error) == ("runtime_unavailable", "the sandbox is closed")


async def test_workers_that_cannot_start_make_cells_fail_as_unavailable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    async with Sandbox(SandboxOptions(workers=2)) as sandbox:
        with anyio.fail_after(PATIENCE_SECONDS):
            result = await sandbox.cell("return 1").run()
            again = await sandbox.cell("return 1").run()
    assert isinstance(result, Failed)
    assert isinstance(again, Failed)
    assert (result.code, again.code) == ("runtime_unavailable", "runtime_unavailable")
    assert "/nonexistent/python" in caplog.text


async def test_a_worker_that_dies_at_start_makes_cells_fail_as_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nacre.sandbox.worker_process._BOOT", "raise SystemExit(3)")
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        with anyio.fail_after(PATIENCE_SECONDS):
            result = await sandbox.cell("return 1").run()
    assert isinstance(result, Failed)
    assert result.code == "runtime_unavailable"


async def test_a_missing_image_makes_cells_fail_as_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(kind: str) -> None:
        raise ImageError(f"the sandbox image {kind!r} is missing")

    monkeypatch.setattr("nacre.sandbox.pool.load_image", missing)
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        with anyio.fail_after(PATIENCE_SECONDS):
            result = await sandbox.cell("return 1").run()
    assert isinstance(result, Failed)
    assert (result.code, result.error) == (
        "runtime_unavailable",
        "the sandbox image 'cell' is missing",
    )


async def test_the_sandbox_recovers_when_workers_can_start_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    python = sys.executable
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        assert isinstance(await sandbox.cell("return 1").run(), Failed)
        monkeypatch.setattr(sys, "executable", python)
        with anyio.fail_after(PATIENCE_SECONDS):
            result = await sandbox.cell("return 1").run()
    assert isinstance(result, Completed)


async def test_an_empty_cache_directory_is_filled_and_then_used(tmp_path: Path) -> None:
    origins: list[str] = []
    for _ in range(2):
        options = SandboxOptions(workers=1, cache_directory=tmp_path / "cache")
        async with Sandbox(options) as sandbox:
            assert isinstance(await sandbox.cell("return 1").run(), Completed)
            origins.append((await sandbox.check()).module_origin)
    assert origins == ["built", "cache"]


async def test_a_corrupted_compiled_module_is_built_again(filled_cache: Path) -> None:
    cut_off_module(filled_cache)
    options = SandboxOptions(workers=1, cache_directory=filled_cache)
    async with Sandbox(options) as sandbox:
        assert isinstance(await sandbox.cell("return 1").run(), Completed)
        assert (await sandbox.check()).module_origin == "built"


@requirement("validation:typescript-is-lazy")
async def test_typescript_is_loaded_by_the_first_typescript_cell_only(
    sandbox: Sandbox,
) -> None:
    await sandbox.check()
    before = len(worker_pids())
    assert isinstance(await sandbox.cell("return 1").run(), Completed)
    assert len(worker_pids()) == before
    result = await sandbox.cell("const a: number = 2; return a", language="typescript").run()
    assert isinstance(result, Completed)
    assert (result.value, len(worker_pids())) == (2, before + 1)


@requirement("security:os-hardening")
async def test_the_report_names_engine_image_and_every_hardening_measure(
    sandbox: Sandbox,
) -> None:
    report = await sandbox.check()
    assert report.engine.startswith("quickjs-wasi 3.")
    assert report.image == IMAGE.identity
    assert report.problem == ""
    assert report.hardening is not None
    if sys.platform == "linux":
        assert [measure.name for measure in report.hardening.missing] == []


async def test_a_worker_has_an_empty_environment(sandbox: Sandbox) -> None:
    report = await sandbox.check()
    for pid in report.workers:
        # Python sets this one for itself.
        assert environment_of(pid) in (b"", b"LC_CTYPE=C.UTF-8")


def test_workers_end_with_a_parent_that_is_killed() -> None:
    program = """
import anyio, sys
from nacre.sandbox import Limits, Sandbox, SandboxOptions
async def main():
    async with Sandbox(SandboxOptions(workers=2)) as sandbox:
        report = await sandbox.check()
        # One of them is in the middle of an endless loop when the parent is killed.
        await sandbox.cell(
            "text('in'); for (;;);",
            limits=Limits(timeout_ms=60000),
            on_output=lambda _: print(*report.workers, flush=True),
        ).run()
anyio.run(main)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        finally:
            parent.kill()
    assert workers
    _, alive = psutil.wait_procs(workers, timeout=PATIENCE_SECONDS)
    assert alive == []


async def test_closing_ends_a_cell_that_runs(sandbox: Sandbox) -> None:
    results: list[object] = []
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with Sandbox(SandboxOptions(workers=1)) as closing:
                await closing.check()
                cell = closing.cell("for (;;);", limits=Limits(timeout_ms=60000))

                async def run() -> None:
                    results.append(await cell.run())

                tasks.start_soon(run)
                await anyio.wait_all_tasks_blocked()
    assert isinstance(results[0], Failed)
    assert results[0].code == "runtime_unavailable"


async def test_a_compiled_module_that_does_not_load_here_is_compiled_again(
    filled_cache: Path,
) -> None:
    put_foreign_module(filled_cache)
    options = SandboxOptions(workers=2, cache_directory=filled_cache)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with Sandbox(options) as sandbox:
            assert isinstance(await sandbox.cell("return 1").run(), Completed)


def put_foreign_module(cache: Path) -> None:
    """Bytes that are as they were written, with a sound record, and no module for this machine."""
    module = cache / compiled_module("cell").name
    record = module.with_suffix(".json")
    content = module.read_bytes()
    foreign = content.replace(b"wasmtime", b"WASMTIME")
    assert foreign != content
    module.write_bytes(foreign)
    facts = record.read_text(encoding="utf-8")
    old, new = (hashlib.sha256(data).hexdigest() for data in (content, foreign))
    assert old in facts
    record.write_text(facts.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("workers", [-1, 257, 1.5, "two", True])
def test_a_number_of_workers_that_cannot_be_is_refused(workers: object) -> None:
    with pytest.raises(ConfigError, match=r"`workers` is .*allowed: whole numbers from 0 to 256"):
        SandboxOptions(workers=workers)  # pyright: ignore[reportArgumentType]


def test_the_cache_directory_may_be_text() -> None:
    directory: Any = "/tmp/modules"
    assert SandboxOptions(cache_directory=directory).cache_directory == Path("/tmp/modules")


@pytest.mark.parametrize("directory", [5, "", b"/tmp", True, ["/tmp"]])
def test_a_cache_directory_that_is_no_path_is_refused(directory: Any) -> None:
    with pytest.raises(ConfigError, match=r"`cache_directory` is .*allowed: a path"):
        SandboxOptions(cache_directory=directory)


async def test_a_language_that_there_is_not_is_refused_by_name(sandbox: Sandbox) -> None:
    result = await sandbox.cell(
        "print(1)",
        language="python",  # pyright: ignore[reportArgumentType]
    ).run()
    assert isinstance(result, Failed)
    assert (result.code, result.reason) == ("invalid_input", "unsupported_language")
    assert "javascript or typescript, not in 'python'" in result.error


async def test_closing_ends_a_cell_that_waits_without_a_worker() -> None:
    asked = anyio.Event()
    results: list[object] = []

    async def never(request: HostRequest) -> JsonValue:
        asked.set()
        await anyio.sleep_forever()

    with anyio.fail_after(PATIENCE_SECONDS):
        async with (
            anyio.create_task_group() as tasks,
            Sandbox(SandboxOptions(workers=1)) as closing,
        ):
            cell = closing.cell(
                "await call()",
                limits=Limits(timeout_ms=60000),
                functions=("call",),
                handler=never,
            )

            async def run() -> None:
                results.append(await cell.run())

            tasks.start_soon(run)
            await asked.wait()
            # Somebody else needs the only worker, so the cell moves out.
            while cell.snapshot is None:
                assert isinstance(await closing.cell("return 1").run(), Completed)
    assert isinstance(results[0], Failed)
    assert (results[0].code, results[0].error) == ("runtime_unavailable", "the sandbox is closed")


@pytest.fixture
def without_filter(monkeypatch: pytest.MonkeyPatch, filled_cache: Path) -> Path:
    """A cache directory for a machine on which the system-call filter cannot be compiled."""

    def fail() -> bytes:
        raise FilterNotCompiledError("libseccomp is not installed")

    monkeypatch.setattr("nacre.sandbox.pool.compile_filter", fail)
    return filled_cache


async def test_a_worker_without_a_required_protection_runs_no_program(
    without_filter: Path,
) -> None:
    async with Sandbox(SandboxOptions(workers=1, cache_directory=without_filter)) as sandbox:
        report = await sandbox.check()
        result = await sandbox.cell("return 1").run()
    assert isinstance(result, Failed)
    assert (result.code, report.workers) == ("runtime_unavailable", ())
    assert "seccomp (libseccomp is not installed)" in report.problem
    assert report.hardening is not None
    assert [measure.name for measure in report.hardening.missing] == ["seccomp"]


async def test_a_worker_that_was_started_ahead_needs_the_required_protections(
    without_filter: Path,
) -> None:
    launcher = pool.Launcher("cell", without_filter)
    launcher.start_ahead()
    async with Sandbox(SandboxOptions(workers=1, launcher=launcher)) as sandbox:
        result = await sandbox.cell("return 1").run()
    assert isinstance(result, Failed)
    assert result.code == "runtime_unavailable"


async def test_the_first_program_runs_in_the_worker_that_was_started_ahead(
    filled_cache: Path,
) -> None:
    launcher = pool.Launcher("cell", filled_cache)
    launcher.start_ahead()
    spawning = launcher._ahead  # pyright: ignore[reportPrivateUsage]
    assert spawning is not None
    process, _ = await anyio.to_thread.run_sync(spawning.result)
    async with Sandbox(SandboxOptions(workers=1, launcher=launcher)) as sandbox:
        assert isinstance(await sandbox.cell("return 1").run(), Completed)
        assert [pid for pid, _ in sandbox.workers] == [process.pid]


def test_a_process_that_was_started_ahead_and_is_not_used_is_ended(filled_cache: Path) -> None:
    launcher = pool.Launcher("cell", filled_cache)
    launcher.start_ahead()
    spawning = launcher._ahead  # pyright: ignore[reportPrivateUsage]
    assert spawning is not None
    launcher.close()
    launcher._thread.shutdown(wait=True)  # pyright: ignore[reportPrivateUsage]
    process, connection = spawning.result()
    assert process.returncode == -signal.SIGKILL
    assert connection.fileno() == -1


async def test_typescript_is_prepared_without_a_process(filled_cache: Path) -> None:
    options = SandboxOptions(workers=1, cache_directory=filled_cache)
    async with Sandbox(options) as sandbox:
        await sandbox.ensure_available()
        before = {child.pid for child in psutil.Process().children()}
        sandbox.prepare_typescript()
        launcher = sandbox._require_services().typescript._pool._executor  # pyright: ignore[reportPrivateUsage]
        assert isinstance(launcher, pool.Launcher)
        preparing = launcher._preparing  # pyright: ignore[reportPrivateUsage]
        assert preparing is not None
        await anyio.to_thread.run_sync(preparing.result)
        assert launcher.image_identity
        assert {child.pid for child in psutil.Process().children()} <= before
        result = await sandbox.cell("return 1 as number", language="typescript").run()
    assert isinstance(result, Completed)


def test_what_is_still_prepared_is_released_after_the_end(
    filled_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = pool.Launcher("cell", filled_cache)
    may_go_on = threading.Event()
    key_of = launcher._module_key  # pyright: ignore[reportPrivateUsage]

    def key_late(library: Path) -> str:
        assert may_go_on.wait(60)
        return key_of(library)

    monkeypatch.setattr(launcher, "_module_key", key_late)
    assert launcher.prepare()
    launcher.close()
    may_go_on.set()
    launcher._thread.shutdown(wait=True)  # pyright: ignore[reportPrivateUsage]
    assert launcher._settings is None  # pyright: ignore[reportPrivateUsage]


async def test_a_protection_that_is_not_required_may_be_missing(without_filter: Path) -> None:
    options = SandboxOptions(workers=1, cache_directory=without_filter, require=["landlock"])
    async with Sandbox(options) as sandbox:
        report = await sandbox.check()
        assert isinstance(await sandbox.cell("return 1").run(), Completed)
    assert report.hardening is not None
    missing = {measure.name: measure.detail for measure in report.hardening.missing}
    assert missing == {"seccomp": "libseccomp is not installed"}


def test_environments_with_the_same_library_share_a_compiled_module(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("first", "second", "changed", "longer")]
    content = os.urandom(300_000)
    changed = bytearray(content)
    changed[640] ^= 1
    for path, data in zip(paths, (content, content, changed, content + b"x"), strict=True):
        path.write_bytes(data)
    os.utime(paths[1], (1, 1))
    launcher = pool.Launcher("cell", tmp_path)
    first, second, *others = (launcher._module_key(path) for path in paths)  # pyright: ignore[reportPrivateUsage]
    launcher.close()
    assert first == second
    assert len({first, *others}) == 3


async def test_the_time_of_the_transform_counts_against_the_time_limit(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    charge, charged = LegBudget.charge, list[str]()

    async def record(budget: LegBudget, work: Any) -> Any:
        charged.append(work.__name__)
        return await charge(budget, work)

    monkeypatch.setattr(LegBudget, "charge", record)
    sandbox.warm_typescript()
    result = await sandbox.cell("return 1 as number", language="typescript").run()
    assert isinstance(result, Completed)
    assert charged == ["acquire", "_send_transform", "_finish"]


async def test_typescript_that_is_not_ready_in_time_fails_the_program_and_is_ready_later(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire, is_prepared = WorkerPool.acquire, anyio.Event()

    async def acquire_late(pool: WorkerPool, owner: str) -> Worker:
        await is_prepared.wait()
        return await acquire(pool, owner)

    with monkeypatch.context() as patch:
        patch.setattr(WorkerPool, "acquire", acquire_late)
        limits = Limits(timeout_ms=100)
        cell = sandbox.cell("return 1 as number", language="typescript", limits=limits)
        result = await cell.run()
    assert isinstance(result, Failed)
    assert (result.reason, "TypeScript is still being prepared" in result.error) == (
        "timeout",
        True,
    )
    later = await sandbox.cell("return 1 as number", language="typescript").run()
    assert isinstance(later, Completed)


@pytest.fixture
def run_at_start(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Run Python code at the start of workers and of the compiler."""

    def run(code: str) -> None:
        command = worker_process.python_command

        def changed(function: str, settings: dict[str, Any]) -> list[str]:
            words = command(function, settings)
            boot = words.index("-c") + 1
            return [*words[:boot], f"{code}\n{words[boot]}", *words[boot + 1 :]]

        for module in (worker_process, pool):
            monkeypatch.setattr(module, "python_command", changed)

    return run


# As `ulimit -v` does.
LIMIT_MEMORY = "import resource; resource.setrlimit(resource.RLIMIT_AS, ({0} << 20, {0} << 20))"


async def test_a_clock_that_is_set_back_does_not_stop_timers(
    run_at_start: Callable[[str], None],
) -> None:
    run_at_start(
        "import itertools, time\n"
        "real, hours = time.time_ns, itertools.count()\n"
        "time.time_ns = lambda: real() - next(hours) * 3600 * 10**9"
    )
    code = """
        const before = Date.now();
        await new Promise((resolve) => setTimeout(resolve, 20));
        return Date.now() < before;
    """
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        result = await sandbox.cell(code).run()
    assert isinstance(result, Completed), result
    assert result.value is True


async def test_a_worker_without_memory_is_reported_and_its_module_is_kept(
    run_at_start: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt: list[object] = []

    async def rebuild(launcher: pool.Launcher) -> None:
        rebuilt.append(launcher)

    monkeypatch.setattr(pool.Launcher, "rebuild", rebuild)
    run_at_start(LIMIT_MEMORY.format(1024))
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        problem = (await sandbox.check()).problem
    assert ("ulimit -v" in problem, "NACRE_CACHE_DIR" in problem, rebuilt) == (True, False, [])


async def test_a_compiler_without_memory_is_not_reported_as_a_full_disk(
    run_at_start: Callable[[str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="nacre.sandbox")
    run_at_start(LIMIT_MEMORY.format(120))
    async with Sandbox(SandboxOptions(workers=1, cache_directory=tmp_path)) as sandbox:
        problem = (await sandbox.check()).problem
    assert ("ulimit -v" in problem, "NACRE_CACHE_DIR" in problem) == (True, False)
    assert "compiling the cell image of the sandbox" in caplog.text


async def test_a_result_has_no_path_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(launcher: pool.Launcher) -> None:
        raise RuntimeUnavailableError("cannot write to /srv/cache")

    monkeypatch.setattr(pool.Launcher, "launch", fail)
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        result = await sandbox.cell("return 1").run()
        assert sandbox.problem == "cannot write to /srv/cache"
    assert isinstance(result, Failed)
    assert (result.code, "/srv" in result.error) == ("runtime_unavailable", False)
    assert "nacre doctor" in result.error


def test_an_unknown_protection_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"`require` is .*allowed: a list of parent_death_signal"):
        SandboxOptions(require=["selinux"])  # pyright: ignore[reportArgumentType]


async def test_the_command_line_of_a_worker_is_short(sandbox: Sandbox) -> None:
    (pid, *_) = (await sandbox.check()).workers
    assert sum(map(len, psutil.Process(pid).cmdline())) < 600


async def test_a_want_of_threads_makes_cells_fail_as_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor.submit", no_thread_left)
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        with anyio.fail_after(PATIENCE_SECONDS):
            result = await sandbox.cell("return 1").run()
    assert isinstance(result, Failed)
    assert (result.code, result.error) == ("runtime_unavailable", "can't start new thread")
