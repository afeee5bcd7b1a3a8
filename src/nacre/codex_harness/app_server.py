"""The app-server processes: one per agent and model provider, started at first use.

Each has a process group of its own, which ends with this process. Its pid and start time are
recorded, so that the next start ends a process that has survived a crash of Nacre.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import anyio
import anyio.to_thread

from nacre import __version__
from nacre.codex_harness.client import AppServerClient, Version
from nacre.config import API_KEY_VARIABLES, find_codex_home
from nacre.errors import AppServerClosedError, AppServerError, AppServerTimeoutError, CodexError
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.mcp_client import OutputTail, ServerProcess
from nacre.private_files import read_private, write_private
from nacre.telemetry import remove_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from types import TracebackType

    from anyio.abc import ByteReceiveStream, TaskStatus

    from nacre.config import AppServerConfig, CodexConfig
    from nacre.json_types import JsonObject, JsonValue

logger = logging.getLogger(__name__)

MIN_VERSION: Final = Version(0, 125, 0)
_COMMAND_SETTING: Final = "plugins.entries.codex.config.appServer.command"
_VERSION = re.compile(r"[^/\s]+/(\d+)\.(\d+)\.(\d+)([-+][^\s]+)?")
# The escape character before it is a space by now.
_COLORS = re.compile(r" ?\[[0-9;]*m")
_LAST_OUTPUT_SECONDS: Final = 0.5
_LOCK_SECONDS: Final = 0.02
_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_NO_ADDRESS: Final = "http://127.0.0.1:9"
# Never removed from the environment of an app-server.
_KEPT_VARIABLES: Final = ("CODEX_HOME", "HOME")
# Secrets and settings of Nacre, which native commands must not see.
_OWN_PREFIXES: Final = ("NACRE_", "OPENCLAW_")
_KEYS: Final = frozenset((*API_KEY_VARIABLES.values(), "CODEX_API_KEY")) - {""}


@dataclass(frozen=True, kw_only=True, slots=True)
class AppServerLaunch:
    """How the app-server of an agent is started."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    home: Path
    records: Path
    """The directory with the records of started processes."""
    request_timeout_seconds: float


def plan_launch(
    codex: CodexConfig, agent_id: str, environment: Mapping[str, str], provider_key: str = ""
) -> AppServerLaunch:
    """How to start the app-server of an agent. Raises CodexError without a program. Blocks.

    `provider_key` is the provider of its threads, if it is not Codex's own: newer versions refuse a
    thread whose provider is not that of the process. Threads have the real settings of it, because
    others can read a command line.
    """
    server = codex.app_server
    home = find_codex_home(codex, agent_id, environment)
    settings = ["check_for_update_on_startup=false", "analytics.enabled=false"]
    if not codex.has_native_plugins:
        settings += ["features.plugins=false", "features.apps=false"]
    if provider_key:
        place = f"model_providers.{provider_key}"
        settings += [
            f'model_provider="{provider_key}"',
            f'{place}.name="{provider_key}"',
            f'{place}.base_url="{_NO_ADDRESS}"',
            f'{place}.wire_api="responses"',
            f"{place}.requires_openai_auth=false",
        ]
    return AppServerLaunch(
        command=(
            find_program(server),
            *server.args,
            *(word for setting in settings for word in ("-c", setting)),
        ),
        environment=_make_environment(server, home, environment),
        home=home,
        records=codex.homes / ".processes",
        request_timeout_seconds=server.request_timeout_seconds,
    )


def find_program(server: AppServerConfig) -> str:
    """The path of the `codex` program; raises CodexError if there is none. Blocks."""
    if server.command:
        found = shutil.which(server.command)
        if found is None:
            raise CodexError(
                f"`{_COMMAND_SETTING}` is {server.command!r}, which is not a program that can be "
                "run; give its path, or remove the setting to use the package openai-codex-cli-bin"
            )
        return found
    try:
        # It has no types.
        found = str(import_module("codex_cli_bin").bundled_codex_path())
    except (ImportError, FileNotFoundError):
        found = shutil.which("codex")
    if found is None:
        raise CodexError(
            "Codex is not installed; run: pip install 'nacre-ai[codex]', or name the program in "
            f"`{_COMMAND_SETTING}`"
        )
    return found


