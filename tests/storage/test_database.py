"""Database URLs, how they are displayed, and importing SQLAlchemy only for an open store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nacre.errors import StorageError
from nacre.storage.database import FileLocation, MemoryLocation, ServerLocation, parse_storage_url


def test_paths_and_memory_are_told_apart() -> None:
    assert parse_storage_url("sqlite:///:memory:") == MemoryLocation()
    assert parse_storage_url("sqlite:////var/nacre.db") == FileLocation(path=Path("/var/nacre.db"))
    assert parse_storage_url("sqlite:///nacre.db") == FileLocation(path=Path.cwd() / "nacre.db")
    assert parse_storage_url("sqlite:///~/n.db") == FileLocation(path=Path.home() / "n.db")


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:nacre.db", "sqlite:///a?mode=ro", "sqlite:///a\0b"]
)
def test_a_url_of_sqlite_without_a_path_is_refused(url: str) -> None:
    with pytest.raises(StorageError, match=r"`storage\.url` is .*; allowed: sqlite:///<path>"):
        parse_storage_url(url)


@pytest.mark.parametrize(
    "url", ["", "mysql://ada:hunter2@reef/db", "nacre.db", "ada:hunter2@reef/db"]
)
def test_another_kind_of_database_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(StorageError, match=r"`storage\.url` begins with .*; allowed:") as caught:
        parse_storage_url(url)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://ada:hunter2@reef:port/db", "postgresql:hunter2"])
def test_a_url_that_cannot_be_read_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(StorageError, match=r"`storage\.url` is invalid") as caught:
        parse_storage_url(url)

    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_server_is_shown_without_the_password() -> None:
    place = parse_storage_url("postgresql://ada:p%40ss%2Fword@reef:5433/db?sslmode=require")

    assert isinstance(place, ServerLocation)
    assert place.label == "the database postgresql://ada:***@reef:5433/db"
    assert "p@ss" not in repr(place)
    assert (
        place.redact("no p@ss/word, no p%40ss%2Fword, no p%40ss/word") == "no ***, no ***, no ***"
    )


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_package_does_not_import_sqlalchemy() -> None:
    code = "import sys, nacre.storage; print('sqlalchemy' in sys.modules)"
    assert run_python(code).stdout == "False\n"


def test_sqlite_does_not_import_what_only_postgresql_needs() -> None:
    code = (
        "import sys, anyio; from nacre.storage import open_store\n"
        "async def main():\n"
        "    async with open_store('sqlite:///:memory:') as store:\n"
        "        await store.add_session(id='s', agent_id='main')\n"
        "anyio.run(main)\n"
        "slow = ('asyncpg', 'sqlalchemy.orm', 'sqlalchemy.dialects.postgresql')\n"
        "print([name for name in slow if name in sys.modules])"
    )
    assert run_python(code).stdout == "[]\n"


@pytest.mark.parametrize(
    ("missing", "url", "advice"),
    [
        ("sqlalchemy", "sqlite:///:memory:", "pip install 'nacre-ai[gateway]'"),
        ("asyncpg", "postgresql://ada@reef/db", "pip install 'nacre-ai[gateway,postgres]'"),
    ],
)
def test_a_missing_extra_is_named(missing: str, url: str, advice: str) -> None:
    failed = run_python(
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import anyio; from nacre.storage import open_store\n"
        "async def main():\n"
        f"    async with open_store({url!r}): pass\n"
        "anyio.run(main)"
    )
    assert f"install it with: {advice}" in failed.stderr.splitlines()[-1]
