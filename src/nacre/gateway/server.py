"""The gateway process: opens the system, serves it, reloads configuration, shuts down."""

from __future__ import annotations

import errno
import gc
import logging
import os
import re
import secrets
import signal
import socket
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread

from nacre.bootstrap import open_system
from nacre.config import TOKEN_VARIABLE, ConfigChange, ConfigWatcher, is_loopback, user_folder
from nacre.errors import ConfigError, NacreError
from nacre.private_files import read_private, write_private

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from nacre.bootstrap import System
    from nacre.config.config_file import ConfigFile
    from nacre.config.gateway import GatewayConfig
    from nacre.config.system import SystemConfig
    from nacre.gateway.routing import GatewayState


def listen_at(host: str, port: int) -> socket.socket:
    """Port 0 is any that is free. Raises ConfigError where the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError("gateway.port", f"is {port}: {_describe_problem(error, host)}") from error
    # With its protocol named: asyncio switches Nagle's algorithm off only for sockets that say so,
    # and a stream of small events would wait 40 ms for each acknowledgement.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach())


def _describe_problem(error: OSError | OverflowError, host: str) -> str:
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return f"another program listens there, at {host}; end it, or give another: --port"
        case errno.EACCES:
            return "ports below 1024 are for the administrator; give another: --port"
        case errno.EADDRNOTAVAIL:
            return f"this machine has no address {host}; give another: --host"
        case _:
            problem = getattr(error, "strerror", None) or str(error)
            return f"it cannot be used at {host}: {problem}; give another: --port or --host"


def url_of(host: str, listener: socket.socket) -> str:
    """Where this machine reaches it."""
    port = listener.getsockname()[1]
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{reached}]' if ':' in reached else reached}:{port}"


_FILE: Final = "gateway-token"
# As RFC 6750 has it; anything else would not fit into a header.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_MIN_CHARACTERS: Final = 16


def token_file(environment: Mapping[str, str]) -> Path:
    """Where a token that was made up is kept."""
    return user_folder("data", environment) / _FILE


def kept_token(path: Path) -> str:
    """The token that was made at an earlier start, or a new one, kept for the next. Blocks."""
    try:
        found = (read_private(path) or b"").decode("ascii", "replace").strip()
        if len(found) >= _MIN_CHARACTERS and _TOKEN.fullmatch(found):
            return found
        made = secrets.token_urlsafe(32)
        write_private(path, f"{made}\n".encode())
        return made
    except OSError as error:
        raise ConfigError(
            "gateway.auth.token", f"is not set, and none can be kept in {path}: {error}"
        ) from error


def checked_auth(config: GatewayConfig, environment: Mapping[str, str]) -> GatewayConfig:
    """Raises ConfigError for who may call, where it cannot be so; without the token in it."""
    if config.auth_mode == "none" and not is_loopback(config.host):
        raise ConfigError(
            "gateway.auth.mode",
            f'is "none", but the gateway listens at {config.host}: without a token only this '
            "machine may be served (127.0.0.1, ::1 or localhost)",
        )
    token = config.token
    if token and (len(token) < _MIN_CHARACTERS or not _TOKEN.fullmatch(token)):
        raise ConfigError(
            TOKEN_VARIABLE if token == environment.get(TOKEN_VARIABLE) else "gateway.auth.token",
            f"holds {len(token)} characters; a token has at least {_MIN_CHARACTERS}, "
            "letters, digits and -._~+/ only",
        )
    return config


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

        app = create_app(system, generated_token=self._token.made)
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
                    place=system.store.address,
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
            state.generated_token = token.made
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
    from nacre.tools import kill_all_commands

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
