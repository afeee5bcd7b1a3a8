"""A worker process as the supervisor sees it: its start, its messages, its shared data."""

import asyncio
import hashlib
import importlib.util
import json
import math
import signal
import socket
import subprocess
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, TypeVarTuple

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.lowlevel import RunVar

from nacre.config import LIMITS
from nacre.errors import (
    ModuleNotLoadableError,
    RuntimeUnavailableError,
    WorkerDiedError,
    WorkerProtocolError,
)
from nacre.sandbox.hardening import HardeningReport
from nacre.sandbox.worker_protocol import (
    Command,
    Event,
    Frame,
    FrameBuffer,
    encode_frame,
)

# How long a worker may take to send READY.
_START_SECONDS: Final = 30.0
# The engine checks for an abort every millisecond or two. A worker that takes longer is stuck.
_ABORT_SECONDS: Final = 0.1
# The largest snapshot that can be configured, and space for the rest of the frame.
_MAX_FRAME_BYTES: Final = LIMITS["max_snapshot_bytes"].most + (64 << 20)
# The longest fields are the requests of a burst, which are at most 4,096.
_MAX_FIELDS_BYTES: Final = 1 << 20
# Limits of the shared data in one worker.
_MAX_SENT_ITEMS: Final = 16
_MAX_SENT_BYTES: Final = 64 << 20
# Half of that, because data in transfer takes twice its size.
MAX_SHARED_BYTES: Final = _MAX_SENT_BYTES // 2
_MAX_THREADS: Final = 16
_PROCESS_CLOCK: Final = 2
# How many pieces of large frames are sent between two turns of the other tasks. While a thread
# converts a large value, each send waits some milliseconds for the interpreter lock.
_MAX_SENDS_PER_TURN: Final = 4
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("nacre_sandbox_threads")
_sends: RunVar[anyio.Semaphore] = RunVar("nacre_sandbox_sends")

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

_BOOT: Final = (
    "import gc, sys\n"
    # Imports leave no garbage.
    "gc.disable()\n"
    "sys.path += sys.argv[1].splitlines()\n"
    "from nacre.sandbox.worker import main\n"
    "getattr(main, sys.argv[2])(sys.argv[3])\n"
)


def python_command(function: str, settings: dict[str, Any]) -> list[str]:
    """Return a command that calls a function of `nacre.sandbox.worker.main` with the settings."""
    if not sys.executable:
        raise RuntimeUnavailableError("the path of the Python executable is unknown")
    # The isolated interpreter (-I -S) has no site-packages: add only the directories it needs.
    specs = (importlib.util.find_spec(name) for name in ("nacre", "zstandard"))
    paths = {str(Path(spec.origin).parent.parent) for spec in specs if spec and spec.origin}
    arguments = ("\n".join(sorted(paths)), function, json.dumps(settings))
    return [sys.executable, "-I", "-S", "-c", _BOOT, *arguments]


