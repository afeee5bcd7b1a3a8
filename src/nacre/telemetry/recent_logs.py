"""The last lines of the log, in memory and without secrets."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nacre.display import visible_lines
from nacre.lazy_dataclasses import dataclass
from nacre.telemetry.redaction import remove_secrets

if TYPE_CHECKING:
    from collections.abc import Generator

_MAX_LINES: Final = 1_000
_MAX_LINE_CHARACTERS: Final = 2_000
# Colors and other commands for terminals.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """One record of the log."""

    number: int
    """Counts from 1 since the start of the process."""
    time: float
    level: int
    level_name: str
    logger: str
    message: str
    """With the traceback, if there is one."""


class RecentLogs(logging.Handler):
    """Keeps the last lines that Nacre has logged. Secrets are removed when they are read."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=_MAX_LINES)
        self._count = 0
        self.setFormatter(logging.Formatter("%(message)s"))

    @property
    def last_number(self) -> int:
        return self._count

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = self.format(record)[:_MAX_LINE_CHARACTERS]
        except Exception:
            self.handleError(record)
            return
        self._count += 1
        self._lines.append(
            LogLine(
                number=self._count,
                time=record.created,
                level=record.levelno,
                level_name=record.levelname,
                logger=record.name,
                message=message,
            )
        )

    def lines(self, *, after: int = 0, level: int = 0, limit: int = _MAX_LINES) -> list[LogLine]:
        """The last `limit` lines after a number, of this level or above, oldest first."""
        found = [it for it in list(self._lines) if it.number > after and it.level >= level]
        return [
            replace(line, message=remove_secrets(visible_lines(_ESCAPE.sub("", line.message))))
            for line in found[-limit:]
        ]

    def to_text(self) -> str:
        texts: list[str] = []
        for line in self.lines():
            local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.time))
            moment = f"{local},{int(line.time * 1000) % 1000:03d}"
            text = f"{moment} {line.level_name} {line.logger}: {line.message}"
            texts.append(f"{text[:_MAX_LINE_CHARACTERS]}\n")
        return "".join(texts)


@contextmanager
def keep_recent_logs() -> Generator[RecentLogs]:
    """Keep what Nacre logs within the block."""
    logs = RecentLogs()
    logger = logging.getLogger("nacre")
    logger.addHandler(logs)
    try:
        yield logs
    finally:
        logger.removeHandler(logs)
