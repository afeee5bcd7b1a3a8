"""SQLite files: who may read them, what else may go wrong with them, and what is said then."""

from __future__ import annotations

import os
import resource
import sqlite3
import stat
import subprocess
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from nacre.errors import StorageError
from nacre.messages import Usage, user_message
from nacre.storage import open_store
from tests.forked_python import FORKED_PYTHON

if TYPE_CHECKING:
    from collections.abc import Generator


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


async def open_and_close(url: str, *, lock_seconds: float = 10) -> None:
    async with open_store(url, lock_seconds=lock_seconds):
        pass


def names_in(folder: Path) -> list[str]:
    return sorted(it.name for it in folder.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_the_file_and_its_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "nacre.db"
    async with open_store(url_of(path)) as store:
        await store.add_session(id="s", agent_id="main")
        modes = {it.name: mode_of(it) for it in path.parent.iterdir()}

    assert mode_of(path.parent) == 0o700
    assert {"nacre.db", "nacre.db-wal", "nacre.db-shm"} < modes.keys()
    assert set(modes.values()) == {0o600}


async def test_what_was_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    url = url_of(tmp_path / "nacre.db")
    async with open_store(url) as store:
        added = await store.add_session(id="s", agent_id="main", key="k")
    async with open_store(url) as store:
        assert await store.session("s") == added
    # The log went into the file, and nobody is named as having it open.
    assert names_in(tmp_path) == ["nacre.db"]


async def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with open_store("sqlite:///~/data/nacre.db") as store:
        assert store.address == f"{tmp_path}/data/nacre.db"
    assert (tmp_path / "data" / "nacre.db").exists()


async def test_a_relative_path_stays_where_it_was_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///nacre%20[1].db") as store:
        monkeypatch.chdir("/")
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(store.session, f"s{number}")
    assert (tmp_path / "nacre%20[1].db").exists()


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        StorageError, match=r"file/x/nacre\.db cannot be created or opened: Not a dir"
    ):
        await open_and_close(url_of(tmp_path / "file" / "x" / "nacre.db"))


async def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be created or opened: Is a directory"):
        await open_and_close(url_of(tmp_path))


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary " * 100, encoding="utf-8")

    with pytest.raises(StorageError, match=r"notes\.txt failed: .* not an SQLite database"):
        await open_and_close(url_of(path))

    assert path.read_text(encoding="utf-8") == "dear diary " * 100


async def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE nacreous_clouds (id INTEGER)")

    with pytest.raises(StorageError, match="belongs to another program: it has a table 'nacreous"):
        await open_and_close(url_of(path))


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nacre.db"
    async with open_store(url_of(path)) as store:
        await store.add_session(id="s", agent_id="main")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)

    with pytest.raises(
        StorageError, match=r"nacre\.db failed: the file is damaged; restore a backup"
    ):
        async with open_store(url_of(path)) as store:
            await store.session("s")


@pytest.mark.parametrize("damaged", [slice(0, 16), slice(16, 100)], ids=["magic", "header"])
async def test_a_file_whose_header_is_damaged_is_called_damaged(
    tmp_path: Path, damaged: slice
) -> None:
    path = tmp_path / "nacre.db"
    async with open_store(url_of(path)) as store:
        await store.add_session(id="s", agent_id="main")
    content = bytearray(path.read_bytes())
    content[damaged] = b"\xa5" * (damaged.stop - damaged.start)
    path.write_bytes(content)

    with pytest.raises(StorageError, match="the file is damaged, or is not an SQLite database"):
        async with open_store(url_of(path)):
            pass


async def test_a_text_that_is_damaged_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "nacre.db"
    async with open_store(url_of(path)) as store:
        await store.add_session(id="s", agent_id="main", title="a private title")
    path.write_bytes(path.read_bytes().replace(b"private title", b"\xffrivate title"))

    with pytest.raises(StorageError, match="the file is damaged; restore a backup") as caught:
        async with open_store(url_of(path)) as store:
            await store.session("s")
    assert "rivate title" not in str(caught.value)


