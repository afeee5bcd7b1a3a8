"""The gateway process: opens the system, serves it, reloads configuration, shuts down."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import secrets
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread

from nacre.bootstrap import open_system
from nacre.config import ConfigChange, ConfigWatcher, check_auth, is_strong_token, user_folder
from nacre.errors import ConfigError, StorageError
from nacre.http_server import http_server, listen_on
from nacre.private_files import read_private, write_private
from nacre.stop_signals import forces_exit, stop_signals
from nacre.telemetry import LoopWatchdog

if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from nacre.bootstrap import System
    from nacre.config import ConfigFile, SystemConfig
    from nacre.gateway.routing import GatewayState

logger = logging.getLogger(__name__)


def gateway_url(host: str, listener: socket.socket) -> str:
    """The URL of the gateway on this machine."""
    port = listener.getsockname()[1]
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{reached}]' if ':' in reached else reached}:{port}"


_FILE: Final = "gateway-token"
_TOKEN_CHECK_SECONDS: Final = 1.0
_REOPEN_SECONDS: Final = 5.0


def token_file(environment: Mapping[str, str]) -> Path:
    """The file of the generated token."""
    return user_folder("data", environment) / _FILE


def read_token(path: Path) -> str:
    """Read the token of the file; empty if it has none. Blocks. Raises OSError."""
    found = (read_private(path) or b"").decode("ascii", "replace").strip()
    return found if is_strong_token(found) else ""


def load_token(path: Path) -> str:
    """Read the token of an earlier start, or generate and store a new one. Blocks."""
    try:
        if found := read_token(path):
            return found
        generated = secrets.token_urlsafe(32)
        write_private(path, f"{generated}\n".encode())
        return generated
    except OSError as error:
        raise ConfigError(
            "gateway.auth.token", f"is not set, and no token can be stored in {path}: {error}"
        ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayOptions:
    """The options of a gateway process."""

    config: SystemConfig
    file: ConfigFile
    """Watched for changes, even if it does not exist yet."""
    environment: Mapping[str, str]
    host: str | None = None
    """Overrides the configured host, as `port` does for the port."""
    port: int | None = None

    def apply_to(self, config: SystemConfig) -> SystemConfig:
        """Apply the options to a configuration. Raises ConfigError."""
        gateway = config.gateway
        gateway = replace(
            gateway,
            host=gateway.host if self.host is None else self.host,
            port=gateway.port if self.port is None else self.port,
        )
        return replace(config, gateway=check_auth(gateway, self.environment))


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A running gateway."""

    url: str
    config: SystemConfig
    token_file: Path | None
    """The file of the token: a generated one, or the file that the configuration names."""
    database: str
    """The address of the database."""
    app_url: str = field(repr=False)
    """The link to the web app, with a code that signs in once."""


def serve_gateway(options: GatewayOptions, on_ready: Callable[[Served], None]) -> None:
    """Serve until a signal.

    The first signal waits up to `gateway.shutdownSeconds` for runs to end, then aborts them; the
    second one ends the process at once. Raises ConfigError, StorageError and
    RuntimeUnavailableError.
    """
    config = options.apply_to(options.config)
    limit_free_memory()
    with listen_on(config.gateway.host, config.gateway.port, setting="gateway.port") as listener:
        token = _resolve_token(options, config)
        anyio.run(lambda: _Gateway(options, config, listener, token, on_ready).run())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Token:
    generated: str = field(default="", repr=False)
    file: Path | None = None