def _make_environment(
    server: AppServerConfig, home: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    dropped = _KEYS | (set(server.clear_env) - {*_KEPT_VARIABLES})
    found = {
        name: value
        for name, value in environment.items()
        if name not in dropped and not name.startswith(_OWN_PREFIXES)
    }
    found["CODEX_HOME"] = str(home)
    temporary = Path(environment.get("TMPDIR") or tempfile.gettempdir())
    if home.is_relative_to(temporary):
        # Codex creates no helper programs in a home below the temporary directory.
        found["TMPDIR"] = str(home.parent / ".tmp")
    return found


class AppServers:
    """The running app-servers. An async context manager; exiting it ends them."""

    def __init__(self) -> None:
        self._tasks = anyio.create_task_group()
        # By agent and provider, the last used one last.
        self._running: dict[tuple[str, str], _Running] = {}
        self._lock = anyio.Lock()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for running in self._running.values():
            running.is_unused.set()
        await self._tasks.__aexit__(None, None, None)

    @asynccontextmanager
    async def use(
        self, codex: CodexConfig, agent_id: str, provider_key: str | None = None
    ) -> AsyncGenerator[AppServerClient]:
        """The client of an agent's app-server, which is started if it does not run.

        Each provider of models has its own; None stands for the one that was used last. It is not
        replaced before the block ends, even if the configuration changes. Raises CodexError if it
        cannot be started.
        """
        running = await self._open(codex, agent_id, provider_key)
        running.user_count += 1
        try:
            yield running.client
        finally:
            running.user_count -= 1
            running.check_unused()

    @property
    def running(self) -> tuple[tuple[str, str], ...]:
        """The agent and the provider of each app-server that runs."""
        return tuple(key for key, it in self._running.items() if not it.client.is_closed)

    def find_by_thread(self, thread_id: str) -> AppServerClient | None:
        """The client of the app-server that has this thread open, if there is one."""
        for running in self._running.values():
            client = running.client
            if not client.is_closed and client.find_listener(thread_id) is not None:
                return client
        return None

    def _find_last(self, agent_id: str) -> tuple[str, str] | None:
        for key, running in reversed(self._running.items()):
            if key[0] == agent_id.casefold() and not running.client.is_closed:
                return key
        return None

    async def _open(self, codex: CodexConfig, agent_id: str, provider_key: str | None) -> _Running:
        key = (agent_id.casefold(), provider_key or "")
        if provider_key is None:
            key = self._find_last(agent_id) or key
        # One start at a time: two sessions of an agent share what the first of them starts.
        async with self._lock:
            running = self._running.pop(key, None)
            if running is not None:
                # Back at once: the start of another one may fail.
                self._running[key] = running
            is_running = running is not None and not running.client.is_closed
            if running is not None and is_running and running.codex == codex:
                return running
            launch = await anyio.to_thread.run_sync(
                plan_launch, codex, agent_id, dict(os.environ), key[1]
            )
            if running is not None and is_running:
                if running.launch == launch:
                    running.codex = codex
                    return running
                running.replace()
            await anyio.to_thread.run_sync(_prepare, launch)
            async with _lock_start(launch):
                running = await self._tasks.start(self._serve, launch, codex)
            self._running[key] = running
            return running

    async def _serve(
        self, launch: AppServerLaunch, codex: CodexConfig, *, task_status: TaskStatus[_Running]
    ) -> None:
        """Run one app-server until it ends or is not used any more."""
        tail = OutputTail(_clean_output)
        try:
            process = await ServerProcess.start(
                launch.command, environment=launch.environment, cwd=launch.home
            )
        except (OSError, ValueError) as error:
            raise CodexError(f"Codex cannot be started ({launch.command[0]}): {error}") from error
        record = launch.records / f"{process.pid}.json"
        errors_read = anyio.Event()

        async def describe_end() -> str:
            description = await process.describe_end()
            # The end of its standard error says why.
            with anyio.move_on_after(_LAST_OUTPUT_SECONDS):
                await errors_read.wait()
            return description

        client = AppServerClient(
            input=process.input,
            output=process.output,
            tail=tail,
            describe_end=describe_end,
            kill=process.kill,
            request_timeout_seconds=launch.request_timeout_seconds,
        )
        running, is_started = _Running(client=client, launch=launch, codex=codex), False
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read_errors, process.errors, tail, errors_read)
                tasks.start_soon(client.run)
                try:
                    await anyio.to_thread.run_sync(_write_record, record, process.pid)
                    await _shake_hands(client, launch, tail)
                    task_status.started(running)
                    is_started = True
                    tasks.start_soon(_set_when_closed, client, running.is_unused)
                    await running.is_unused.wait()
                finally:
                    await _end_process(process, record)
                    tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            if not is_started:
                # The only error inside: that of the handshake.
                raise group.exceptions[0] from None
            # The app-servers of other agents must continue.
            logger.exception("the connection to a Codex app-server broke")


@dataclass(kw_only=True, slots=True, eq=False)
class _Running:
    """An app-server and the number of turns that use it."""

    client: AppServerClient
    launch: AppServerLaunch
    codex: CodexConfig
    """The settings that it was last used with."""
    is_unused: anyio.Event = field(default_factory=anyio.Event)
    user_count: int = 0
    is_replaced: bool = False

    def replace(self) -> None:
        """End it when its last user has ended."""
        self.is_replaced = True
        self.check_unused()

    def check_unused(self) -> None:
        if self.is_replaced and not self.user_count:
            self.is_unused.set()


