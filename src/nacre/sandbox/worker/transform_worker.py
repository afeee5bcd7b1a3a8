"""A worker that turns TypeScript into JavaScript and runs none of it."""

import time
from typing import NoReturn

from nacre.sandbox.worker.connection import WorkerConnection
from nacre.sandbox.worker.typescript import TransformRefused, TypeScriptTransformer
from nacre.sandbox.worker.wasm_runtime import WasmTrap
from nacre.sandbox.worker_protocol import Command, Event, Frame, encode_frame


class TransformWorker:
    """Answers each TRANSFORM with TRANSFORMED or FAILED."""

    def __init__(self, connection: WorkerConnection, transformer: TypeScriptTransformer) -> None:
        self._connection = connection
        self._transformer = transformer

    def serve(self) -> NoReturn:
        """Read commands for ever; the end of the socket ends the process."""
        while True:
            frame = self._connection.receive()
            if frame.kind == Command.TRANSFORM:
                self._connection.send(self._transform(frame))
            else:
                self._connection.send(encode_frame(Event.ABORTED, {}))

    def _transform(self, frame: Frame) -> bytes:
        started = time.monotonic()
        try:
            done = self._transformer.transform(frame.tail)
        except TransformRefused as refused:
            reason = "typescript_transform_failed"
            if refused.is_module_syntax:
                reason = "module_access_denied"
            # Said as the engine would: where in the program, in a frame of its own.
            stack = f"    at cell.ts:{refused.line}:{refused.column}"
            message = refused.message
        except (WasmTrap, MemoryError) as error:
            reason, stack = "typescript_transform_failed", ""
            message = f"the program is too large or too deeply nested to transform: {error}"
        else:
            fields = {"mappings": done.mappings, "busyMs": (time.monotonic() - started) * 1000}
            return encode_frame(Event.TRANSFORMED, fields, done.code)
        fields = {"reason": reason, "message": message, "stack": stack, "busyMs": 0}
        return encode_frame(Event.FAILED, fields)
