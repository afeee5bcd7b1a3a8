"""The entry points of a worker process.

A worker loads what it needs, restricts itself, sends READY and then serves commands of the
supervisor. It has one thread. While guest code runs, the engine calls back every few thousand steps
to check the deadline and to look for an ABORT.
"""

import gc
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from nacre.sandbox.hardening import harden, open_descriptors
from nacre.sandbox.image import MEMORY_ADVICE, Image, WasmError
from nacre.sandbox.worker.host_calls import HostCalls
from nacre.sandbox.worker.vm import VmFactory, memory_with_overhead
from nacre.sandbox.worker.wasm_runtime import MAX_WASM_STACK_BYTES, Runtime
from nacre.sandbox.worker_protocol import Event, WorkerConnection, encode_frame

if TYPE_CHECKING:
    import signal as _signal
else:
    # Without the enumerations of all signals that `signal` makes.
    import _signal

# The memory of the interpreter and the engine, in addition to the memory of a guest.
_OWN_DATA_BYTES: Final = 256 << 20
# A main thread whose stack cannot grow has 8 MiB.
_SMALL_WASM_STACK_BYTES: Final = 4 << 20


class _Worker(Protocol):
    def serve(self) -> NoReturn: ...


def serve(settings_json: str) -> NoReturn:
    """Serve one supervisor until it closes the socket."""
    for number in (_signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM):
        # Ignored signals are inherited, for example under nohup.
        _signal.signal(number, _signal.SIG_DFL)
    connection = WorkerConnection(json.loads(settings_json)["socket"])
    try:
        set_up = connection.receive()
        settings = set_up.fields
        before = open_descriptors()
        worker = _load(settings, connection)
        report = harden(
            keep_fds={connection.fileno(), *(open_descriptors() - before)},
            parent_pid=settings["parentPid"],
            seccomp_bpf=set_up.tail,
            seccomp_problem=settings["seccompProblem"],
            max_data_bytes=_OWN_DATA_BYTES + memory_with_overhead(settings["maxGuestBytes"]),
        )
    except Exception as error:
        connection.send(encode_frame(Event.NOT_STARTED, _describe_failure(error)))
        os._exit(1)
    # What is loaded now stays, so it need not be searched for garbage either.
    gc.freeze()
    gc.enable()
    try:
        connection.send(encode_frame(Event.READY, {"hardening": report.to_json()}))
        worker.serve()
    except OSError:
        # The supervisor has closed the socket.
        os._exit(0)
    except BaseException:
        # No cleanup: freeing callbacks would write to a read-only page.
        os._exit(1)


def _describe_failure(error: Exception) -> dict[str, object]:
    """Return why the worker did not start, and whether its module is at fault."""
    is_from_system = isinstance(error, MemoryError | OSError) or (
        isinstance(error, WasmError) and error.is_from_system
    )
    advice = f"; {MEMORY_ADVICE}" if is_from_system else ""
    return {
        "problem": f"{type(error).__name__}: {error}{advice}",
        "isModuleNotLoadable": isinstance(error, WasmError) and not is_from_system,
    }


def compile_image(settings_json: str) -> None:
    """Write the compiled module of an image to a file; the process then ends."""
    settings = json.loads(settings_json)
    wasm = Image(**settings["image"]).wasm()
    with open(settings["output"], "wb") as file:
        file.write(Runtime(settings["library"]).compile(wasm))


def _load(settings: dict[str, Any], connection: WorkerConnection) -> _Worker:
    image = Image(**settings["image"])
    stack = MAX_WASM_STACK_BYTES if _stack_can_grow() else _SMALL_WASM_STACK_BYTES
    runtime = Runtime(settings["library"], max_stack_bytes=stack)
    prefix = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    module = runtime.load(f"{prefix}/{settings['module']}")
    # Each kind of worker imports its own code: a start is mostly imports.
    if image.kind == "typescript":
        from nacre.sandbox.worker.typescript import TransformWorker, TypeScriptTransformer

        return TransformWorker(connection, TypeScriptTransformer(runtime, module))
    from nacre.sandbox.worker.cell_worker import CellWorker

    calls = HostCalls(runtime, monotonic_offset_ns=settings["monotonicOffsetNs"])
    return CellWorker(connection, VmFactory(runtime, calls, image, module))


def _stack_can_grow() -> bool:
    if sys.platform != "linux":
        return False
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    return hard == resource.RLIM_INFINITY or hard >= 2 * MAX_WASM_STACK_BYTES
