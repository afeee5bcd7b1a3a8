"""A worker that turns TypeScript into JavaScript and runs none of it."""

from typing import NoReturn

from nacre.sandbox.worker.connection import WorkerConnection
from nacre.sandbox.worker.typescript import TransformRefused, TypeScriptTransformer
from nacre.sandbox.worker.wasm_runtime import WasmTrap
from nacre.sandbox.worker_protocol import Command, Event, encode_frame


class TransformWorker:
    """Answers each TRANSFORM with TRANSFORMED or FAILED, and knows no other command."""

    def __init__(self, connection: WorkerConnection, transformer: TypeScriptTransformer) -> None:
        self._connection = connection
        self._transformer = transformer

    def serve(self) -> NoReturn:
        """Read commands for ever; the end of the socket ends the process."""
        while True:
            frame = self._connection.receive()
            if frame.kind != Command.TRANSFORM:
                raise ValueError(f"a command that is not for a transformer: {frame.kind}")
            self._connection.send(self._transform(frame.tail))

    def _transform(self, source: bytes) -> bytes:
        try:
            done = self._transformer.transform(source)
        except TransformRefused as refused:
            reason = "typescript_transform_failed"
            if refused.is_module_syntax:
                reason = "module_access_denied"
            # Said as the engine would: where in the program, in a frame of its own.
            stack = f"    at cell.ts:{refused.line}:{refused.column}"
            message = refused.message
        except (WasmTrap, MemoryError):
            reason, stack = "typescript_transform_failed", ""
            message = "the program is too large or too deeply nested to transform; split it up"
        else:
            return encode_frame(Event.TRANSFORMED, {"mappings": done.mappings}, done.code)
        fields = {"reason": reason, "message": message, "stack": stack}
        return encode_frame(Event.FAILED, fields)
