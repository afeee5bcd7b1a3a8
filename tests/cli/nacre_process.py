"""The command as a process of its own, as a shell would start it.

By default a quick start by a fork. With `sys.executable` as `python`, a real one.
"""

import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil

from tests.forked_python import FORKED_PYTHON

# Longer than any sound command takes on a busy machine.
PATIENCE_SECONDS = 50

_COMMAND = ["-m", "nacre"]


def run_nacre(
    *arguments: str | bytes | Path,
    stdin: bytes | int = subprocess.DEVNULL,
    environment: dict[str, str] | None = None,
    python: str = FORKED_PYTHON,
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; `stdin` is what is piped to it."""
    process = subprocess.Popen(
        [python, *_COMMAND, *arguments],
        stdin=subprocess.PIPE if isinstance(stdin, bytes) else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    with ended_with_the_block(process):
        out, err = process.communicate(
            stdin if isinstance(stdin, bytes) else None, timeout=PATIENCE_SECONDS
        )
    return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())


@contextmanager
def start_nacre(
    *arguments: str, stdout: int = subprocess.PIPE, python: str = FORKED_PYTHON
) -> Generator[subprocess.Popen[bytes]]:
    """Start the command and leave it running until the end of the block."""
    # A process that was started in the background of a shell ignores Ctrl-C; so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [python, *_COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )
    with ended_with_the_block(process):
        yield process


@contextmanager
def ended_with_the_block(process: subprocess.Popen[bytes]) -> Generator[None]:
    """Also where an assertion fails: no process goes on, and no pipe of it stays open."""
    with process:
        try:
            yield
        finally:
            process.kill()


def pipe_of(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def workers_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes that it has started, each in a session of its own."""
    return psutil.Process(process.pid).children(recursive=True)


def still_running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that do not end by themselves."""
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_SECONDS)
    return alive
