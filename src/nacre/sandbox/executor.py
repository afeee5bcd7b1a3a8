"""The seam between cells and the processes that run them.

A cell runs in a worker, which takes command frames and answers with event frames. A `CellExecutor`
starts workers: `Launcher` on this machine. The rest is the same for every executor, and stays in
this process: who gets a worker, the time budget, host requests, snapshots and their seals.
"""

from collections.abc import Callable
from typing import Protocol

import anyio

from nacre.sandbox.hardening import HardeningReport
from nacre.sandbox.image import Image
from nacre.sandbox.worker_process import SharedData
from nacre.sandbox.worker_protocol import Frame


class Worker(Protocol):
    """A worker that is ready for commands. Its messages are untrusted."""

    started: float
    """When it was started, by the monotonic clock."""
    must_be_silent: bool
    """Whether a message is a protocol error: the worker is idle, or its program waits."""
    on_death: Callable[[], None] | None
    """Called once when the worker dies."""

    @property
    def pid(self) -> int: ...

    @property
    def node(self) -> str:
        """The machine of a cluster that it runs on; empty for this machine."""
        ...

    @property
    def is_dead(self) -> bool: ...

    @property
    def death(self) -> anyio.Event: ...

    @property
    def has_unread(self) -> bool:
        """Whether the worker has sent something that was not read."""
        ...

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used; 0 if that is not known."""
        ...

    async def start(self, frame: bytes, *, shared: SharedData | None, seconds: float) -> Frame:
        """Send START or RESTORE with the data that the program reads; return the answer.

        Raises WorkerDiedError, and TimeoutError after so many seconds.
        """
        ...

    async def send(self, data: bytes, *, until: float = ...) -> None:
        """Send a frame. Raises WorkerDiedError, and TimeoutError at this time of the clock."""
        ...

    async def event(self, *, until: float = ...) -> Frame:
        """Return the next event. Raises WorkerDiedError, and TimeoutError at this time."""
        ...

    def expect_silence(self) -> None:
        """Treat every message before the next command as a protocol error."""
        ...

    async def abort(self, command: int) -> bool:
        """Make the worker drop its VM. Returns False if it does not answer in time."""
        ...

    def kill(self) -> None:
        """Kill the process. `stop` waits for its end."""
        ...

    async def stop(self) -> None:
        """Kill the process and wait for its end. Can be called twice."""
        ...


class CellExecutor(Protocol):
    """Starts the workers of one image."""

    @property
    def image(self) -> Image:
        """The image. Raises ImageError if the package is damaged."""
        ...

    @property
    def image_identity(self) -> str:
        """The hash of the image; empty before the first start, which reads it."""
        ...

    @property
    def module_origin(self) -> str:
        """Where the compiled module came from: `cache` or `built`; empty before the first start."""
        ...

    @property
    def hardening(self) -> HardeningReport | None:
        """The report of the last worker, also of one that is refused for it."""
        ...

    def prepare(self) -> bool:
        """Begin with what only the first start does, such as compiling the image, and do not wait;
        False if that takes a worker."""
        ...

    async def launch(self) -> Worker:
        """Start a worker, and wait until it has the required protections and is ready."""
        ...

    def close(self) -> None:
        """Release all resources, and end the workers that still run."""
        ...
