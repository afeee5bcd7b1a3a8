"""Starts of the sandbox in which something fails: run as a script, once for all cases.

Each case runs in a forked process, because a hardened process and used-up descriptors stay so.
"""

import builtins
import errno
import json
import os
import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from nacre.sandbox import Completed, Sandbox, SandboxOptions
from nacre.sandbox.hardening import compile_filter, harden, linux

MAX_DATA_BYTES = 1 << 30
# The functions through which hardening reaches the kernel.
CALLS: tuple[tuple[Any, str], ...] = (
    (linux, "prctl"),
    (linux, "system_call"),
    (linux, "protect_memory"),
    (os, "listdir"),
    (os, "fstat"),
    (os, "close"),
    (os, "chdir"),
    (os, "umask"),
    (os, "uname"),
    (builtins, "open"),
    (resource, "getrlimit"),
    (resource, "setrlimit"),
)
ERRORS: tuple[BaseException, ...] = (
    OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
    OSError(errno.EPERM, os.strerror(errno.EPERM)),
    MemoryError(),
)


def run_forked(act: Callable[[], object]) -> Any:
    """Run the function in a child process and return its result, as JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    return json.loads(content) if content else None


def fail_call(number: int, error: BaseException) -> Callable[[], bool]:
    """Make call `number` of the table fail. The returned function says whether it was reached."""
    count = 0

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                raise error
            return call(*arguments, **options)

        return wrapped

    for owner, name in CALLS:
        setattr(owner, name, wrap(getattr(owner, name)))
    return lambda: count >= number


def harden_with_failing_call(bpf: bytes, number: int, error: BaseException) -> object:
    """Harden this process while one call fails. Returns what is left and what is reported."""
    parent = os.getppid()
    open_file = os.open
    is_reached = fail_call(number, error)
    report = harden(
        keep_fds=range(3, 64),
        parent_pid=parent,
        seccomp_bpf=bpf,
        seccomp_problem="",
        max_data_bytes=MAX_DATA_BYTES,
    )
    try:
        open_file("/etc/passwd", os.O_RDONLY)
        outcome = 0
    except OSError as refusal:
        outcome = refusal.errno or 0
    unmet = [measure.name for measure in report.unmet(None)]
    return {"isReached": is_reached(), "unmet": unmet, "errno": outcome}


def fail_each_call() -> list[object]:
    """Fail each call of hardening in turn, with each error."""
    bpf = compile_filter()
    outcomes: list[object] = []
    for error in ERRORS:
        for number in range(1, 200):
            outcome = run_forked(partial(harden_with_failing_call, bpf, number, error))
            outcomes.append(outcome)
            if outcome is not None and not outcome["isReached"]:
                break
    return outcomes


async def run_program(cache: Path) -> object:
    """Run a program in a new sandbox. Returns the result, and the filter mode of the worker."""
    async with Sandbox(SandboxOptions(workers=1, cache_directory=cache)) as sandbox:
        report = await sandbox.check()
        modes = [_seccomp_mode(pid) for pid in report.workers]
        result = await sandbox.cell("return 1").run()
        return {"isCompleted": isinstance(result, Completed), "modes": modes}


def _seccomp_mode(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Seccomp:"))


def run_with_few_descriptors(cache: Path, limit: int) -> object:
    """Run a program with a filter that must be compiled, and few descriptors."""
    for name in os.listdir(cache):
        # The filter is the small artefact.
        if name.endswith(".cwasm") and (cache / name).stat().st_size < 1 << 16:
            (cache / name).unlink()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    try:
        return anyio.run(run_program, cache)
    except OSError as error:
        # Not even an event loop can be created.
        return {"isCompleted": False, "modes": [], "problem": str(error)}


def starve_starts(cache: Path) -> list[object]:
    """Run a program with each number of descriptors, from none to enough."""
    complete = run_forked(lambda: anyio.run(run_program, cache))
    assert complete["isCompleted"], "the sandbox does not work without faults"
    limits = range(8, 20)
    return [run_forked(partial(run_with_few_descriptors, cache, limit)) for limit in limits]


if __name__ == "__main__":
    kind, folder = sys.argv[1:]
    found = fail_each_call() if kind == "calls" else starve_starts(Path(folder))
    sys.stdout.write(json.dumps(found))
