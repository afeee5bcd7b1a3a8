"""What the processes on one database server share: leases, inboxes, runs and notifications."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from nacre.json_types import NotJsonError, decode_json
from nacre.storage.inbox import Inbox
from nacre.storage.leases import Leases
from nacre.storage.run_feed import RunFeed

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.json_types import JsonValue
    from nacre.storage.database import Database
    from nacre.storage.postgres import ServerOwnership

Notice: TypeAlias = Literal["inbox", "result", "runs", "sessions", "leases"]
"""What a notification is about: the inbox of an owner, the result of an item, new events of runs,
changed sessions, or sessions that have another owner."""


class Cluster:
    """The shared state of the processes on one database server."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.machine = socket.gethostname()
        """The machine of this process. Threads of other runtimes have their files there."""
        self.leases = Leases(database)
        self.inbox = Inbox(database, self.leases)
        self.feed = RunFeed(database, self.leases)

    async def listen(
        self, receive: Callable[[Notice, JsonValue], None], *, on_lost: Callable[[], None]
    ) -> None:
        """Call `receive` with the notifications of all processes, also of this one, on the
        connection of the lock. `on_lost` is called when that is lost; then call `reconnect`."""

        def parse(text: str) -> None:
            try:
                payload = decode_json(text.encode())
            except NotJsonError:
                return
            for kind, content in payload.items() if isinstance(payload, dict) else ():
                receive(cast("Notice", kind), content)

        await self._ownership.listen(parse, on_lost=on_lost)

    async def reconnect(self) -> None:
        """Restore the lock and the notifications if their connection is lost."""
        await self._database.ensure_ownership()

    @property
    def reconnection_time(self) -> float:
        """When this was last necessary, by the clock of the event loop."""
        return self._ownership.restored_time

    @property
    def _ownership(self) -> ServerOwnership:
        return cast("ServerOwnership", self._database.ownership)
