"""One thread for work that can wait: it may give way to all others, and ends with the process."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

# More would make the end of the process wait for a step, on a machine that is busy.
_NICENESS: Final = 5
# Many times what a step takes, however busy the machine.
_END_SECONDS: Final = 10.0


class BackgroundThread:
    """Work is an iterator; a step of each in turn, so that nobody waits for the longest."""

    def __init__(self, name: str, *, patience_seconds: float) -> None:
        """It starts after so long: a process that is over sooner has loaded nothing in vain."""
        self._name = name
        self._patience_seconds = patience_seconds
        self._added: queue.SimpleQueue[Iterator[object] | None] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._hurry = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, work: Iterator[object]) -> None:
        self._added.put(work)
        with self._guard:
            # A forked child has the object and not the thread.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
                atexit.register(self.end)

    def start_now(self) -> None:
        """Somebody waits for the work."""
        self._hurry.set()

    def end(self) -> None:
        """Stop after the step that is being done; what is open is dropped."""
        self._ending.set()
        self._hurry.set()
        self._added.put(None)
        # Foreign code that runs while the interpreter is taken apart would abort the process.
        if self._thread is not None and self._thread.is_alive():
            # Who presses Ctrl-C again is no quicker out, and need not see where it was.
            with suppress(KeyboardInterrupt):
                self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        self._hurry.wait(self._patience_seconds)
        turns: deque[Iterator[object]] = deque()
        while not self._ending.is_set():
            while not turns or not self._added.empty():
                work = self._added.get()
                if work is None:
                    return
                turns.appendleft(work)
            work = turns.popleft()
            if _is_unfinished(work):
                turns.append(work)


def _is_unfinished(work: Iterator[object]) -> bool:
    try:
        next(work)
    except StopIteration:
        return False
    except Exception:
        # At the top of a thread: one piece of work must not end the others.
        logger.exception("work in the background failed")
        return False
    return True


def give_way() -> None:
    """From now on this thread goes after all others.

    Not while it loads libraries: the end of the process would have to wait for a slow load.
    """
    if sys.platform == "linux":
        # There, a thread has a priority of its own.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
