"""Python processes that start in milliseconds: forks of one that has imported and used Nacre.

A command that begins with `FORKED_PYTHON` instead of `sys.executable` is started in this way, by
whatever library starts it. The process is a child of the caller like any other, with its own
arguments, environment, directory and streams, and it ends as Python ends. Only its imports are not
those of a new process: tests of a start itself use `sys.executable`.
"""

import atexit
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import termios
import threading
from contextlib import redirect_stderr, redirect_stdout
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

FORKED_PYTHON = "<forked python>"
"""Followed by `-m` and a module, or by the path of a script."""

# Nacre imports these when it needs them.
_LATER_IMPORTS = (
    "anthropic",
    "mcp.client.stdio",
    "openai",
    "pydantic_ai.models.anthropic",
    "pydantic_ai.models.openai",
    "sqlalchemy.dialects.sqlite.aiosqlite",
)
_MAX_REQUEST_BYTES = 1 << 17
_PR_SET_CHILD_SUBREAPER = 36


class ForkedStarts:
    """Lets `subprocess` start commands that begin with `FORKED_PYTHON`, until it is closed."""

    def __init__(self) -> None:
        self._fork_exec: Callable[..., int] = vars(subprocess)["_fork_exec"]
        self._template: _Template | None = None
        setattr(subprocess, "_fork_exec", self._fork_or_exec)  # noqa: B010

    def prepare_if_used(self) -> None:
        """Start the process that is forked, if a module that uses it is imported.

        Before the first test, because tests look for processes that were left behind.
        """
        others = (vars(it) for name, it in list(sys.modules.items()) if name != __name__)
        if any("FORKED_PYTHON" in names for names in others):
            self._template = self._template or _Template()

    def close(self) -> None:
        setattr(subprocess, "_fork_exec", self._fork_exec)  # noqa: B010
        if self._template:
            self._template.close()

    # Named as in `Popen._execute_child`.
    def _fork_or_exec(self, args: list[Any], *rest: Any) -> int:
        if os.fsdecode(args[0]) != FORKED_PYTHON:
            return self._fork_exec(args, *rest)
        _, _, _, cwd, env_list, p2cread, _, _, c2pwrite, _, errwrite, *others = rest
        _, _, _, start_new_session, *_ = others
        entries: list[bytes] = env_list
        if env_list is None:
            entries = [name + b"=" + value for name, value in os.environb.items()]
        self._template = self._template or _Template()
        return self._template.fork(
            {
                "command": [os.fsdecode(it) for it in args[1:]],
                "directory": os.fsdecode(cwd or os.getcwd()),
                "environment": dict(os.fsdecode(it).split("=", 1) for it in entries),
                "hasOwnSession": start_new_session,
            },
            # The caller's own, where none is given.
            [fd if fd >= 0 else number for number, fd in enumerate((p2cread, c2pwrite, errwrite))],
        )


class _Template:
    """The process that is forked. It ends with the caller."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_python", str(theirs.fileno())],
            cwd=os.path.dirname(os.path.dirname(__file__)),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._set_subreaper: Callable[[int], int] = lambda is_on: ctypes.CDLL(None).prctl(
            _PR_SET_CHILD_SUBREAPER, is_on, 0, 0, 0
        )

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        """Return the id of the new process."""
        text = json.dumps(request).encode()
        assert len(text) < _MAX_REQUEST_BYTES
        # So that the kernel gives the new process, whose parent has ended, to this one.
        self._set_subreaper(1)
        try:
            socket.send_fds(self._socket, [text], streams)
            return int(self._socket.recv(100))
        finally:
            self._set_subreaper(0)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each request. Returns in each new process, with its request."""
    while True:
        text, streams, _, _ = socket.recv_fds(control, _MAX_REQUEST_BYTES, 3)
        if not text:
            sys.exit()
        may_start, let_start = os.pipe()
        read_pid, write_pid = os.pipe()
        between = os.fork()
        if between == 0:
            new = os.fork()
            if new:
                os.write(write_pid, str(new).encode())
                os._exit(0)
            for fd in (let_start, read_pid, write_pid):
                os.close(fd)
            # Until the process in between has ended, and so this one has its parent.
            os.read(may_start, 1)
            os.close(may_start)
            control.close()
            request: dict[str, Any] = json.loads(text)
            _take_streams(streams)
            return request
        os.waitpid(between, 0)
        control.send(os.read(read_pid, 100))
        for fd in (may_start, let_start, read_pid, write_pid, *streams):
            os.close(fd)


def _take_streams(streams: list[int]) -> None:
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    # As Python opens them.
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _text_output(1)
    sys.stderr = sys.__stderr__ = _text_output(2, errors="backslashreplace", line_buffering=True)


def _text_output(fd: int, **options: Any) -> io.TextIOWrapper:
    options.setdefault("line_buffering", os.isatty(fd))
    return io.TextIOWrapper(open(fd, "wb", closefd=False), encoding="utf-8", **options)


def _run(request: dict[str, Any]) -> None:
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["hasOwnSession"]:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    first, *others = request["command"]
    if first == "-m":
        sys.path[0] = request["directory"]
        sys.argv = others
        # It runs as `__main__`, so nobody has imported it.
        sys.modules.pop(others[0], None)
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(first)
        sys.argv = [first, *others]
        runpy.run_path(first, run_name="__main__")


def _import_all() -> None:
    package = importlib.import_module("nacre")
    for module in pkgutil.walk_packages(package.__path__, "nacre."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _LATER_IMPORTS:
        importlib.import_module(name)


def _run_first_turn() -> None:
    """Run a turn of an agent, so that what is built on first use is there: schemas, statements."""
    from nacre.cli.main import main
    from nacre.config import default_cache_directory, list_settings
    from nacre.telemetry import get_debug_flags

    cache, before, directory = default_cache_directory(), dict(os.environ), os.getcwd()
    with TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.environ.clear()
        os.environ.update(
            {"HOME": folder, "NACRE_CACHE_DIR": str(cache), "NACRE_SEMANTIC_SEARCH": "off"}
        )
        os.chdir(folder)
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            status = main(["run", "--quiet", "What is 1 + 1?"])
        assert status == 0
        os.chdir(directory)
    list_settings({})
    # A process reads them once, and each of the forks has its own.
    get_debug_flags.cache_clear()
    os.environ.clear()
    os.environ.update(before)
    # A fork has none of the other threads, and some of them end after the command.
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join()


def _end(code: object) -> NoReturn:
    """End as Python does, but do not free all that was imported: that takes 100 ms."""
    status = code if isinstance(code, int) else int(code is not None)
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    vars(threading)["_shutdown"]()
    vars(atexit)["_run_exitfuncs"]()
    try:
        sys.stdout.flush()
    except OSError:
        status = 120
    os._exit(status & 0xFF)


if __name__ == "__main__":
    gc.disable()
    _import_all()
    gc.enable()
    _run_first_turn()
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        _run(request)
    except SystemExit as error:
        _end(error.code)
    _end(None)
