"""Starts `worker.py` and reads what it says."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nacre
from nacre.sandbox.hardening import FilterNotCompiledError, HardeningReport, compile_filter

WORKER = Path(__file__).with_name("worker.py")
MAX_DATA_BYTES = 256 * 1024 * 1024
SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a worker ended, and the lines it wrote."""

    returncode: int
    lines: tuple[object, ...]
    stderr: str

    @property
    def report(self) -> HardeningReport:
        assert self.lines, self.stderr
        return HardeningReport.from_json(self.lines[0])

    @property
    def result(self) -> object:
        assert (self.returncode, len(self.lines)) == (0, 2), self.stderr
        return self.lines[1]


@cache
def bpf() -> bytes | None:
    try:
        return compile_filter()
    except FilterNotCompiledError as error:
        # A filter that libseccomp refuses is our fault: that must fail tests, not skip them.
        if sys.platform == "linux" and "does not load" not in str(error):
            raise
        return None


def system_call_number(name: str) -> int:
    import pyseccomp  # pyright: ignore[reportMissingTypeStubs]

    number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
    assert number >= 0, name
    return number


def command(
    act: str,
    argument: object = None,
    *,
    seccomp: bool = True,
    only: Sequence[str] | None = None,
    kernel: str = "",
    platform: str = "",
    parent_pid: int | None = None,
) -> list[str]:
    """`only` names steps of the hardening to run instead of all."""
    program = bpf() if seccomp else None
    options = {
        "act": act,
        "argument": argument,
        "bpf": None if program is None else program.hex(),
        "problem": "the test asked for none",
        "only": only,
        "kernel": kernel,
        "platform": platform,
        "parent_pid": parent_pid,
        "max_data_bytes": MAX_DATA_BYTES,
        "import_paths": _import_paths(),
    }
    return [sys.executable, "-I", "-S", str(WORKER), json.dumps(options)]


def run(arguments: list[str], *, pass_fds: Sequence[int] = ()) -> Run:
    done = subprocess.run(
        arguments,
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        pass_fds=pass_fds,
        timeout=SECONDS,
        check=False,
    )
    return Run(
        returncode=done.returncode,
        lines=tuple(json.loads(line) for line in done.stdout.splitlines()),
        stderr=done.stderr.decode(),
    )


def _import_paths() -> list[str]:
    assert nacre.__file__ is not None
    source = str(Path(nacre.__file__).parent.parent)
    return [source, *(path for path in sys.path if path and os.path.isdir(path))]