async def test_a_full_disk_fails_the_write_whole_and_the_next_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nacre.storage.database._RETRY_WAITS_SECONDS", (0.01, 0.01))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with open_store(url_of(tmp_path / "nacre.db")) as store:
        await store.add_session(id="s", agent_id="main")
        await store.begin_turn(run_id="r", session_id="s", prompt=None, model="", surface="")
        said = [user_message("x" * 200_000) for _ in range(20)]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        try:
            with pytest.raises(StorageError, match=r"the disk .*full.*rolled back"):
                await store.end_turn("r", status="completed", messages=said, usage=Usage())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

        assert await store.messages("s") == []
        await store.end_turn("r", status="completed", messages=said, usage=Usage())
        assert len(await store.messages("s")) == 20


async def test_another_process_that_keeps_the_file_locked_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "nacre.db"
    async with open_store(url_of(path)) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: store.add_session(id="s", agent_id="main"))
                # Readers go on meanwhile.
                assert await store.session("s") is None
                other.execute("COMMIT")

        assert await store.session("s") is not None


async def test_another_process_that_does_not_let_go_is_named_as_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "nacre.db"
    async with open_store(url_of(path), lock_seconds=0.05) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError, match="it is locked by another process for too"):
                await store.add_session(id="s", agent_id="main")
            other.execute("COMMIT")

        await store.add_session(id="s", agent_id="main")


async def test_many_processes_that_open_a_new_file_at_once_all_succeed(tmp_path: Path) -> None:
    code = (
        "import anyio, sys; from nacre.storage import open_store\n"
        "async def main():\n"
        "    async with open_store(sys.argv[1]) as store:\n"
        "        await store.add_session(id=sys.argv[2], agent_id='main', key='k')\n"
        "anyio.run(main)"
    )
    script = tmp_path / "open.py"
    script.write_text(code, encoding="utf-8")
    url = url_of(tmp_path / "nacre.db")

    def run_all() -> list[int]:
        processes = [subprocess.Popen([FORKED_PYTHON, script, url, f"s{i}"]) for i in range(4)]
        return [process.wait() for process in processes]

    with anyio.fail_after(60):
        assert await anyio.to_thread.run_sync(run_all) == [0, 0, 0, 0]
    async with open_store(url) as store:
        assert len(await store.sessions()) == 1


@contextmanager
def as_nobody() -> Generator[None]:
    """Root may write everything, so the test is not to be root meanwhile."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Generator[Path]:
    """One that others may look into; pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def read_only_file(open_folder: Path) -> Path:
    path = open_folder / "nacre.db"
    path.touch()
    path.chmod(0o444)
    return path


@pytest.fixture
def file_in_read_only_folder(open_folder: Path) -> Path:
    path = open_folder / "nacre.db"
    path.touch()
    path.chmod(0o666)
    open_folder.chmod(0o555)
    return path


async def test_a_file_that_may_not_be_written_is_named(read_only_file: Path) -> None:
    with (
        as_nobody(),
        pytest.raises(
            StorageError, match=r"nacre\.db cannot be created or opened: Permission denied"
        ),
    ):
        await open_and_close(url_of(read_only_file))


async def test_a_folder_that_may_not_be_written_is_named(file_in_read_only_folder: Path) -> None:
    with (
        as_nobody(),
        pytest.raises(StorageError, match=r"nacre\.db failed: .*check .*its directory"),
    ):
        await open_and_close(url_of(file_in_read_only_folder))


async def test_reads_go_on_while_one_writes(tmp_path: Path) -> None:
    async with open_store(url_of(tmp_path / "nacre.db")) as store:
        await store.add_session(id="s", agent_id="main")
        seen: list[int] = []

        async def write() -> None:
            for number in range(20):
                run_id = f"r{number}"
                await store.begin_turn(
                    run_id=run_id, session_id="s", prompt=None, model="", surface=""
                )
                await store.end_turn(
                    run_id, status="completed", messages=[user_message("x")] * 3, usage=Usage()
                )
            tasks.cancel_scope.cancel()

        async def read() -> None:
            while True:
                seen.append(len(await store.messages("s")))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(6):
                    tasks.start_soon(read)
                tasks.start_soon(write)

        assert len(await store.messages("s")) == 60
        assert seen
        assert all(count % 3 == 0 for count in seen)


async def test_a_check_finds_a_full_disk(tmp_path: Path) -> None:
    async with open_store(url_of(tmp_path / "nacre.db")) as store:
        await store.check()
        # As much as no disk has.
        with pytest.raises(StorageError, match=r"nacre\.db is full"):
            await store.check(min_free_bytes=2**62)
