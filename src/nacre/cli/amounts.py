"""Times, durations and sizes as people read them."""

from __future__ import annotations

import time


def duration_text(milliseconds: float) -> str:
    """Such as `3.2 ms`, `1.5 s`, `2 min 5 s`."""
    if milliseconds < 10:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size_text(size_bytes: float) -> str:
    """Such as `120 bytes`, `1.5 kB`, `3.0 MB`."""
    if size_bytes < 1000:
        return f"{size_bytes:.0f} bytes"
    size = size_bytes / 1000
    for unit in ("kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def time_text(seconds: float) -> str:
    """A moment in the time zone of the machine."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        # Out of a database: no number that a calendar has to know.
        return f"{seconds:.0f} s after 1970"