@asynccontextmanager
async def _lock_start(launch: AppServerLaunch) -> AsyncGenerator[None]:
    """Let no other Nacre start an app-server in the same home until the block ends.

    Codex migrates the databases of its home when it starts, and fails if two do so at once.
    """
    name = hashlib.sha256(str(launch.home).encode()).hexdigest()[:16]
    path = launch.records / f"{name}.lock"
    descriptor = await anyio.to_thread.run_sync(partial(os.open, path, _LOCK_FLAGS, mode=0o600))
    try:
        # The other one has this long; without a lock, Codex says itself what is wrong.
        with anyio.move_on_after(launch.request_timeout_seconds):
            # Another process holds it: nothing here can wake us.
            while not _try_lock(descriptor):  # noqa: ASYNC110
                await anyio.sleep(_LOCK_SECONDS)
        yield
    finally:
        # This ends the lock, too.
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    # Not on Windows.
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _set_when_closed(client: AppServerClient, event: anyio.Event) -> None:
    await client.wait_closed()
    event.set()


def _clean_output(line: str) -> str:
    return remove_secrets(_COLORS.sub("", line))


async def _read_errors(errors: ByteReceiveStream, tail: OutputTail, over: anyio.Event) -> None:
    try:
        async for chunk in errors:
            tail.add(chunk)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass
    finally:
        over.set()


async def _end_process(process: ServerProcess, record: Path) -> None:
    with anyio.CancelScope(shield=True):
        await process.stop(is_in_use=True)
        with suppress(OSError):
            await anyio.to_thread.run_sync(partial(record.unlink, missing_ok=True))


# The handshake


async def _shake_hands(client: AppServerClient, launch: AppServerLaunch, tail: OutputTail) -> None:
    """Initialize the connection and check the version. Raises CodexError."""
    program = launch.command[0]
    try:
        answer = await client.request(
            "initialize",
            {
                "clientInfo": {"name": "nacre", "title": "Nacre", "version": __version__},
                "capabilities": {"experimentalApi": True},
            },
        )
    except AppServerTimeoutError as error:
        said = f"; it wrote: {tail.last}" if tail.last else ""
        raise CodexError(f"{program} is not a working Codex app-server: {error}{said}") from error
    except (AppServerClosedError, AppServerError) as error:
        raise CodexError(f"{program} is not a working Codex app-server: {error}") from error
    client.version = check_version(answer, program)
    client.notify("initialized", {})


def check_version(answer: JsonValue, program: str) -> Version:
    """The version in the answer to `initialize`; raises CodexError if it is too old."""
    agent = answer.get("userAgent") if isinstance(answer, dict) else None
    found = _VERSION.match(agent) if isinstance(agent, str) else None
    needed = f"Nacre needs {MIN_VERSION} or newer"
    if found is None:
        raise CodexError(f"{program} does not tell its version; {needed}")
    version = Version(*map(int, found.groups()[:3]))
    if version < MIN_VERSION or (version == MIN_VERSION and found[4]):
        raise CodexError(f"{program} is Codex {version}{found[4] or ''}; {needed}")
    return version


# Processes that survived


def _prepare(launch: AppServerLaunch) -> None:
    """Create the private directories, and end app-servers whose Nacre was killed.

    Raises CodexError if a directory cannot be used.
    """
    paths = [launch.home.parent, launch.home, launch.records]
    temporary = Path(launch.environment.get("TMPDIR", ""))
    if temporary.parent == launch.home.parent:
        paths.append(temporary)
    for path in paths:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CodexError(
                f"the directory {path} for Codex cannot be created: {error}"
            ) from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise CodexError(
                f"the directory {path} for Codex cannot be written; change its owner or mode"
            )
    for record in launch.records.glob("*.json"):
        with suppress(OSError):
            _end_orphan(record)


def _end_orphan(record: Path) -> None:
    content = read_private(record)
    try:
        found = decode_json(content or b"")
    except NotJsonError:
        found = None
    process, parent = (
        found.get(name) if isinstance(found, dict) else None for name in ("process", "parent")
    )
    if _is_running(parent):
        return
    if _is_running(process) and isinstance(process, dict):
        pid = process["pid"]
        assert isinstance(pid, int)
        logger.warning("ending the Codex app-server %d: the Nacre that started it is gone", pid)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    record.unlink(missing_ok=True)


def _write_record(record: Path, pid: int) -> None:
    parent = os.getpid()
    with suppress(OSError):
        write_private(
            record,
            encode_json({"process": _describe_process(pid), "parent": _describe_process(parent)}),
        )


def _is_running(described: JsonValue) -> bool:
    if not isinstance(described, dict) or not isinstance(pid := described.get("pid"), int):
        return False
    return pid > 1 and _describe_process(pid) == described


def _describe_process(pid: int) -> JsonObject | None:
    """The pid with the boot and the time of its start: numbers alone are used again."""
    if sys.platform != "linux":
        # Without a start time nothing is ended.
        return None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # The name of the program, in parentheses, may contain anything.
        state, *numbers = stat.rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    if state in ("Z", "X"):
        return None
    return {"pid": pid, "boot": boot, "started": int(numbers[18])}