def spawn_worker(
    settings: dict[str, Any], *, seccomp_bpf: bytes, keep_fds: tuple[int, ...]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a worker and return its process and the supervisor's end of the socket.

    Blocks for some milliseconds. On Linux, the worker dies with the calling thread.
    """
    ours, theirs = socket.socketpair()
    try:
        # A few kilobytes: they wait in the socket until the worker reads them.
        ours.settimeout(_START_SECONDS)
        ours.sendall(encode_frame(Command.SET_UP, settings, seccomp_bpf))
        ours.setblocking(False)
        command = python_command("serve", {"socket": theirs.fileno()})
        process = subprocess.Popen(
            command,
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), *keep_fds),
            # Ctrl-C at the terminal goes to the supervisor, which then stops its workers.
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise RuntimeUnavailableError(f"cannot start a worker process: {error}") from error
    finally:
        theirs.close()
    return process, ours


class SharedData:
    """JSON texts that many programs read, such as a tool catalog. A worker gets them once.

    `parts` maps names to texts, which the caller guarantees to be JSON. `methods` are the host
    requests that the guest makes for a program with this data. A part is decoded when the program
    first uses it.
    """

    __slots__ = ("digest", "methods", "parts", "size")

    def __init__(self, parts: Mapping[str, bytes], *, methods: Iterable[str] = ()) -> None:
        for name, text in parts.items():
            if not isinstance(text, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"part {name!r} must be bytes, not a {type(text).__name__}")
        self.parts: Mapping[str, bytes] = MappingProxyType(dict(parts))
        self.methods = frozenset(methods)
        self.size = sum(map(len, parts.values()))
        if self.size > MAX_SHARED_BYTES:
            raise ValueError(
                f"the shared data has {self.size} bytes; the limit is {MAX_SHARED_BYTES}"
            )
        self.digest = _digest(self.parts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SharedData):
            return NotImplemented
        return (self.digest, self.methods) == (other.digest, other.methods)

    def __hash__(self) -> int:
        return hash(self.digest)


class SentData:
    """The shared data that one worker has. Decides which data the worker has to drop."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def has(self, digest: str) -> bool:
        """Whether the worker has this data. If so, mark it as used most recently."""
        if digest not in self._sizes:
            return False
        self._sizes.move_to_end(digest)
        return True

    def choose_evictions(self, size: int) -> list[str]:
        """Return the digests to drop, least recently used first, to free `size` bytes."""
        count, total = len(self._sizes), sum(self._sizes.values())
        evicted: list[str] = []
        for digest, item_size in self._sizes.items():
            if count < _MAX_SENT_ITEMS and total + size <= _MAX_SENT_BYTES:
                break
            evicted.append(digest)
            count, total = count - 1, total - item_size
        return evicted

    def record(self, data: SharedData, *, evicted: Iterable[str]) -> None:
        """Record that the worker got the data and dropped the evicted data."""
        for digest in evicted:
            del self._sizes[digest]
        self._sizes[data.digest] = data.size


def encode_shared(data: SharedData, sent: SentData) -> bytes:
    """Encode the data for a worker, and record that it has the data."""
    evicted = sent.choose_evictions(data.size)
    fields = {
        "digest": data.digest,
        "parts": [[name, len(text)] for name, text in data.parts.items()],
        "forget": evicted,
    }
    sent.record(data, evicted=evicted)
    return encode_frame(Command.SHARE, fields, b"".join(data.parts.values()))


def _digest(parts: Mapping[str, bytes]) -> str:
    """Hash the names and texts, each with its length, so that different data never match."""
    found = hashlib.sha256()
    for name in sorted(parts):
        for text in (name.encode(errors="surrogatepass"), parts[name]):
            found.update(len(text).to_bytes(8, "little"))
            found.update(text)
    return found.hexdigest()


class WorkerProcess:
    """A running worker. Call `watch` after creation and `stop` at the end."""

    node = ""
    """Not on a machine of a cluster."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self._process = process
        self._socket = connection
        self._frames = FrameBuffer(
            connection, max_bytes=_MAX_FRAME_BYTES, max_fields_bytes=_MAX_FIELDS_BYTES
        )
        self._inbox: deque[Frame] = deque()
        self._arrived = WakeUp()
        self._problem = ""
        self.started = time.monotonic()
        self.is_dead = False
        # Whether a message is a protocol error: the worker is idle, or its program waits.
        self.must_be_silent = False
        self.hardening = HardeningReport(measures=())
        self._sent_data = SentData()
        self.death = anyio.Event()
        # Called once when the worker dies.
        self.on_death: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used; 0 if the platform does not tell."""
        if sys.platform != "linux":
            return 0.0
        # The clock of another process: see `clock_getcpuclockid` in the C library.
        with suppress(OSError):
            return time.clock_gettime((~self._process.pid << 3) | _PROCESS_CLOCK)
        return 0.0

    async def ready(self) -> None:
        """Wait until the worker is hardened and ready for commands."""
        with anyio.move_on_after(_START_SECONDS):
            frame = await self.event()
            if frame.kind == Event.READY:
                self.hardening = _read_hardening(frame)
                return
            problem = frame.fields.get("problem", "its first message is not READY")
            message = f"the sandbox worker did not start: {problem}"
            if frame.fields.get("isModuleNotLoadable"):
                raise ModuleNotLoadableError(message)
            raise RuntimeUnavailableError(message)
        raise RuntimeUnavailableError(f"the sandbox worker did not start in {_START_SECONDS} s")

    def watch(self) -> None:
        """Receive messages from now until the worker dies."""
        # A callback of the event loop: a task that waits for the socket would add a third to the
        # time of a request.
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._receive)

    def _receive(self) -> None:
        try:
            size = self._frames.receive()
            while (frame := self._frames.take()) is not None:
                self._inbox.append(frame)
            if self.must_be_silent and self._inbox:
                raise WorkerProtocolError("a worker sent an unexpected message")
        except BlockingIOError:
            return
        except OSError as error:
            size, self._problem = 0, str(error)
        except WorkerProtocolError as error:
            size, self._problem = 0, str(error)
            self._process.kill()
        if not size:
            self._mark_dead()
        self._arrived.set()

    def _mark_dead(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._socket)
            self._loop = None
        self.is_dead = True
        self._arrived.set()
        self._arrived.close()
        self.death.set()
        if self.on_death is not None:
            self.on_death()

    async def event(self, *, until: float = math.inf) -> Frame:
        """Return the next event. Raises WorkerDiedError if the worker has died, and TimeoutError if
        there is no event until this time of the monotonic clock."""
        while not self._inbox:
            if self.is_dead:
                raise await self._death()
            seconds = until - time.monotonic()
            if seconds <= 0:
                raise TimeoutError
            await self._arrived.wait(seconds)
        return self._inbox.popleft()

    async def send(self, data: bytes, *, until: float = math.inf) -> None:
        """Send a frame. Raises WorkerDiedError if the worker has died, and TimeoutError if it has
        not read the frame until this time of the monotonic clock."""
        self.must_be_silent = False
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise await self._death() from error
        if sent < len(data):
            with anyio.fail_after(until - time.monotonic()):
                await self._send_rest(memoryview(data)[sent:])

    async def _send_rest(self, view: memoryview) -> None:
        await _let_others_run()
        while view:
            try:
                view = view[self._socket.send(view) :]
                if view:
                    await _let_others_run()
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise await self._death() from error

    async def start(self, frame: bytes, *, shared: SharedData | None, seconds: float) -> Frame:
        """Send START or RESTORE with the data that the program reads; return the answer.

        Raises WorkerDiedError, and TimeoutError after so many seconds.
        """
        with anyio.fail_after(seconds):
            if shared is not None:
                await self._share(shared)
            await self.send(frame)
            return await self.event()

    async def _share(self, data: SharedData) -> None:
        """Send the data to the worker, unless it has the data already."""
        if self._sent_data.has(data.digest):
            return
        # If the send is cancelled, the worker is not used again.
        await self.send(encode_shared(data, self._sent_data))

    @property
    def has_unread(self) -> bool:
        """Whether the worker has sent something that was not read."""
        return bool(self._inbox or self._frames)

    def expect_silence(self) -> None:
        """Treat every message before the next command as a protocol error."""
        if self.has_unread:
            raise WorkerProtocolError("a worker sent more messages than expected")
        self.must_be_silent = True

    async def abort(self, command: int) -> bool:
        """Make the worker drop its VM. Returns False if it does not answer in time."""
        try:
            with anyio.move_on_after(_ABORT_SECONDS):
                await self.send(encode_frame(command, {}))
                while (await self.event()).kind != Event.ABORTED:
                    pass
                return True
        except WorkerDiedError:
            pass
        return False

    def kill(self) -> None:
        """Kill the process. `stop` waits for its end."""
        self._process.kill()

    async def stop(self) -> None:
        """Kill the process, wait for its end, and close the socket. Can be called twice."""
        self._process.kill()
        if self._process.returncode is None:
            await run_in_thread(self._process.wait)
        self._mark_dead()
        self._socket.close()

    async def _death(self) -> WorkerDiedError:
        # The socket closes shortly before the exit status of the process is available.
        with suppress(subprocess.TimeoutExpired):
            await run_in_thread(self._process.wait, _ABORT_SECONDS)
        code = self._process.returncode
        how = "died"
        if code is not None and code < 0:
            how = f"was killed by {_signal_name(-code)}"
        elif code is not None:
            how = f"exited with status {code}"
        detail = f" ({self._problem})" if self._problem else ""
        return WorkerDiedError(f"the worker process {how}{detail}")