def _resolve_token(options: GatewayOptions, config: SystemConfig) -> _Token:
    """Generate a token if one is required and none is configured. Blocks."""
    if config.gateway.auth_mode == "none" or config.gateway.token:
        return _Token(file=config.gateway.token_file)
    path = token_file(options.environment)
    return _Token(generated=load_token(path), file=path)


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
        with anyio.open_signal_receiver(*stop_signals()) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_signals, signals)
                try:
                    with self._opening:
                        await self._open_and_serve()
                except Exception as error:
                    failure = _single(error)
                    if self._opening.cancel_called:
                        # Parts that were half open; nobody needs a traceback of them.
                        logger.warning("the start was stopped by a signal: %s", failure)
                        failure = None
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _watch_signals(self, signals: AsyncIterator[signal.Signals]) -> None:
        is_stopping = False
        async for number in signals:
            if is_stopping:
                if forces_exit(number):
                    _exit_now(number)
                continue
            is_stopping = True
            if self._is_serving:
                logger.info("%s: the gateway stops when its runs have ended", number.name)
                self._stop.set()
            else:
                self._opening.cancel()

    async def _open_and_serve(self) -> None:
        async with anyio.create_task_group() as tasks:
            # While the database opens and the workers start.
            tasks.start_soon(anyio.to_thread.run_sync, import_module, "nacre.gateway.app")
            async with open_system(self._config, continues_turns=True) as system:
                await anyio.to_thread.run_sync(import_module, "nacre.gateway.app")
                await self._serve(system)

    async def _serve(self, system: System) -> None:
        from nacre.gateway.app import create_app

        app = create_app(
            system, generated_token=self._token.generated, config_file=self._options.file
        )
        state: GatewayState = app.state.gateway
        # Now that the event streams follow all runs, and before anybody can answer them.
        await _continue_turns(system)
        async with anyio.create_task_group() as tasks, http_server(app, self._listener) as server:
            tasks.start_soon(self._watcher(system, state).run)
            tasks.start_soon(self._follow_generated_token, state)
            tasks.start_soon(_prepare, system)
            tasks.start_soon(LoopWatchdog(state.metrics.observe_stall).run)
            tasks.start_soon(_return_memory_when_idle, system)
            tasks.start_soon(_delete_expired_uploads, system)
            tasks.start_soon(state.heartbeats.run)
            self._is_serving = True
            url = gateway_url(self._config.gateway.host, self._listener)
            if system.agents.shared is not None:
                await system.agents.shared.announce(url)
            self._on_ready(
                Served(
                    url=url,
                    config=self._config,
                    token_file=self._token.file,
                    database=system.store.address,
                    app_url=_app_url(url, state),
                )
            )
            await self._stop.wait()
            state.is_closing = True
            server.stop_accepting()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                # Streams end with the last events of their runs.
                await system.agents.aclose(system.config.gateway.shutdown_seconds)
            state.events.close()

    def _watcher(self, system: System, state: GatewayState) -> ConfigWatcher:
        async def apply_change(change: ConfigChange) -> None:
            config = self._keep_address(change.new)
            token = await anyio.to_thread.run_sync(_resolve_token, self._options, config)
            await system.apply(config)
            # Last: if the change is rejected, clients keep their token.
            state.generated_token = token.generated
            self._log_restart_needed(change)
            state.events.publish("config.applied", {"needsRestart": [*change.needs_restart]})

        return ConfigWatcher(
            self._options.file,
            apply_change,
            current=self._options.config,
            environment=self._options.environment,
        )

    async def _follow_generated_token(self, state: GatewayState) -> None:
        """Use the token that somebody writes to the file of the generated one."""
        path = token_file(self._options.environment)
        while True:
            await anyio.sleep(_TOKEN_CHECK_SECONDS)
            found = ""
            if state.generated_token:
                with suppress(OSError):
                    found = await anyio.to_thread.run_sync(read_token, path)
            if found and found != state.generated_token:
                logger.info("the token changed: %s", path)
                state.generated_token = found

    def _log_restart_needed(self, change: ConfigChange) -> None:
        """Log which changed settings need a restart, and which are back at the value in use."""
        touched = self._without_overridden(change.needs_restart)
        if not touched:
            return
        since_start = ConfigChange(old=self._options.config, new=change.new)
        waiting = self._without_overridden(since_start.needs_restart)
        if waiting:
            settings = ", ".join(waiting)
            logger.warning("%s changed; restart the gateway to apply it", settings)
        back = ", ".join(path for path in touched if path not in waiting)
        if back:
            logger.info("%s is back at the value in use", back)

    def _without_overridden(self, settings: Sequence[str]) -> list[str]:
        """Leave out settings that command line options override."""
        given = {"gateway.host": self._options.host, "gateway.port": self._options.port}
        return [path for path in settings if given.get(path) is None]

    def _keep_address(self, config: SystemConfig) -> SystemConfig:
        """Keep the address in use until the next start, and check the authentication for it. Raises
        ConfigError."""
        current = self._config.gateway
        gateway = replace(config.gateway, host=current.host, port=current.port)
        return replace(config, gateway=check_auth(gateway, self._options.environment))


