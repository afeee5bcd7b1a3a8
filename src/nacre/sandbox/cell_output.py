"""What a program puts out: counted against its limit, kept for the result, shown as it comes."""

import logging
from collections.abc import Callable

from nacre.errors import WorkerProtocolError
from nacre.sandbox.limits import OUTPUT_ITEM_BYTES
from nacre.sandbox.results import JsonOutput, Output, TextOutput, Usage
from nacre.sandbox.worker_events import json_of, output_of
from nacre.sandbox.worker_protocol import Frame

logger = logging.getLogger(__name__)


class CellOutput:
    """The output of one cell."""

    def __init__(
        self, *, max_bytes: int, usage: Usage, on_output: Callable[[Output], None] | None
    ) -> None:
        self.bytes_left = max_bytes
        self._usage = usage
        self._on_output = on_output
        self._items: list[Output] = []

    def add(self, frame: Frame) -> None:
        """Take an item from a worker, which is not trusted."""
        kind, content = output_of(frame)
        # The worker counts too; this is for one that no longer does.
        self.bytes_left -= len(content) + OUTPUT_ITEM_BYTES
        if self.bytes_left < 0:
            raise WorkerProtocolError("a worker sent more output than the cell may have")
        item = (
            JsonOutput(value=json_of(content))
            if kind == "json"
            else TextOutput(text=content.decode(errors="replace"))
        )
        self._items.append(item)
        self._usage.output_bytes += len(content)
        self._show(item)

    def take(self) -> tuple[Output, ...]:
        """What came since the last time."""
        items, self._items = self._items, []
        return tuple(items)

    def _show(self, item: Output) -> None:
        if self._on_output is None:
            return
        try:
            self._on_output(item)
        except Exception:
            # The caller's own fault is not the program's: the result has the item all the same.
            logger.exception("the caller's on_output failed")
