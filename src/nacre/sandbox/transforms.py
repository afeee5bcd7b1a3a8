"""TypeScript for cells: transformed in workers of their own, which the first such cell starts."""

from typing import Final

import anyio

from nacre.errors import WorkerProtocolError
from nacre.sandbox.failures import MapPosition, failed_from_worker
from nacre.sandbox.limits import Limits
from nacre.sandbox.pool import WorkerPool
from nacre.sandbox.results import Failed
from nacre.sandbox.source_map import PositionMap
from nacre.sandbox.worker_events import reason_of
from nacre.sandbox.worker_process import WorkerProcess
from nacre.sandbox.worker_protocol import Command, Event, Frame, encode_frame

# A transform can only grow a program so much; more comes from no sound worker.
_MAX_GROWTH: Final = 64
_SPARE_BYTES: Final = 1 << 16


class TypeScriptTransforms:
    """Turns programs into JavaScript; knows nothing of running them."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    async def transform(
        self, code: bytes, *, limits: Limits, owner: str
    ) -> tuple[bytes, MapPosition | None] | Failed:
        """JavaScript and the way back to the program's own lines, or why there is none."""
        worker = await self._pool.acquire(owner)
        is_sound = False
        try:
            frame = await self._ask(worker, code, limits)
            is_sound = frame is not None
        finally:
            if is_sound:
                self._pool.release(worker)
            else:
                self._pool.discard(worker)
        if frame is None:
            fields = {"message": "transforming the TypeScript took too long"}
            return failed_from_worker("timeout", fields, limits=limits, file_name="cell.ts")
        if frame.kind == Event.FAILED:
            reason = reason_of(frame)
            return failed_from_worker(reason, frame.fields, limits=limits, file_name="cell.ts")
        return self._check_result(frame, len(code))

    async def _ask(self, worker: WorkerProcess, code: bytes, limits: Limits) -> Frame | None:
        with anyio.move_on_after(limits.timeout_ms / 1000):
            await worker.send(encode_frame(Command.TRANSFORM, {}, code))
            return await worker.event()
        return None

    def _check_result(self, frame: Frame, size: int) -> tuple[bytes, MapPosition | None]:
        mappings = frame.fields.get("mappings")
        if frame.kind != Event.TRANSFORMED or len(frame.tail) > size * _MAX_GROWTH + _SPARE_BYTES:
            raise WorkerProtocolError(f"a worker answered TRANSFORM with kind {frame.kind}")
        if mappings is None:
            return frame.tail, None
        try:
            return frame.tail, PositionMap.from_mappings(str(mappings)).original
        except ValueError as error:
            raise WorkerProtocolError(
                f"a worker sent a source map that is not one: {error}"
            ) from error
