"""Runs one connection to a server in its own task, from start to end.

When a transport of the SDK fails, it cancels the task that opened it, so a caller must not open it.
Callers wait for events, and read in `problem` why the connection ended.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, cast

import anyio
import anyio.to_thread

from nacre.mcp_client.upstream import PeerLostError, PeerSilentError, RpcError, UpstreamGate

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractAsyncContextManager

    from nacre.config import McpServerConfig
    from nacre.json_types import JsonObject
    from nacre.mcp_client.handshake import ServerFacts
    from nacre.mcp_client.peer import Peer
    from nacre.mcp_client.process import OutputTail
    from nacre.mcp_client.upstream import UpstreamRequests


class Deadlines:
    """The deadlines of open calls. The time limit of a call is `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._scopes: set[anyio.CancelScope] = set()
        self._hold_count = 0

    @contextmanager
    def limit_call(self) -> Generator[anyio.CancelScope]:
        """Return a scope that is cancelled at the deadline. `cancelled_caught` is then true."""
        with anyio.CancelScope(deadline=self._deadline()) as scope:
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    @contextmanager
    def pause(self) -> Generator[None]:
        """Suspend all deadlines. Afterwards, each call has its full time limit again."""
        self._hold_count += 1
        self._set_all()
        try:
            yield
        finally:
            self._hold_count -= 1
            self._set_all()

    def _deadline(self) -> float:
        return math.inf if self._hold_count else anyio.current_time() + self._seconds

    def _set_all(self) -> None:
        deadline = self._deadline()
        for scope in self._scopes:
            scope.deadline = deadline


# How long closing a connection may take.
_CLOSE_SECONDS: Final = 5.0
_EXPLAIN_SECONDS: Final = 2.0

Phase = Literal["starting", "ready", "closing", "closed"]


class ConnectionTask:
    """`starting` -> `ready` -> `closing` -> `closed`; any phase may be followed by `closed`."""

    def __init__(
        self,
        config: McpServerConfig,
        *,
        upstream: UpstreamRequests | None,
        tail: OutputTail,
        on_list_changed: Callable[[], None],
    ) -> None:
        self._config = config
        self._tail = tail
        self._on_list_changed = on_list_changed
        self._deadlines = Deadlines(config.timeout_seconds)
        self._gate = UpstreamGate(config.name, upstream, asking=self._deadlines.pause)
        self._scope = anyio.CancelScope()
        self._waiting = anyio.CancelScope()
        self._started = anyio.Event()
        self._explained = anyio.Event()
        self._ended = anyio.Event()
        self._peer: Peer | None = None
        self._is_stopped = False
        self._open_count = 0
        self._idle_at = math.inf
        self.phase: Phase = "starting"
        self.problem = ""
        """Why the connection ended. Empty while it is open, and if it was stopped."""
        self.facts: ServerFacts | None = None
        self._ready_at = math.inf

    @property
    def pid(self) -> int | None:
        return self._peer.pid if self._peer is not None else None

    @property
    def worked_seconds(self) -> float:
        """How long the connection has been ready."""
        return max(0.0, anyio.current_time() - self._ready_at)

    async def run(self) -> None:
        """Open the connection and run it until it ends. Raises only cancellation."""
        try:
            with self._scope:
                await self._run_connection()
            if self._scope.cancelled_caught and self.facts is None and not self._is_stopped:
                self.problem = f"did not start within {self._config.startup_seconds:g} seconds"
        except Exception as error:
            self.problem = self.problem or self._describe_problem(_first_leaf(error))
        finally:
            self.phase = "closed"
            for event in (self._started, self._explained, self._ended):
                event.set()

    async def ready(self) -> ServerFacts:
        """Wait until the connection is ready. Raises PeerLostError if it fails."""
        await self._started.wait()
        if self.facts is None:
            raise PeerLostError(self.problem or "was closed before it was ready")
        return self.facts

    async def request(
        self, method: str, params: JsonObject, on_progress: Callable[[JsonObject], None] | None
    ) -> JsonObject:
        """Send a request. The connection must be ready.

        Raises PeerLostError, PeerSilentError, RpcError and NotJsonError.
        """
        assert self._peer is not None
        # Before the first await: a connection without open requests may be closed as idle.
        self._open_count += 1
        try:
            with self._deadlines.limit_call() as scope:
                return await self._peer.request(method, params, on_progress=on_progress)
        except PeerLostError as lost:
            raise await self._explain_loss(lost) from lost
        finally:
            self._open_count -= 1
            self._mark_used()
        assert scope.cancelled_caught
        raise PeerSilentError(
            f"did not answer {method} within {self._config.timeout_seconds:g} seconds"
        )

    async def stop(self) -> None:
        """Stop the connection and wait until it is closed."""
        self._is_stopped = True
        if self.phase == "starting":
            self._scope.cancel()
        self._waiting.cancel()
        await self.wait_until_closed()

    async def wait_until_closed(self) -> None:
        await self._ended.wait()

    async def _run_connection(self) -> None:
        if self._config.missing:
            raise PeerLostError(f"cannot be used: {self._config.missing}")
        open_peer = await anyio.to_thread.run_sync(_load_sdk)
        self._scope.deadline = anyio.current_time() + self._config.startup_seconds
        async with open_peer(
            self._config,
            gate=self._gate,
            tail=self._tail,
            on_list_changed=self._on_list_changed,
            logging_in=self._logging_in,
        ) as peer:
            self._peer = peer
            try:
                self.facts = await peer.negotiate()
            except PeerLostError as lost:
                # If the connection is not closed, the server still runs.
                end = await self._describe_end(peer) if lost.is_connection_over else ""
                raise PeerLostError(end or lost.problem) from lost
            self._become_ready()
            await self._wait_until_over(peer)
            self.phase = "closing"
            self._scope.deadline = anyio.current_time() + _CLOSE_SECONDS

    def _become_ready(self) -> None:
        self._scope.deadline = math.inf
        self._ready_at = anyio.current_time()
        self.phase = "ready"
        self._mark_used()
        self._started.set()

    async def _wait_until_over(self, peer: Peer) -> None:
        """Wait until the connection is stopped, idle for too long, or closed by the server."""
        while not self._is_stopped:
            with anyio.CancelScope(deadline=self._idle_at) as self._waiting:
                await peer.closed.wait()
            if peer.closed.is_set():
                await self._explain(peer)
                return
            if anyio.current_time() >= self._idle_at:
                if not self._open_count:
                    return
                self._mark_used()

    async def _explain(self, peer: Peer) -> None:
        self.phase = "closing"
        if not self._is_stopped:
            self.problem = await self._describe_end(peer) or "closed the connection"
        self._explained.set()

    def _mark_used(self) -> None:
        self._idle_at = anyio.current_time() + self._config.idle_seconds

    async def _describe_end(self, peer: Peer) -> str:
        end = await peer.describe_end()
        last = self._tail.last
        return f"{end}; its last line was: {last}" if end and last else end

    async def _explain_loss(self, lost: PeerLostError) -> PeerLostError:
        if lost.is_connection_over:
            # The task of the connection is about to find the reason.
            with anyio.move_on_after(_EXPLAIN_SECONDS):
                await self._explained.wait()
        return PeerLostError(self.problem or lost.problem, is_unsent=lost.is_unsent)

    @contextmanager
    def _logging_in(self) -> Generator[None]:
        # A person needs longer to log in than a server to start.
        self._scope.deadline = math.inf
        try:
            with self._deadlines.pause():
                yield
        finally:
            if self.phase == "starting":
                self._scope.deadline = anyio.current_time() + self._config.startup_seconds

    def _describe_problem(self, error: Exception) -> str:
        config = self._config
        match error:
            case PeerLostError():
                return error.problem
            case RpcError() if error.message.startswith("HTTP 401"):
                return f"answered {error.message}; it needs a token in `headers`, or `oauth`"
            case RpcError():
                return f"refused the connection: {error.message}"
            case FileNotFoundError() if config.cwd is not None and error.filename == config.cwd:
                return f"cannot be started: there is no directory {config.cwd}"
            case FileNotFoundError() if config.transport == "stdio":
                return f"cannot be started: there is no command {config.command!r}; install it"
            case _:
                message = str(error) or type(error).__name__
                action = "be started" if config.transport == "stdio" else "be reached"
                return f"cannot {action} at {config.place}: {message}"


def _load_sdk() -> Callable[..., AbstractAsyncContextManager[Peer]]:
    # Called in a thread, because the first import takes two thirds of a second.
    from nacre.mcp_client.peer import open_peer

    return open_peer


def _first_leaf(error: Exception) -> Exception:
    leaf = error
    while isinstance(leaf, ExceptionGroup):
        leaf = cast("ExceptionGroup[Exception]", leaf).exceptions[0]
    return leaf
