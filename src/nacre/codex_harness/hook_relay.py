"""The relay of Codex's native hooks: its Unix socket, its registrations and the hooks of a thread.

Codex runs a command for each hook (`relay_command.py`). The command connects to the socket of this
process and names the registration of a session, which answers. Only processes of this user can
connect. An answer is only for the process that asks, so that a forged event permits nothing. The
command takes answers only from this process, so that a forged socket permits nothing either.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shlex
import shutil
import socket
import struct
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from nacre.codex_harness.tool_specs import NAMESPACE
from nacre.json_types import NotJsonError, encode_json
from nacre.large_json import decode_off_loop

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncGenerator, Sequence

    from anyio.abc import TaskGroup

    from nacre.config import HookRelayConfig, RelayEvent
    from nacre.json_types import JsonObject

logger = logging.getLogger(__name__)

# Not that of a virtual environment, which takes longer to start.
_PYTHON: Final = os.path.realpath(sys.executable)
_COMMAND: Final = Path(__file__).with_name("relay_command.py")
_DIRECTORY_PREFIX: Final = "nacre-relay-"
_SOCKET_NAME: Final = "socket"
# The limit of macOS; Linux has a few more.
_MAX_PATH_BYTES: Final = 103
_MAX_FRAME_BYTES: Final = (4 << 20) + 1024
_MAX_PARTS: Final = 20_000
_MAX_CONNECTIONS: Final = 64
_READ_SECONDS: Final = 10.0
_READ_BYTES: Final = 65_536
# For an answer that the command does not read.
_CLOSE_SECONDS: Final = 1.0
_SWEEP_SECONDS: Final = 20.0
_MIN_GRACE_SECONDS: Final = 10.0
# Codex lets a call pass when a hook times out. So the command itself watches the time, and Codex
# waits longer than anybody needs to approve a call.
_MAX_ANSWER_SECONDS: Final = 24 * 3600

_NAMES: Final[dict[RelayEvent, tuple[str, str]]] = {
    "pre_tool_use": ("PreToolUse", "pre_tool_use"),
    "post_tool_use": ("PostToolUse", "post_tool_use"),
    "permission_request": ("PermissionRequest", "permission_request"),
    "before_agent_finalize": ("Stop", "stop"),
}
"""The name of an event in Codex's configuration, and its label in keys and hashes."""
_STATE_PREFIXES: Final = ("/<session-flags>/config.toml", "<session-flags>/config.toml")


class HookHandler(Protocol):
    """Answers the native hooks of one turn."""

    async def answer(self, event: RelayEvent, payload: JsonObject, /) -> JsonObject | None:
        """The output of the hook; None lets Codex continue. An exception is a refusal."""
        ...


def deny_tool_use(reason: str) -> JsonObject:
    """The output of a PreToolUse hook that blocks the call."""
    decision: JsonObject = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": reason,
    }
    return {"hookSpecificOutput": decision}


def decide_permission(*, reason: str | None) -> JsonObject:
    """The output of a PermissionRequest hook: allow, or deny for a reason."""
    decision: JsonObject = (
        {"behavior": "allow"} if reason is None else {"behavior": "deny", "message": reason}
    )
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


def revise_answer(reason: str) -> JsonObject:
    """The output of a Stop hook that asks for another pass of the model."""
    return {"decision": "block", "reason": reason}


def _refuse(event: RelayEvent, reason: str) -> JsonObject | None:
    """The output of a hook that has no answer."""
    if event == "pre_tool_use":
        return deny_tool_use(reason)
    return decide_permission(reason=reason) if event == "permission_request" else None


def make_relay_id(agent_id: str, session_id: str) -> str:
    """The id of a session's relay; the same for all its turns."""
    digest = hashlib.sha256(f"nacre:codex:hook-relay\0{agent_id}\0{session_id}".encode())
    return f"codex-{digest.hexdigest()[:40]}"


def make_generation() -> str:
    """A new generation, for the relay of a new thread. A thread keeps it as long as it lives."""
    return os.urandom(8).hex()


