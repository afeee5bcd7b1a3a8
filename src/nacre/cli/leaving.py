"""The end of the process, also where a tool or a plugin hangs in a thread."""

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Final

from nacre.cli.output import warn

# Much longer than threads take that only finish what they are at.
_GRACE_SECONDS: Final = 3.0


def exit_with_deadline(status: int) -> None:
    """To be called last. Python waits for threads without end; we do not."""
    others = (it for it in threading.enumerate() if it is not threading.main_thread())
    if any(not thread.daemon for thread in others):
        threading.Thread(target=_exit_after_grace, args=(status,), daemon=True).start()


def _exit_after_grace(status: int) -> None:
    time.sleep(_GRACE_SECONDS)
    try:
        warn("a tool or a plugin hangs in a thread; it was left behind")
        # Whoever reads it may be gone.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
    finally:
        os._exit(status)
