"""One worker as the supervisor sees it: a process, a socket, and what comes over it."""

import asyncio
import hashlib
import importlib.util
import json
import signal
import socket
import subprocess
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from nacre.config import LIMITS
from nacre.errors import (
    ModuleNotLoadableError,
    RuntimeUnavailableError,
    WorkerDiedError,
    WorkerProtocolError,
)
from nacre.sandbox.worker_protocol import (
    HEADER_BYTES,
    Command,
    Event,
    Frame,
    decode_header,
    encode_frame,
)

# A worker that has not said READY by then never will.
_START_SECONDS: Final = 30.0
# The engine looks for an abort every millisecond or two; what takes longer is stuck.
_ABORT_SECONDS: Final = 0.1
# No sound frame is larger: the largest snapshot that can be configured, and room beside it.
_MAX_FRAME_BYTES: Final = LIMITS["max_snapshot_bytes"].most + (64 << 20)
# The requests of a burst, 4,096 of them at most, are the longest fields there are.
_MAX_FIELDS_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 18
# What one worker holds, at most; a worker's own memory is limited as well.
_MAX_HELD: Final = 16
_MAX_HELD_BYTES: Final = 64 << 20
# Half of that: what is on its way takes room twice.
MAX_SHARED_BYTES: Final = _MAX_HELD_BYTES // 2
_MAX_THREADS: Final = 16
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("nacre_sandbox_threads")

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

_BOOT: Final = (
    "import sys\n"
    "sys.path += sys.argv[1].splitlines()\n"
    "from nacre.sandbox.worker import main\n"
    "getattr(main, sys.argv[2])(sys.argv[3])\n"
)


def python_command(function: str, settings: dict[str, Any]) -> list[str]:
    """The command that calls a function of `nacre.sandbox.worker.main` in a bare interpreter."""
    if not sys.executable:
        raise RuntimeUnavailableError("this Python does not know its own executable")
    # Only where the child's imports are; the standard library comes first and from the interpreter.
    specs = (importlib.util.find_spec(name) for name in ("nacre", "zstandard"))
    paths = {str(Path(spec.origin).parent.parent) for spec in specs if spec and spec.origin}
    arguments = ("\n".join(sorted(paths)), function, json.dumps(settings))
    return [sys.executable, "-I", "-S", "-c", _BOOT, *arguments]


