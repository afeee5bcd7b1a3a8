"""A supervised connection to one server: starts it on demand and restarts it after a failure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import parse_qsl, urlsplit

import anyio

from nacre.backoff import RestartBackoff
from nacre.errors import ToolServerError
from nacre.json_types import NotJsonError, encode_json
from nacre.mcp_client.connection_task import ConnectionTask
from nacre.mcp_client.process import OutputTail
from nacre.mcp_client.upstream import PeerLostError, PeerSilentError, RpcError
from nacre.telemetry import Redaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

    from nacre.config import McpServerConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_client.handshake import ServerFacts
    from nacre.mcp_client.server import ServerState
    from nacre.mcp_client.upstream import UpstreamRequests


_REDACTED: Final = "[redacted]"
# Shorter values are words such as `true`, or would match in the middle of other words.
_MIN_CHARACTERS: Final = 6
_MAX_TEXT_CHARACTERS: Final = 2_000
_MAX_DATA_BYTES: Final = 8_000


class ConfigSecrets:
    """Removes the secrets of a server's configuration from texts.

    Secret are the values of `env` and `headers`, resolved references, all parts of a URL except
    the host, and texts that look like tokens.
    """

    def __init__(self, config: McpServerConfig) -> None:
        values = [
            *config.env.values(),
            *config.headers.values(),
            *config.looked_up,
            *_find_url_secrets(config.url),
        ]
        # `Bearer abc`: the token alone as well.
        words = [word for value in values for word in (value, *value.split())]
        # Longest first, because a value may contain another one.
        long_enough = {word for word in words if len(word) >= _MIN_CHARACTERS}
        self._values = sorted(long_enough, key=len, reverse=True)
        self._rules = Redaction(max_text_characters=_MAX_TEXT_CHARACTERS)

    def clean(self, text: str) -> str:
        """Return a short text without secrets, for display."""
        return self._rules.text(self.without_values(text))

    def clean_data(self, data: JsonValue) -> JsonValue:
        """Return the data of an error without secrets. Large data is replaced by its size."""
        try:
            size_bytes = len(encode_json(data))
        except NotJsonError:
            return None
        if size_bytes > _MAX_DATA_BYTES:
            return f"[{size_bytes:,} bytes]"
        return self._rules.value(self._data_without_values(data))

    def without_values(self, text: str) -> str:
        """Return the whole text without the secret values of the configuration."""
        for value in self._values:
            text = text.replace(value, _REDACTED)
        return text

    def _data_without_values(self, data: JsonValue) -> JsonValue:
        # The depth is limited, because the data was encoded as JSON.
        match data:
            case str():
                return self.without_values(data)
            case list():
                return [self._data_without_values(item) for item in data]
            case dict():
                return {
                    self.without_values(key): self._data_without_values(member)
                    for key, member in data.items()
                }
            case _:
                return data


def _find_url_secrets(url: str) -> list[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return [url]
    user, _, _ = parts.netloc.rpartition("@")
    values = [value for _, value in parse_qsl(parts.query)]
    return [parts.path, parts.query, user, *values]


class Connection:
    """A connection that many callers share. Each start of the server is a task in `tasks`."""

    def __init__(
        self,
        config: McpServerConfig,
        *,
        tasks: TaskGroup,
        upstream: UpstreamRequests | None,
        on_list_changed: Callable[[], None],
    ) -> None:
        self._config = config
        self._tasks = tasks
        self._upstream = upstream
        self._on_list_changed = on_list_changed
        self._secrets = ConfigSecrets(config)
        self._tail = OutputTail(self._secrets.clean)
        self._backoff = RestartBackoff()
        self._connection_task: ConnectionTask | None = None
        self._is_closed = False
        self.start_count = 0
        self.problem = ""
        """Why the last start or connection failed, until the server is ready again."""
        self.facts: ServerFacts | None = None
        """The last known name, version and capabilities of the server."""

    @property
    def state(self) -> ServerState:
        if self._connection_task is not None and self._connection_task.phase in (
            "starting",
            "ready",
        ):
            return "ready" if self._connection_task.phase == "ready" else "starting"
        if self._is_closed:
            return "closed"
        return "failed" if self.problem else "idle"

    @property
    def pid(self) -> int | None:
        return self._connection_task.pid if self._connection_task is not None else None

    @property
    def last_output(self) -> tuple[str, ...]:
        return self._tail.lines

    async def start(self) -> ServerFacts:
        """Start the server if it is not running. Raises ToolServerError."""
        await self._ensure_task()
        assert self.facts is not None
        return self.facts

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> JsonObject:
        """Send a request and return the result. Raises the errors of `SendRequest` in `tools`."""
        try:
            return await self._request_with_retry(method, params, on_progress)
        except RpcError as error:
            message, data = self.clean(error.message), self._secrets.clean_data(error.data)
            # Without its cause, whose message may contain secrets.
            raise RpcError(error.code, message, data) from None

    def clean(self, text: str) -> str:
        """Return a text of the server without secrets, for display."""
        return self._secrets.clean(text)

    def has_secret(self, text: str) -> bool:
        """Whether the text contains a secret value of the configuration."""
        return self._secrets.without_values(text) != text

    async def stop(self) -> None:
        """Stop the server, and forget its failures; the next request starts it. Open calls fail."""
        if self._connection_task is not None:
            await self._connection_task.stop()
        self._backoff = RestartBackoff()
        self.problem = ""

    async def aclose(self) -> None:
        """Close the connection permanently. Open calls fail."""
        self._is_closed = True
        if self._connection_task is not None:
            await self._connection_task.stop()

    async def _request_with_retry(
        self,
        method: str,
        params: JsonObject,
        on_progress: Callable[[JsonObject], None] | None,
    ) -> JsonObject:
        try:
            return await self._request_once(method, params, on_progress)
        except PeerLostError as lost:
            if not lost.is_unsent:
                self._fail_during_call(lost)
        try:
            return await self._request_once(method, params, on_progress)
        except PeerLostError as lost:
            self._fail_during_call(lost)

    async def _request_once(
        self,
        method: str,
        params: JsonObject,
        on_progress: Callable[[JsonObject], None] | None,
    ) -> JsonObject:
        connection_task = await self._ensure_task()
        try:
            return await connection_task.request(method, params, on_progress)
        except PeerSilentError as silent:
            raise self._unavailable(silent.problem) from silent
        except PeerLostError as lost:
            if lost.is_unsent:
                # The server has lost the session. The next connection starts with a handshake.
                await connection_task.stop()
            raise

    async def _ensure_task(self) -> ConnectionTask:
        while True:
            while self._connection_task is not None and self._connection_task.phase in (
                "closing",
                "closed",
            ):
                await self._connection_task.wait_until_closed()
            connection_task = self._connection_task or self._start_task()
            try:
                self.facts = self._clean_facts(await connection_task.ready())
            except PeerLostError as lost:
                raise self._unavailable(lost.problem) from lost
            # It may have been stopped as idle while this task waited.
            if connection_task.phase == "ready":
                return connection_task

    def _clean_facts(self, facts: ServerFacts) -> ServerFacts:
        return replace(
            facts,
            version=self.clean(facts.version),
            description=self._secrets.without_values(facts.description),
        )

    def _start_task(self) -> ConnectionTask:
        if self._is_closed:
            raise self._unavailable("is closed")
        wait_seconds = self._backoff.wait_seconds(now=anyio.current_time())
        if wait_seconds > 0:
            raise self._unavailable(f"{self.problem}; the next try is in {wait_seconds:.0f} s")
        connection_task = self._connection_task = ConnectionTask(
            self._config,
            upstream=self._upstream,
            tail=self._tail,
            on_list_changed=self._on_list_changed,
        )
        self.start_count += 1
        self._tasks.start_soon(self._run, connection_task)
        return connection_task

    async def _run(self, connection_task: ConnectionTask) -> None:
        try:
            await connection_task.run()
        finally:
            self._connection_task = None
            self.problem = self._secrets.clean(connection_task.problem)
            if connection_task.problem:
                now = anyio.current_time()
                self._backoff.record_failure(now=now, worked_seconds=connection_task.worked_seconds)

    def _fail_during_call(self, lost: PeerLostError) -> NoReturn:
        problem = "was closed" if self._is_closed else lost.problem
        raise self._unavailable(
            "was lost during the call, and the call may or may not have been executed: "
            f"it {problem}"
        ) from lost

    def _unavailable(self, problem: str) -> ToolServerError:
        text = self._secrets.clean(f"the MCP server {self._config.name} {problem}")
        return ToolServerError(text, server=self._config.name)
