"""The signals that stop a command or server."""

from __future__ import annotations

import signal
from typing import Final

_ALWAYS: Final = (signal.SIGINT, signal.SIGTERM)


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals to handle. SIGHUP, of a closed terminal, only if it is not ignored (`nohup`)."""
    hang_up: signal.Signals | None = getattr(signal, "SIGHUP", None)
    if hang_up is None or signal.getsignal(hang_up) is signal.SIG_IGN:
        return _ALWAYS
    return (*_ALWAYS, hang_up)


def forces_exit(number: signal.Signals) -> bool:
    """Whether a second signal ends the process at once. Not SIGHUP: when a terminal closes, both
    the system and the shell send one."""
    return number in _ALWAYS
