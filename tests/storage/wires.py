"""A way to a PostgreSQL server that can be cut."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio.abc import SocketAttribute

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import ByteStream, SocketStream, TaskStatus


class Wire:
    """Passes bytes between clients and the server."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.cuts_at = b""
        """When a client sends this, close what is connected; whoever comes next gets through."""
        self.cuts_commit_of = b""
        """When a transaction with this in it is committed, be cut before the server's answer."""
        self.mends_by_itself = True
        """Whether only what is connected is cut then, and whoever comes next gets through."""
        self.is_silent = False
        """Whether whoever connects from now on gets no answer."""
        self.is_frozen = False
        """Whether nothing passes any more, as when the server is stopped by a signal."""
        self.connection_count = 0
        self._server_port = server_port
        self._is_cut = False
        self._scopes: set[anyio.CancelScope] = set()

    def cut(self) -> None:
        """Close what is connected, and let nobody through."""
        self._is_cut = True
        for scope in self._scopes:
            scope.cancel()

    def mend(self) -> None:
        self._is_cut = False

    async def serve(self, *, task_status: TaskStatus[None]) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener:
            self.port = listener.extra(SocketAttribute.local_port)
            task_status.started()
            await listener.serve(self._connect)

    async def _connect(self, client: SocketStream) -> None:
        async with client:
            self.connection_count += 1
            if self.is_silent or self.is_frozen:
                await anyio.sleep_forever()
            if self._is_cut:
                return
            try:
                await self._pass(client)
            except* anyio.BrokenResourceError:
                # Either side has reset the connection, as when it closes with data unread.
                pass

    async def _pass(self, client: SocketStream) -> None:
        async with (
            await anyio.connect_tcp("127.0.0.1", self._server_port) as server,
            anyio.create_task_group() as tasks,
        ):
            scope, line = tasks.cancel_scope, _Line()
            self._scopes.add(scope)
            try:
                tasks.start_soon(self._ask, client, server, line)
                await self._answer(server, client, line)
            finally:
                self._scopes.discard(scope)
                scope.cancel()

    async def _ask(self, client: ByteStream, server: ByteStream, line: _Line) -> None:
        is_marked = False
        async for data in client:
            if self.is_frozen:
                await anyio.sleep_forever()
            if self.cuts_at and self.cuts_at in data:
                self.cuts_at = b""
                self.cut()
                self.mend()
                return
            is_marked |= bool(self.cuts_commit_of) and self.cuts_commit_of in data
            line.is_committing = is_marked and b"COMMIT" in data
            await server.send(data)
        await server.send_eof()

    async def _answer(self, server: ByteStream, client: ByteStream, line: _Line) -> None:
        async for data in server:
            if line.is_committing:
                self.cuts_commit_of = b""
                self.cut()
                if self.mends_by_itself:
                    self.mend()
            await client.send(data)


@dataclass
class _Line:
    """One connection."""

    is_committing: bool = False


@asynccontextmanager
async def open_wire(server_port: int) -> AsyncGenerator[Wire]:
    wire = Wire(server_port)
    async with anyio.create_task_group() as tasks:
        await tasks.start(wire.serve)
        yield wire
        tasks.cancel_scope.cancel()