def spawn_worker(
    settings: dict[str, Any], *, keep_fds: tuple[int, ...]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the process of a worker, and our end of the socket to it.

    Blocks for some milliseconds. On Linux a worker dies with the thread that calls this.
    """
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        command = python_command("serve", {**settings, "socket": theirs.fileno()})
        process = subprocess.Popen(
            command,
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), *keep_fds),
            # Ctrl-C at the terminal is for the supervisor, which then stops its workers.
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise RuntimeUnavailableError(f"cannot start a worker process: {error}") from error
    finally:
        theirs.close()
    return process, ours


class SharedData:
    """JSON texts that programs read without leaving their worker.

    `parts` are the texts by name; the caller vouches that they are JSON. `methods` are the host
    requests that the guest makes on a program's behalf when it has this data. A program reads a
    part when it touches what is made of it, never before.
    """

    __slots__ = ("digest", "methods", "parts", "size")

    def __init__(self, parts: Mapping[str, bytes], *, methods: Iterable[str] = ()) -> None:
        for name, text in parts.items():
            if not isinstance(text, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"part {name!r} is a {type(text).__name__}; it has to be bytes")
        self.parts: Mapping[str, bytes] = MappingProxyType(dict(parts))
        self.methods = frozenset(methods)
        self.size = sum(map(len, parts.values()))
        if self.size > MAX_SHARED_BYTES:
            raise ValueError(
                f"the shared data takes {self.size} bytes; the most is {MAX_SHARED_BYTES}"
            )
        self.digest = _digest(self.parts)


class SharedHoldings:
    """What one worker holds, as the supervisor knows it; decides what it has to forget."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def has(self, digest: str) -> bool:
        """Whether the worker holds this data; if so, it is the one used last."""
        if digest not in self._sizes:
            return False
        self._sizes.move_to_end(digest)
        return True

    def surplus(self, size: int) -> list[str]:
        """What to forget, the longest unused first, to make room for so many bytes."""
        count, total = len(self._sizes), sum(self._sizes.values())
        forgotten: list[str] = []
        for digest, held in self._sizes.items():
            if count < _MAX_HELD and total + size <= _MAX_HELD_BYTES:
                break
            forgotten.append(digest)
            count, total = count - 1, total - held
        return forgotten

    def note(self, data: SharedData, *, forgotten: Iterable[str]) -> None:
        """The worker was given this and has forgotten those."""
        for digest in forgotten:
            del self._sizes[digest]
        self._sizes[data.digest] = data.size


def _digest(parts: Mapping[str, bytes]) -> str:
    """One hash for names and texts; each with its length, so that none can pass for two."""
    found = hashlib.sha256()
    for name in sorted(parts):
        for text in (name.encode(errors="surrogatepass"), parts[name]):
            found.update(len(text).to_bytes(8, "little"))
            found.update(text)
    return found.hexdigest()


class WorkerProcess:
    """A running worker. Whoever creates it calls `watch` at the start and `stop` at the end."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self._process = process
        self._socket = connection
        self._received = bytearray()
        self._inbox: deque[Frame] = deque()
        self._arrived = anyio.Event()
        self._problem = ""
        self.started = time.monotonic()
        self.is_dead = False
        # Whether nobody expects anything of it: idle, or holding a program that only waits.
        self.is_quiet = False
        self.hardening: Any = None
        self._holdings = SharedHoldings()
        self.death = anyio.Event()
        # Whoever holds this worker for a cell that only waits; called once, when it dies.
        self.on_death: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        """Wait until the worker is locked down and listens."""
        with anyio.move_on_after(_START_SECONDS):
            frame = await self.event()
            if frame.kind == Event.READY:
                self.hardening = frame.fields.get("hardening")
                return
            problem = frame.fields.get("problem", "it said something else first")
            message = f"the sandbox worker did not start: {problem}"
            if frame.fields.get("isModuleNotLoadable"):
                raise ModuleNotLoadableError(message)
            raise RuntimeUnavailableError(message)
        raise RuntimeUnavailableError(f"the sandbox worker did not start in {_START_SECONDS} s")

    def watch(self) -> None:
        """Take in what the worker says, from now until it is gone.

        The event loop calls back on every arrival: a task that waits for the socket would cost a
        third of a request's time.
        """
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._take_in)

    def _take_in(self) -> None:
        try:
            chunk = self._socket.recv(_CHUNK_BYTES)
            self._received += chunk
            self._inbox.extend(self._frames())
            if self.is_quiet and self._inbox:
                raise WorkerProtocolError("a worker spoke without being asked")
        except BlockingIOError:
            return
        except OSError as error:
            chunk, self._problem = b"", str(error)
        except WorkerProtocolError as error:
            chunk, self._problem = b"", str(error)
            self._process.kill()
        if not chunk:
            self._note_death()
        self._arrived.set()

    def _note_death(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._socket)
            self._loop = None
        self.is_dead = True
        self._arrived.set()
        self.death.set()
        if self.on_death is not None:
            self.on_death()

    async def event(self) -> Frame:
        """The next event; raises WorkerDiedError if none can come any more."""
        while not self._inbox:
            if self.is_dead:
                raise await self._death()
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._inbox.popleft()

    async def send(self, data: bytes) -> None:
        """Send a frame; raises WorkerDiedError if the worker is gone."""
        self.is_quiet = False
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise await self._death() from error

    async def share(self, data: SharedData) -> None:
        """See to it that the worker holds this data; nothing is sent if it does already."""
        if self._holdings.has(data.digest):
            return
        forgotten = self._holdings.surplus(data.size)
        fields = {
            "digest": data.digest,
            "parts": [[name, len(text)] for name, text in data.parts.items()],
            "forget": forgotten,
        }
        await self.send(encode_frame(Command.SHARE, fields, b"".join(data.parts.values())))
        # Only now: a send that was cut short leaves a worker that nobody can use any more.
        self._holdings.note(data, forgotten=forgotten)

    @property
    def has_unread(self) -> bool:
        """Whether the worker has said more than anybody asked for."""
        return bool(self._inbox or self._received)

    def fall_quiet(self) -> None:
        """Expect nothing more until the next command; more than was asked for is a breach."""
        if self.has_unread:
            raise WorkerProtocolError("a worker said more than it was asked for")
        self.is_quiet = True

    async def abort(self, command: int) -> bool:
        """Have the worker drop its VM now; False if it does not answer and has to be killed."""
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
        """End the process at once; `stop` collects it."""
        self._process.kill()

    async def stop(self) -> None:
        """End the process, wait until it is gone, and close the socket; twice is harmless."""
        self._process.kill()
        if self._process.returncode is None:
            await in_thread(self._process.wait)
        self._note_death()
        self._socket.close()

    async def _death(self) -> WorkerDiedError:
        # The socket closes a moment before the process is gone and can say how it ended.
        with suppress(subprocess.TimeoutExpired):
            await in_thread(self._process.wait, _ABORT_SECONDS)
        code = self._process.returncode
        how = "is gone"
        if code is not None and code < 0:
            how = f"was ended by {_signal_name(-code)}"
        elif code is not None:
            how = f"ended with status {code}"
        detail = f" ({self._problem})" if self._problem else ""
        return WorkerDiedError(f"the worker process {how}{detail}")

    def _frames(self) -> Iterator[Frame]:
        while len(self._received) >= HEADER_BYTES:
            kind, fields_size, tail_size = decode_header(self._received)
            end = HEADER_BYTES + fields_size + tail_size
            if end > _MAX_FRAME_BYTES or fields_size > _MAX_FIELDS_BYTES:
                raise WorkerProtocolError(f"a worker announced a frame of {end} bytes")
            if len(self._received) < end:
                return
            fields_end = HEADER_BYTES + fields_size
            try:
                fields = json.loads(self._received[HEADER_BYTES:fields_end])
            except (ValueError, RecursionError) as error:
                raise WorkerProtocolError(f"a worker sent invalid JSON: {error}") from error
            if not isinstance(fields, dict):
                raise WorkerProtocolError("a worker sent fields that are not an object")
            tail = bytes(self._received[fields_end:end])
            del self._received[:end]
            yield Frame(kind, fields, tail)  # pyright: ignore[reportUnknownArgumentType]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def in_thread(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Call a blocking function in a thread."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_MAX_THREADS)
        _limiter.set(limiter)
    return await anyio.to_thread.run_sync(function, *arguments, limiter=limiter)
