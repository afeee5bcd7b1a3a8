"""Keeps a supervised connection to one server: starts it on demand and restarts it on failure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import parse_qsl, urlsplit

import anyio

from nacre.backoff import RestartBackoff
from nacre.errors import ToolServerError
from nacre.json_types import NotJsonError, encode_json
from nacre.mcp_client.connection_task import ConnectionTask
from nacre.mcp_client.peer_errors import PeerLostError, PeerSilentError, RpcError
from nacre.mcp_client.process import OutputTail
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
# Shorter values are words such as `true`, or would tear holes into every sentence.
_MIN_CHARACTERS: Final = 6
_MAX_TEXT_CHARACTERS: Final = 2_000
_MAX_DATA_BYTES: Final = 8_000


class ConfigSecrets:
    """Every value of `env` and `headers` counts as secret, what references were replaced by, all
    of a URL but its host, and what is known for a token by its shape."""

    def __init__(self, config: McpServerConfig) -> None:
        values = [
            *config.env.values(),
            *config.headers.values(),
            *config.looked_up,
            *_find_url_secrets(config.url),
        ]
        # `Bearer abc`: the token alone as well.
        words = [word for value in values for word in (value, *value.split())]
        # Longest first, so that none hides a part of another.
        long_enough = {word for word in words if len(word) >= _MIN_CHARACTERS}
        self._values = sorted(long_enough, key=len, reverse=True)
        self._rules = Redaction(max_text_characters=_MAX_TEXT_CHARACTERS)

    def clean(self, text: str) -> str:
        """For people: a line of it, or a few."""
        return self._rules.text(self.without_values(text))

    def clean_data(self, data: JsonValue) -> JsonValue:
        """What came with an error; in words if it is large."""
        try:
            size_bytes = len(encode_json(data))
        except NotJsonError:
            return None
        if size_bytes > _MAX_DATA_BYTES:
            return f"[{size_bytes:,} bytes]"
        return self._rules.value(self._data_without_values(data))

    def without_values(self, text: str) -> str:
        """The whole text, without what the configuration itself holds."""
        for value in self._values:
            text = text.replace(value, _REDACTED)
        return text

    def _data_without_values(self, data: JsonValue) -> JsonValue:
        # No deeper than JSON that could be written.
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
    """Many callers share it; each life of it is a task in `tasks`."""

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
        self._life: ConnectionTask | None = None
        self._is_closed = False
        self.start_count = 0
        self.problem = ""
        """Why it failed, if it did, and has not been ready since."""
        self.facts: ServerFacts | None = None
        """What the server last said of itself."""

    @property
    def state(self) -> ServerState:
        if self._life is not None and self._life.phase in ("starting", "ready"):
            return "ready" if self._life.phase == "ready" else "starting"
        if self._is_closed:
            return "closed"
        return "failed" if self.problem else "idle"

    @property
    def pid(self) -> int | None:
        return self._life.pid if self._life is not None else None

    @property
    def last_output(self) -> tuple[str, ...]:
        return self._tail.lines

    async def start(self) -> ServerFacts:
        """Start the server if it is not running; raises ToolServerError."""
        life = await self._usable_life()
        assert life.facts is not None
        return life.facts

    async def ask(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> JsonObject:
        """The result as the server sent it; raises as `nacre.mcp_client.tools.Ask` says."""
        try:
            return await self._ask_twice(method, params, on_progress)
        except RpcError as error:
            message, data = self.clean(error.message), self._secrets.clean_data(error.data)
            # Without its cause, whose message is not clean.
            raise RpcError(error.code, message, data) from None

    def clean(self, text: str) -> str:
        """What a server said, as it may be shown."""
        return self._secrets.clean(text)

    async def aclose(self) -> None:
        """End it for good; calls that are open fail."""
        self._is_closed = True
        if self._life is not None:
            await self._life.stop()

    async def _ask_twice(
        self,
        method: str,
        params: JsonObject,
        on_progress: Callable[[JsonObject], None] | None,
    ) -> JsonObject:
        try:
            return await self._ask_once(method, params, on_progress)
        except PeerLostError as lost:
            if not lost.is_unsent:
                self._fail_during_call(lost)
        try:
            return await self._ask_once(method, params, on_progress)
        except PeerLostError as lost:
            self._fail_during_call(lost)

    async def _ask_once(
        self,
        method: str,
        params: JsonObject,
        on_progress: Callable[[JsonObject], None] | None,
    ) -> JsonObject:
        life = await self._usable_life()
        try:
            return await life.request(method, params, on_progress)
        except PeerSilentError as silent:
            raise self._unavailable(silent.problem) from silent
        except PeerLostError as lost:
            if lost.is_unsent:
                # It does not know us any more; the next life begins with a new handshake.
                await life.stop()
            raise

    async def _usable_life(self) -> ConnectionTask:
        while True:
            while self._life is not None and self._life.phase in ("leaving", "over"):
                await self._life.over()
            life = self._life or self._new_life()
            try:
                self.facts = self._clean_facts(await life.ready())
            except PeerLostError as lost:
                raise self._unavailable(lost.problem) from lost
            # While we waited for our turn, it may have been stopped for want of use.
            if life.phase == "ready":
                return life

    def _clean_facts(self, facts: ServerFacts) -> ServerFacts:
        return replace(
            facts,
            version=self.clean(facts.version),
            description=self._secrets.without_values(facts.description),
        )

    def _new_life(self) -> ConnectionTask:
        if self._is_closed:
            raise self._unavailable("is closed")
        wait_seconds = self._backoff.wait_seconds(now=anyio.current_time())
        if wait_seconds > 0:
            raise self._unavailable(f"{self.problem}; tried again in {wait_seconds:.0f} s")
        life = self._life = ConnectionTask(
            self._config,
            upstream=self._upstream,
            tail=self._tail,
            on_list_changed=self._on_list_changed,
        )
        self.start_count += 1
        self._tasks.start_soon(self._run, life)
        return life

    async def _run(self, life: ConnectionTask) -> None:
        try:
            await life.run()
        finally:
            self._life = None
            self.problem = self._secrets.clean(life.problem)
            if life.problem:
                now = anyio.current_time()
                self._backoff.record_failure(now=now, worked_seconds=life.worked_seconds)

    def _fail_during_call(self, lost: PeerLostError) -> NoReturn:
        problem = "was closed" if self._is_closed else lost.problem
        raise self._unavailable(
            f"was lost during the call, and whether that was carried out is not known: it {problem}"
        ) from lost

    def _unavailable(self, problem: str) -> ToolServerError:
        text = self._secrets.clean(f"the MCP server {self._config.name} {problem}")
        return ToolServerError(text, server=self._config.name)