def _read_hardening(ready: Frame) -> HardeningReport:
    try:
        return HardeningReport.from_json(ready.fields.get("hardening"))
    except ValueError as error:
        raise RuntimeUnavailableError(f"the sandbox worker did not start: {error}") from error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def _let_others_run() -> None:
    """Return in a later turn of the event loop, together with a few other large sends."""
    try:
        sends = _sends.get()
    except LookupError:
        sends = anyio.Semaphore(_MAX_SENDS_PER_TURN, fast_acquire=True)
        _sends.set(sends)
    async with sends:
        await anyio.lowlevel.checkpoint()


async def run_in_thread(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Call a blocking function in a thread.

    The sandbox has its own thread limit, so that blocking tools cannot use up its threads.
    """
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_MAX_THREADS)
        _limiter.set(limiter)
    return await anyio.to_thread.run_sync(function, *arguments, limiter=limiter)


class WakeUp:
    """Wakes the task that waits, if there is one.

    An `anyio.Event` for each wait, with a cancel scope for its time limit, takes ten times as long.
    That is a tenth of the time of a host request. One timer serves many waits: those of a leg all
    have about the same deadline.
    """

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self) -> None:
        """Wake the task. Without a task that waits, nothing happens."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float = math.inf) -> None:
        """Wait for the next `set`, at most as long as this. Only one task may wait at a time."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        if seconds < math.inf:
            self._deadline = loop.time() + seconds
            self._ensure_timer(loop)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._deadline = math.inf

    def close(self) -> None:
        """Cancel the timer. Call it after the last wait, or the timer keeps this object alive."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ensure_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the timer end at the deadline or before it."""
        if self._timer is not None:
            if self._timer.when() <= self._deadline:
                return
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._on_timer, loop)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if loop.time() >= self._deadline:
            self.set()
        elif self._deadline < math.inf:
            self._ensure_timer(loop)
