"""The server as a process, as an MCP client or a shell starts it."""

import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil
from mcp import StdioServerParameters

from tests.forked_python import FORKED_PYTHON

SCRIPT = str(Path(__file__).with_name("serve_script.py"))
# Longer than any sound server needs on a busy machine.
PATIENCE_SECONDS = 50


def stdio_parameters() -> StdioServerParameters:
    return StdioServerParameters(command=FORKED_PYTHON, args=[SCRIPT, "stdio"])


class ServerProcess:
    """A server that a test started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr(self) -> IO[bytes]:
        assert self._process.stderr is not None
        return self._process.stderr

    def read_until(self, text: bytes) -> None:
        """Read lines of its output up to the one that has this."""
        for line in self.stdout:
            if text in line:
                return
        raise AssertionError(f"its output ended without {text!r}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(PATIENCE_SECONDS)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)


@contextmanager
def server_process(
    *arguments: str, starter: tuple[str, ...] = (FORKED_PYTHON,)
) -> Generator[ServerProcess]:
    """`starter` is a command that starts the server, such as `nohup python`."""
    with _no_signal_ignored():
        process = subprocess.Popen(
            [*starter, SCRIPT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    with process:
        try:
            yield ServerProcess(process)
        finally:
            process.kill()


@contextmanager
def _no_signal_ignored() -> Generator[None]:
    """What ignores Ctrl-C (in the background of a shell) or hang-ups (`nohup`) has children that do
    so as well; what has a handler has not."""
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGINT, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def http_server(*arguments: str) -> Generator[tuple[ServerProcess, str, str]]:
    """The process, its URL, and its token, if it has one."""
    with server_process("http", *arguments) as server:
        url = server.stderr.readline().decode().removeprefix("serving MCP at ").strip()
        token = ""
        if "--no-token" not in arguments:
            token = server.stderr.readline().decode().rpartition(" ")[2].strip()
        yield server, url, token


def still_running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that do not end by themselves."""
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_SECONDS)
    return alive