@dataclass(kw_only=True, eq=False)
class RelayRegistration:
    """The relay of one session, answered by the handler of its current turn."""

    relay_id: str
    generation: str
    handler: HookHandler
    config: HookRelayConfig
    socket_path: str
    is_active: bool = True
    """Whether a turn is running; its registration does not expire."""
    expires_at: float = field(default=0.0)

    def renew(self) -> None:
        self.expires_at = anyio.current_time() + self.config.ttl_seconds

    def thread_config(self, events: Sequence[RelayEvent], *, must_answer: bool) -> JsonObject:
        """The members of a thread's `config` that install hooks for these events, and no others.

        With `must_answer`, a call is blocked if this process cannot be reached. Without, there is
        nothing yet that could block a call, and it passes.
        """
        members: JsonObject = {"features.hooks": bool(events)}
        state: JsonObject = {}
        for event, (name, label) in _NAMES.items():
            hooks = [self._make_hook(event, must_answer=must_answer)] if event in events else []
            matcher = "" if event == "before_agent_finalize" else _NATIVE_TOOLS
            group: JsonObject = {"hooks": [*hooks], **({"matcher": matcher} if matcher else {})}
            members[f"hooks.{name}"] = [group] if hooks else []
            trust: JsonObject = {"enabled": False}
            if hooks:
                trust = {"enabled": True, "trusted_hash": hash_hook(label, hooks, matcher=matcher)}
            state |= {f"{prefix}:{label}:0:0": trust for prefix in _STATE_PREFIXES}
        members["hooks.state"] = state
        return members

    def _make_hook(self, event: RelayEvent, *, must_answer: bool) -> JsonObject:
        refusal = _refuse(event, _UNREACHABLE) if must_answer else None
        return {
            "type": "command",
            "command": self._make_command(
                event, fallback=_encode_answer(refusal).decode(), must_answer=must_answer
            ),
            "timeout": _MAX_ANSWER_SECONDS,
            "async": False,
        }

    def _make_command(self, event: RelayEvent, *, fallback: str, must_answer: bool) -> str:
        """A command for any shell. Codex lets a call pass if its hook was killed, such as for
        memory, so the shell stays and answers then. The helper ends when its shell has gone."""
        python, script = _PYTHON, str(_COMMAND)
        need = "required" if must_answer else "optional"
        address = f"{self.relay_id} {self.generation} {need} {event}"
        timeout = f"{self.config.answer_timeout_seconds:g}"
        server = [self.socket_path, str(os.getpid())]
        arguments = [python, "-I", "-S", script, *server, address, timeout, fallback]
        return (
            f"test -x {shlex.quote(python)} && test -r {shlex.quote(script)} && "
            f"{shlex.join(arguments)} || printf %s {shlex.quote(fallback)}"
        )


# Every name that does not begin with the namespace of Nacre's tools: their calls have their own
# hooks, and a process for each would only delay them. Codex has no lookahead.
_NATIVE_TOOLS: Final = "^(?:{})".format(
    "|".join(f"{NAMESPACE[:at]}(?:[^{char}]|$)" for at, char in enumerate(NAMESPACE))
)
_UNREACHABLE: Final = "Nacre cannot be reached, so that its tool policy cannot be checked"


def hash_hook(label: str, hooks: Sequence[JsonObject], *, matcher: str = "") -> str:
    """The hash by which Codex recognizes a hook that is trusted."""
    identity: JsonObject = {"event_name": label, "hooks": [*hooks]}
    if matcher:
        identity["matcher"] = matcher
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _encode_answer(answer: JsonObject | None) -> bytes:
    return b"" if answer is None else encode_json(answer)


@asynccontextmanager
async def open_hook_relay() -> AsyncGenerator[HookRelay]:
    """Serve the relay until the block ends."""
    listening = await anyio.to_thread.run_sync(_listen)
    path: str = listening.getsockname()
    try:
        async with anyio.create_task_group() as tasks:
            relay = HookRelay(path)

            def accept(reader: StreamReader, writer: StreamWriter) -> None:
                if server.is_serving():
                    tasks.start_soon(relay.serve, reader, writer)
                else:
                    writer.close()

            # Not a Unix listener of anyio: it fails if a wait is cancelled when data arrives.
            server = await asyncio.start_unix_server(accept, sock=listening, start_serving=False)
            await server.start_serving()
            tasks.start_soon(relay.renew_active)
            try:
                yield relay
            finally:
                server.close()
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            directory = os.path.dirname(path)
            await anyio.to_thread.run_sync(partial(shutil.rmtree, directory, ignore_errors=True))


def _listen() -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(_make_directory() / _SOCKET_NAME))
    listening.listen(_MAX_CONNECTIONS)
    return listening


def _make_directory() -> Path:
    """A new private directory for a socket; those of processes that were killed are removed."""
    parents = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]
    for parent in filter(os.path.isdir, parents):
        # `mkdtemp` appends eight characters.
        longest = f"{parent}/{_DIRECTORY_PREFIX}12345678/{_SOCKET_NAME}"
        if len(os.fsencode(longest)) <= _MAX_PATH_BYTES and os.access(parent, os.W_OK):
            _remove_abandoned(Path(parent))
            return Path(tempfile.mkdtemp(prefix=_DIRECTORY_PREFIX, dir=parent))
    raise OSError(f"no directory has a short enough path for a socket: {', '.join(parents)}")


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{_DIRECTORY_PREFIX}*"):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            if directory.lstat().st_uid != os.geteuid():
                continue
            try:
                probe.connect(str(directory / _SOCKET_NAME))
            except ConnectionRefusedError:
                shutil.rmtree(directory, ignore_errors=True)


