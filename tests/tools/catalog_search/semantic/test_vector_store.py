"""Vectors on disk: shared between processes, and never a reason to fail."""

import logging
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nacre.tools.catalog_search.semantic.text_models import Vector
from nacre.tools.catalog_search.semantic.vector_store import VectorStore
from tests.tools.catalog_search.semantic.fake_model import FakeModel

MODEL = FakeModel("one", "two")
VECTOR: Vector = np.array([0.6, 0.8, 0.0], dtype=np.float32).astype("<f2").astype(np.float32)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def database(directory: Path) -> Path:
    return directory / "vectors-1.sqlite"


def stored(directory: Path, *texts: str) -> list[str]:
    """The texts that another process would find."""
    store = VectorStore(directory)
    found = store.get(MODEL, texts)
    store.close()
    assert all((vector == VECTOR).all() for vector in found.values())
    return list(found)


def store_one(directory: Path, *texts: str, max_vectors: int = 100) -> None:
    store = VectorStore(directory, max_vectors=max_vectors)
    store.add(MODEL, dict.fromkeys(texts, VECTOR))
    store.tidy()
    store.close()


def test_what_one_process_made_another_finds(directory: Path) -> None:
    store_one(directory, "a", "\ud800 half a character", "x" * 10_000)
    assert stored(directory, "a", "missing") == ["a"]
    assert len(stored(directory, "\ud800 half a character", "x" * 10_000)) == 2


def test_more_texts_than_one_statement_takes(directory: Path) -> None:
    texts = [str(number) for number in range(2_000)]
    store_one(directory, *texts, max_vectors=5_000)
    assert sorted(stored(directory, *texts)) == sorted(texts)


def test_another_model_has_vectors_of_its_own(directory: Path) -> None:
    store_one(directory, "a")
    other = FakeModel("one", "two")
    other.name = "another"
    assert VectorStore(directory).get(other, ["a"]) == {}


@pytest.mark.skipif(sys.platform == "win32", reason="no such modes on Windows")
def test_the_file_is_private(directory: Path) -> None:
    store_one(directory, "a")
    assert stat.S_IMODE(database(directory).stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [b"not a database" * 100, b"\x00" * 5_000])
def test_a_file_that_is_no_database_is_replaced(directory: Path, content: bytes) -> None:
    directory.mkdir(mode=0o700)
    database(directory).write_bytes(content)
    store_one(directory, "a")
    assert stored(directory, "a") == ["a"]


def test_a_damaged_database_is_replaced(directory: Path) -> None:
    store_one(directory, *map(str, range(100)))
    with database(directory).open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(3 * 4096))
    store_one(directory, "a")
    assert stored(directory, "a") == ["a"]


def test_a_vector_that_cannot_be_one_is_not_used(directory: Path) -> None:
    store_one(directory, "a", "b", "c")
    connection = sqlite3.connect(database(directory))
    with connection:
        (first,), (second,), _ = connection.execute("SELECT key FROM vectors").fetchall()
        nan = np.full(3, np.nan, dtype="<f2").tobytes()
        connection.execute("UPDATE vectors SET vector = ? WHERE key = ?", (nan, first))
        connection.execute("UPDATE vectors SET vector = ? WHERE key = ?", (b"odd", second))
    connection.close()
    assert len(stored(directory, "a", "b", "c")) == 1


def test_what_was_not_used_for_longest_goes_first(directory: Path) -> None:
    store_one(directory, "old", "used", "new")
    connection = sqlite3.connect(database(directory))
    with connection:
        connection.execute("UPDATE vectors SET used_day = used_day - 9")
    connection.close()
    assert stored(directory, "used") == ["used"]
    store_one(directory, "newest", max_vectors=2)
    assert sorted(stored(directory, "old", "used", "new", "newest")) == ["newest", "used"]


def test_where_nothing_can_be_kept_memory_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.touch()
    store = VectorStore(file / "below")
    store.add(MODEL, {"a": VECTOR})
    assert list(store.get(MODEL, ["a"])) == ["a"]
    assert "are not stored on disk" in caplog.text


@pytest.mark.skipif(sys.platform == "win32", reason="no such modes on Windows")
def test_a_directory_that_others_can_write_is_not_used(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory.mkdir()
    directory.chmod(0o777)
    store_one(directory, "a")
    assert not database(directory).exists()
    assert "can be written by others" in caplog.text


def test_a_file_that_goes_bad_in_use_is_given_up(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = VectorStore(directory)
    store.add(MODEL, {"a": VECTOR})
    connection = sqlite3.connect(database(directory))
    with connection:
        connection.execute("DROP TABLE vectors")
    connection.close()
    with caplog.at_level(logging.WARNING):
        assert store.get(MODEL, ["a"]) == {}
    store.add(MODEL, {"a": VECTOR})
    assert list(store.get(MODEL, ["a"])) == ["a"]
    assert "are no longer stored on disk" in caplog.text


def test_several_processes_write_at_once(directory: Path) -> None:
    program = """
import sys
from pathlib import Path
from tests.tools.catalog_search.semantic.test_vector_store import MODEL, VECTOR
from nacre.tools.catalog_search.semantic.vector_store import VectorStore
store = VectorStore(Path(sys.argv[1]))
for number in range(20):
    store.add(MODEL, {f"{sys.argv[2]} {number}": VECTOR})
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(directory), name], cwd=Path.cwd())
        for name in ("a", "b", "c")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    texts = [f"{name} {number}" for name in ("a", "b", "c") for number in range(20)]
    assert sorted(stored(directory, *texts)) == sorted(texts)
