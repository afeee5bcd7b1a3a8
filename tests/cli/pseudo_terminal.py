"""The command at a terminal, with somebody who reads and types."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from tests.cli.nacre_process import PATIENCE_SECONDS
from tests.forked_python import FORKED_PYTHON

CTRL_C = "\x03"
CTRL_D = "\x04"

# A session's first process gets a terminal of its own only by asking for it.
_WITH_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'nacre.cli.main', *sys.argv[1:]])"
)
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Person:
    """Sits at the terminal of one command."""

    def __init__(self, terminal: int, process: subprocess.Popen[bytes]) -> None:
        self.raw = ""
        """All that was written to the terminal."""
        self._terminal = terminal
        self._process = process
        self._read_to = 0

    @property
    def screen(self) -> str:
        """The same without colours."""
        return _COLOURS.sub("", self.raw).replace("\r\n", "\n")

    def reads(self, text: str) -> None:
        """Wait until it is written after what was read before."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := self.screen.find(text, self._read_to)) < 0:
            left = deadline - time.monotonic()
            assert left > 0 and self._take(left), f"{text!r} is not on the screen: {self.screen}"
        self._read_to = found + len(text)

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def leaves(self) -> int:
        """The exit status, when it has ended; all that it wrote is read."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._take(max(0.1, deadline - time.monotonic())):
            assert time.monotonic() < deadline, f"it does not end: {self.screen}"
        return self._process.wait(PATIENCE_SECONDS)

    def _take(self, seconds: float) -> bool:
        """Whether there was something to read."""
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if not ready:
            return False
        try:
            taken = os.read(self._terminal, 65536)
        except OSError:
            # How Linux tells that nobody has the terminal open any more.
            return False
        self.raw += taken.decode(errors="replace")
        return bool(taken)


@contextmanager
def person_at(*arguments: str, is_forked: bool = True, **environment: str) -> Generator[Person]:
    """Run the command at a terminal of its own; `is_forked` for a quick start."""
    forked = [FORKED_PYTHON, "-m", "nacre.cli.main"]
    # A process that was started in the background of a shell ignores Ctrl-C; so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        [*(forked if is_forked else (sys.executable, "-c", _WITH_TERMINAL)), *arguments],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    os.close(inner)
    try:
        yield Person(terminal, process)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