class HookRelay:
    """The registrations of all sessions in this process, and the server of their socket."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path
        self._registrations: dict[str, RelayRegistration] = {}
        self._connections = anyio.CapacityLimiter(_MAX_CONNECTIONS)

    def register(
        self, handler: HookHandler, *, relay_id: str, generation: str, config: HookRelayConfig
    ) -> RelayRegistration:
        """Let this handler answer for a relay, in place of the handler of an earlier turn."""
        registration = RelayRegistration(
            relay_id=relay_id,
            generation=generation,
            handler=handler,
            config=config,
            socket_path=self.socket_path,
        )
        registration.renew()
        self._registrations[relay_id] = registration
        return registration

    def unregister(self, registration: RelayRegistration) -> None:
        """The turn has ended. For some seconds, hooks that are late are still answered."""
        grace = max(_MIN_GRACE_SECONDS, registration.config.hook_timeout_seconds + 5)
        registration.is_active = False
        registration.expires_at = anyio.current_time() + grace

    @property
    def count(self) -> int:
        """The number of registrations."""
        self._forget_expired()
        return len(self._registrations)

    async def renew_active(self) -> None:
        """Renew the registrations of running turns by a timer: a model may think for hours."""
        while True:
            await anyio.sleep(_SWEEP_SECONDS)
            for registration in self._registrations.values():
                if registration.is_active:
                    registration.renew()
            self._forget_expired()

    def _forget_expired(self) -> None:
        now = anyio.current_time()
        for relay_id, registration in list(self._registrations.items()):
            if registration.expires_at <= now:
                del self._registrations[relay_id]

    # One hook.

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer one command. It gets nothing if it is not allowed, or if Nacre has failed."""
        try:
            async with self._connections:
                if not _is_own_process(writer.get_extra_info("socket")):
                    return
                with anyio.fail_after(_READ_SECONDS):
                    request = await _receive_frame(reader)
                await self._answer(reader, writer, request)
        except (OSError, EOFError, TimeoutError):
            logger.debug("the command of a hook has gone away")
        except Exception:
            # The command refuses the call, because it gets no answer.
            logger.exception("a native hook of Codex was not answered")
        finally:
            await _close(writer)

    async def _answer(self, reader: StreamReader, writer: StreamWriter, request: bytes) -> None:
        address, _, data = request.partition(b"\n")
        # Raises ValueError for an address that no command has.
        relay_id, generation, need, event = address.decode("ascii", "replace").split(" ")
        if event not in _NAMES:
            raise ValueError(f"a native hook has sent the unknown event {event!r}")
        registration = self._find(relay_id, generation)
        if registration is not None:
            answer = await self._ask_handler(reader, writer, registration, event, data)
        elif need == "optional":
            answer = None
        else:
            answer = _refuse(event, "no turn of Nacre is responsible for this call")
        output = _encode_answer(answer)
        writer.write(b"%08x" % len(output) + output)
        await writer.drain()

    def _find(self, relay_id: str, generation: str) -> RelayRegistration | None:
        found = self._registrations.get(relay_id)
        if found is None or found.generation != generation:
            return None
        return found if found.is_active or found.expires_at > anyio.current_time() else None

    async def _ask_handler(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        registration: RelayRegistration,
        event: RelayEvent,
        data: bytes,
    ) -> JsonObject | None:
        try:
            payload = await decode_off_loop(data, max_parts=_MAX_PARTS)
        except NotJsonError as error:
            return _refuse(event, f"Nacre cannot read the call: {error}")
        if not isinstance(payload, dict):
            return _refuse(event, "Nacre cannot read the call: it is not an object")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_show_life, writer, registration.config.answer_timeout_seconds / 3)
            tasks.start_soon(_cancel_if_gone, reader, tasks)
            try:
                answer = await registration.handler.answer(event, payload)
            except Exception:
                logger.exception("the native hook %s failed", event)
                answer = _refuse(event, "Nacre failed to check the call; see its log")
            tasks.cancel_scope.cancel()
            return answer
        # The command has gone away: the turn was interrupted.
        raise EOFError


async def _close(writer: StreamWriter) -> None:
    """Close a connection, and wait until its socket is closed: the event loop may end next."""
    writer.close()
    with anyio.move_on_after(_CLOSE_SECONDS, shield=True) as timeout, suppress(OSError):
        await writer.wait_closed()
    if timeout.cancelled_caught:
        writer.transport.abort()


async def _show_life(writer: StreamWriter, every_seconds: float) -> None:
    """Tell the command that its answer is still to come, as when a person is asked."""
    while True:
        await anyio.sleep(every_seconds)
        try:
            writer.write(b"\n")
            await writer.drain()
        except OSError:
            return


async def _cancel_if_gone(reader: StreamReader, tasks: TaskGroup) -> None:
    with suppress(OSError):
        while await reader.read(_READ_BYTES):
            pass
    tasks.cancel_scope.cancel()


async def _receive_frame(reader: StreamReader) -> bytes:
    """One frame. Raises ValueError if it is not valid or too long, EOFError if it is cut off."""
    length = int(await reader.readexactly(8), 16)
    if length > _MAX_FRAME_BYTES:
        raise ValueError(f"a native hook has sent a frame of {length} bytes")
    return await reader.readexactly(length)


def _is_own_process(connection: socket.socket) -> bool:
    """Whether a process of this user has connected. Elsewhere, the directory is the only guard."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    size = struct.calcsize("3i")
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = struct.unpack("3i", peer)
    return user == os.geteuid()