def _app_url(url: str, state: GatewayState) -> str:
    from nacre.gateway.web import APP_PATH

    if state.system.config.gateway.auth_mode == "none":
        return f"{url}{APP_PATH}/"
    code, _ = state.sign_in.create_code(state.token)
    return f"{url}{APP_PATH}/#code={code}"


async def _continue_turns(system: System) -> None:
    """Continue the turns that waited when their gateway ended, and open their approvals again."""
    runs = await system.agents.continue_turns()
    if runs:
        logger.info("%d turns that waited for an answer continue", len(runs))
    with anyio.move_on_after(_REOPEN_SECONDS):
        while system.approvals.has_earlier:
            await system.approvals.wait_for_change()


async def _prepare(system: System) -> None:
    """Load the SDKs of the agents' models, and compile the image of the TypeScript compiler, before
    a turn needs them."""
    modes = [agent.tools.code_mode for agent in system.config.agents.by_id.values()]
    if any(mode.enabled and "typescript" in mode.languages for mode in modes):
        system.runtime.sandbox.prepare_typescript()
    await system.prepare_models()
    # `nacre` disables garbage collection during imports. Imported modules are never garbage, and
    # scanning them would block the event loop for 100 ms now and then.
    gc.freeze()
    gc.enable()


# The parameters of mallopt(3), and their values.
_TRIM_THRESHOLD: Final = (-1, 1 << 20)
_MMAP_THRESHOLD: Final = (-3, 1 << 18)
_ARENA_MAX: Final = (-8, 2)
_UPLOAD_CHECK_SECONDS: Final = 3600.0
_IDLE_CHECK_SECONDS: Final = 5.0
_MIN_GROWTH_BYTES: Final = 32 << 20


def limit_free_memory() -> None:
    """Make the allocator return memory to the system; glibc would keep a gigabyte.

    Large blocks, such as the bodies of requests, get pages of their own, which are returned when
    they are freed. Without a fixed threshold, glibc puts them on the heap after the first few. Has
    no effect with other allocators.
    """
    libc = _glibc()
    if libc is not None:
        for parameter, value in (_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX):
            libc.mallopt(parameter, value)


def return_free_memory() -> None:
    """Return the free pages inside the heap to the system. Blocks for milliseconds."""
    # An idle process allocates nothing, so it would not collect large values in cycles.
    gc.collect()
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


def resident_bytes() -> int:
    """The memory of this process; 0 if the system does not say. Blocks."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if hasattr(libc, "malloc_trim") else None


async def _return_memory_when_idle(system: System) -> None:
    """Return free memory while no run is active, if the process has grown since the last time."""
    resident = 0
    while True:
        await anyio.sleep(_IDLE_CHECK_SECONDS)
        if all(run.state != "running" for run in system.agents.runs()):
            resident = await anyio.to_thread.run_sync(_return_growth, resident)


def _return_growth(resident: int) -> int:
    if resident_bytes() > resident + _MIN_GROWTH_BYTES:
        return_free_memory()
        return resident_bytes()
    return resident


async def _delete_expired_uploads(system: System) -> None:
    """Delete them at the start and from time to time, also if nobody uploads anything."""
    while True:
        try:
            await system.store.cells.delete_expired()
            if count := await system.store.media.delete_expired_uploads():
                logger.info("%d expired uploads were deleted", count)
        except StorageError as error:
            logger.warning("expired uploads cannot be deleted: %s", error)
        await anyio.sleep(_UPLOAD_CHECK_SECONDS)


def _exit_now(number: signal.Signals) -> None:
    """End the process at the second signal. The next start marks interrupted turns."""
    from nacre.mcp_client.process import kill_all_groups
    from nacre.tools import kill_all_commands

    # Servers and commands have process groups of their own, so they would keep running.
    kill_all_groups()
    kill_all_commands()
    os._exit(128 + number)


def _single(error: Exception) -> Exception:
    """The single error inside nested exception groups."""
    if not isinstance(error, ExceptionGroup):
        return error
    inner = cast("ExceptionGroup[Exception]", error).exceptions
    return _single(inner[0]) if len(inner) == 1 else cast("Exception", error)
