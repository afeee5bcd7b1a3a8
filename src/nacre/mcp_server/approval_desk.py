"""Open approvals of all sessions, and a private socket where a person can answer them.

For clients that cannot ask: the socket lies in a directory that only the user may enter.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from anyio.abc import SocketListener
from anyio.streams.buffered import BufferedByteReceiveStream

from nacre.errors import ApprovalError
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.mcp_server.approvals import plain_text, shown_input

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping

    from anyio.abc import SocketStream

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools import ApprovalQueue

logger = logging.getLogger(__name__)

_MAX_REQUEST_BYTES: Final = 64 * 1024
_REQUEST_SECONDS: Final = 5.0
_DECISIONS: Final = ("allow-once", "allow-always", "deny")


class ApprovalDesk:
    """The queues of the sessions of this process."""

    def __init__(self) -> None:
        self._queues: list[ApprovalQueue] = []

    def add(self, queue: ApprovalQueue) -> None:
        self._queues.append(queue)

    def remove(self, queue: ApprovalQueue) -> None:
        self._queues.remove(queue)

    def open_questions(self) -> list[JsonValue]:
        """What a person has to know to answer."""
        return [
            {
                "id": request.id,
                "toolId": plain_text(request.tool_id),
                "reason": plain_text(request.reason),
                "input": shown_input(request.input),
            }
            for queue in self._queues
            for request in queue.pending
        ]

    def answer(self, request_id: str, decision: str) -> None:
        """Raises ApprovalError for a question that is not open, and for what is no decision."""
        if decision not in _DECISIONS:
            raise ApprovalError(f"no decision: {decision[:80]!r}; known: {', '.join(_DECISIONS)}")
        for queue in self._queues:
            if any(request.id == request_id for request in queue.pending):
                queue.answer(request_id, decision)
                return
        raise ApprovalError(f"the approval {request_id[:80]!r} is not open any more")

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[bool]:
        """Answer at the socket meanwhile; False where there can be none."""
        opened = await _listen()
        if opened is None:
            yield False
            return
        path, listener = opened
        try:
            async with listener, anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, self._serve_one)
                yield True
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await path.unlink(missing_ok=True)

    async def _serve_one(self, stream: SocketStream) -> None:
        async with stream:
            try:
                with anyio.fail_after(_REQUEST_SECONDS):
                    buffered = BufferedByteReceiveStream(stream)
                    line = await buffered.receive_until(b"\n", _MAX_REQUEST_BYTES)
                    await stream.send(encode_json(self._reply(line)) + b"\n")
            except (
                TimeoutError,
                anyio.DelimiterNotFound,
                anyio.IncompleteRead,
                anyio.BrokenResourceError,
            ):
                # Whoever it was has gone, or is no `approve` command.
                return

    def _reply(self, line: bytes) -> JsonObject:
        try:
            match decode_json(line):
                case {"answer": str(request_id), "decision": str(decision)}:
                    self.answer(request_id, decision)
                    return {}
                case _:
                    return {"approvals": self.open_questions()}
        except (ApprovalError, NotJsonError) as error:
            return {"error": str(error)}


async def _listen() -> tuple[anyio.Path, SocketListener] | None:
    try:
        path, bound = await anyio.to_thread.run_sync(_bind)
        return anyio.Path(path), await SocketListener.from_socket(bound)
    except OSError as error:
        logger.warning("approvals can only be answered by clients that can ask: %s", error)
        return None


def _bind() -> tuple[Path, socket.socket]:
    directory = private_directory(os.environ)
    _remove_left_behind(directory)
    path = directory / f"{os.getpid()}-{os.urandom(4).hex()}.sock"
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(str(path))
        bound.listen()
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return path, bound


def private_directory(environment: Mapping[str, str]) -> Path:
    """Where the sockets are; made if need be. Raises OSError where others might get in."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    directory = Path(runtime) / "nacre" if runtime else Path(gettempdir()) / f"nacre-{os.getuid()}"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a directory that only you may enter")
    return directory


def _remove_left_behind(directory: Path) -> None:
    """Sockets of servers that were killed."""
    for path in sockets_in(directory):
        process_id = path.name.partition("-")[0]
        try:
            os.kill(int(process_id), 0)
        except (ProcessLookupError, ValueError, OverflowError):
            path.unlink(missing_ok=True)
        except PermissionError:
            # Somebody else's process has the number now; `approve` finds out.
            continue


def sockets_in(directory: Path) -> Generator[Path]:
    yield from sorted(directory.glob("*.sock"))
