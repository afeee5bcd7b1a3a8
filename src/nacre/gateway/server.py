"""The gateway as a process: opened, served, reloaded, and ended without losing a turn."""

from __future__ import annotations

import gc
import logging
import os
import signal
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread

from nacre.bootstrap import open_system
from nacre.config.watcher import ConfigChange, ConfigWatcher
from nacre.errors import NacreError
from nacre.gateway.listening import listen_at, url_of
from nacre.gateway.token import checked_auth, kept_token, token_file

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from nacre.bootstrap import System
    from nacre.config.config_file import ConfigFile
    from nacre.config.system import SystemConfig
    from nacre.gateway.state import GatewayState

logger = logging.getLogger(__name__)

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayOptions:
    """What a gateway is started with."""

    config: SystemConfig
    file: ConfigFile
    """Watched for changes, also where it is not there yet."""
    environment: Mapping[str, str]
    host: str | None = None
    """Instead of the configured one; so is `port`."""
    port: int | None = None

    def in_force(self, config: SystemConfig) -> SystemConfig:
        """A configuration under what was given at the start; raises ConfigError."""
        gateway = config.gateway
        gateway = replace(
            gateway,
            host=gateway.host if self.host is None else self.host,
            port=gateway.port if self.port is None else self.port,
        )
        return replace(config, gateway=checked_auth(gateway, self.environment))


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A gateway that answers."""

    url: str
    config: SystemConfig
    token_file: Path | None
    """Where the token lies: one that was made, or that the configuration names a file for."""
    place: str
    """Where the sessions are kept."""


def serve_gateway(options: GatewayOptions, on_ready: Callable[[Served], None]) -> None:
    """Serve until a signal comes.

    The first signal lets runs end for as long as `gateway.shutdownSeconds` says, and aborts the
    rest; the second ends the process at once. Raises ConfigError, StorageError and
    RuntimeUnavailableError.
    """
    config = options.in_force(options.config)
    with listen_at(config.gateway.host, config.gateway.port) as listener:
        token = _found_token(options, config)
        anyio.run(lambda: _Gateway(options, config, listener, token, on_ready).run())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Token:
    made: str = field(default="", repr=False)
    file: Path | None = None


def _found_token(options: GatewayOptions, config: SystemConfig) -> _Token:
    """Where a token is needed and none is configured, one is made. Blocks."""
    if config.gateway.auth_mode == "none" or config.gateway.token:
        return _Token(file=config.gateway.token_file)
    path = token_file(options.environment)
    return _Token(made=kept_token(path), file=path)


class _Gateway:
    def __init__(
        self,
        options: GatewayOptions,
        config: SystemConfig,
        listener: socket.socket,
        token: _Token,
        on_ready: Callable[[Served], None],
    ) -> None:
        self._options = options
        self._config = config
        self._listener = listener
        self._on_ready = on_ready
        self._token = token
        self._is_serving = False
        self._stop = anyio.Event()
        self._opening = anyio.CancelScope()

    async def run(self) -> None:
        failure: Exception | None = None
        with anyio.open_signal_receiver(*_STOP_SIGNALS) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_signals, signals)
                try:
                    with self._opening:
                        await self._open_and_serve()
                except Exception as error:
                    failure = _single(error)
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _watch_signals(self, signals: AsyncIterator[signal.Signals]) -> None:
        is_asked = False
        async for number in signals:
            if is_asked:
                _end_at_once(number)
            is_asked = True
            if self._is_serving:
                logger.info("%s: the gateway ends when its runs have ended", number.name)
                self._stop.set()
            else:
                self._opening.cancel()

    async def _open_and_serve(self) -> None:
        async with anyio.create_task_group() as tasks:
            # Beside the opening of the database and the start of the sandbox's processes.
            tasks.start_soon(anyio.to_thread.run_sync, import_module, "nacre.gateway.app")
            async with open_system(self._config) as system:
                await anyio.to_thread.run_sync(import_module, "nacre.gateway.app")
                await self._serve(system)

    async def _serve(self, system: System) -> None:
        from nacre.gateway.app import create_app
        from nacre.gateway.http_server import http_server

        app = create_app(system, made_token=self._token.made)
        state: GatewayState = app.state.gateway
        async with anyio.create_task_group() as tasks, http_server(app, self._listener) as server:
            tasks.start_soon(self._watcher(system, state).run)
            tasks.start_soon(_prepare, system)
            self._is_serving = True
            self._on_ready(
                Served(
                    url=url_of(self._config.gateway.host, self._listener),
                    config=self._config,
                    token_file=self._token.file,
                    place=system.store.place,
                )
            )
            await self._stop.wait()
            state.is_closing = True
            server.stop_accepting()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                # Streams end with the last event of their runs.
                await system.agents.aclose(system.config.gateway.shutdown_seconds)

    def _watcher(self, system: System, state: GatewayState) -> ConfigWatcher:
        async def take_over(change: ConfigChange) -> None:
            config = self._still_listening(change.new)
            token = await anyio.to_thread.run_sync(_found_token, self._options, config)
            await system.apply(config)
            # Not before: where the change is refused, callers go on with the token that they have.
            state.made_token = token.made
            self._tell_what_waits(change)

        return ConfigWatcher(
            self._options.file,
            take_over,
            current=self._options.config,
            environment=self._options.environment,
        )

    def _tell_what_waits(self, change: ConfigChange) -> None:
        """Settings that are not what the process was started with; back at that, nothing waits."""
        touched = self._not_given(change.needs_restart)
        if not touched:
            return
        since_start = ConfigChange(old=self._options.config, new=change.new)
        waiting = self._not_given(since_start.needs_restart)
        if waiting:
            settings = ", ".join(waiting)
            logger.warning("%s changed; that counts from the next start on", settings)
        back = ", ".join(path for path in touched if path not in waiting)
        if back:
            logger.info("%s is again what is in use", back)

    def _not_given(self, settings: Sequence[str]) -> list[str]:
        """Without those that options of the command line stand for, whatever the file says."""
        given = {"gateway.host": self._options.host, "gateway.port": self._options.port}
        return [path for path in settings if given.get(path) is None]

    def _still_listening(self, config: SystemConfig) -> SystemConfig:
        """Another address counts from the next start on: until then, who may call is judged by the
        one that we listen at. Raises ConfigError where it does not go together."""
        here = self._config.gateway
        gateway = replace(config.gateway, host=here.host, port=here.port)
        return replace(config, gateway=checked_auth(gateway, self._options.environment))


async def _prepare(system: System) -> None:
    """What the first turn would wait for: a second for the model's SDK."""
    agents = system.config.agents
    try:
        await system.providers.prepare(agents.agent(agents.default_id).model)
    except NacreError as error:
        # Said again to whoever asks the model.
        logger.info("the default model is not ready: %s", error)
    # `nacre` looks for no garbage while it imports. None of that is ever garbage, and looking
    # through it would hold everybody up for 100 ms now and then.
    gc.freeze()
    gc.enable()


def _end_at_once(number: signal.Signals) -> None:
    """Asked twice: somebody does not want to wait. Turns that run are marked at the next start."""
    from nacre.mcp_client.process import kill_all_groups
    from nacre.tools.core.shell.shell_process import kill_all_commands

    # Servers and commands in groups of their own would outlive us.
    kill_all_groups()
    kill_all_commands()
    os._exit(128 + number)


def _single(error: Exception) -> Exception:
    """The one error inside of groups, as whoever started us wants to read it."""
    if not isinstance(error, ExceptionGroup):
        return error
    inner = cast("ExceptionGroup[Exception]", error).exceptions
    return _single(inner[0]) if len(inner) == 1 else cast("Exception", error)
