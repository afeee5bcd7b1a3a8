"""A cache of vectors on disk, by model and text.

SQLite handles concurrent processes and interrupted writes. If the file is damaged, it is replaced
and the vectors are computed again. If it cannot be used, a database in memory replaces it.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from nacre.config import NotPrivateError, private_cache_directory
from nacre.private_files import create_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from nacre.tools.catalog_search.semantic.text_models import TextModel, Vector

logger = logging.getLogger(__name__)

_FILE_NAME: Final = "vectors-1.sqlite"
_MEMORY: Final = ":memory:"
_BUSY_SECONDS: Final = 5.0
# About 60 MB; the least recently used vectors are removed first.
MAX_VECTORS: Final = 60_000
_SECONDS_PER_DAY: Final = 86_400
# The number of values in one statement that all versions of SQLite support.
_MAX_VALUES: Final = 900
_KEY_BYTES: Final = 16
_LENGTH_TOLERANCE: Final = 0.01

_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS vectors"
    " (key BLOB PRIMARY KEY, vector BLOB NOT NULL, used_day INTEGER NOT NULL)"
)


class VectorStore:
    """The cache, for use in one thread. Its methods do not raise."""

    def __init__(self, directory: Path | None = None, *, max_vectors: int = MAX_VECTORS) -> None:
        self._directory = directory
        self._max_vectors = max_vectors
        self._opened: sqlite3.Connection | None = None

    def get(self, model: TextModel, texts: Iterable[str]) -> dict[str, Vector]:
        """The valid vectors of these texts in the cache."""
        by_key = {_key(model, text): text for text in texts}
        keys = list(by_key)
        found: dict[str, Vector] = {}
        for start in range(0, len(keys), _MAX_VALUES):
            for key, content in self._rows(keys[start : start + _MAX_VALUES]):
                vector = _decode(content, model.size)
                if vector is not None:
                    found[by_key[key]] = vector
        return found

    def add(self, model: TextModel, vectors: Mapping[str, Vector]) -> None:
        day = _today()
        rows = [(_key(model, text), _encode(it), day) for text, it in vectors.items()]
        self._write("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def tidy(self) -> None:
        """Remove the least recently used vectors beyond the limit."""
        self._write(
            "DELETE FROM vectors WHERE key IN (SELECT key FROM vectors ORDER BY used_day, key"
            " LIMIT max(0, (SELECT count(*) FROM vectors) - ?))",
            [(self._max_vectors,)],
        )

    def close(self) -> None:
        if self._opened is not None:
            # In a forked child, the connection belongs to a thread that does not exist.
            with suppress(sqlite3.ProgrammingError):
                self._opened.close()
            self._opened = None

    def _rows(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        places = ",".join("?" * len(keys))
        sql = f"SELECT key, vector, used_day FROM vectors WHERE key IN ({places})"
        try:
            rows: list[tuple[bytes, bytes, int]] = self._connection().execute(sql, keys).fetchall()
        except sqlite3.Error as error:
            self._give_up(error)
            return []
        day = _today()
        used = [(day, key) for key, _, used_day in rows if used_day != day]
        self._write("UPDATE vectors SET used_day = ? WHERE key = ?", used)
        return [(key, vector) for key, vector, _ in rows]

    def _write(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        if not rows:
            return
        try:
            connection = self._connection()
            with connection:
                connection.executemany(sql, rows)
        except sqlite3.Error as error:
            self._give_up(error)

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = self._opened_on_disk() or _open(_MEMORY)
        return self._opened

    def _opened_on_disk(self) -> sqlite3.Connection | None:
        try:
            file = private_cache_directory(self._directory) / _FILE_NAME
            return _open_file(file)
        except (OSError, RuntimeError, NotPrivateError, sqlite3.Error) as error:
            logger.warning("vectors for search are not stored on disk: %s", error)
            return None

    def _give_up(self, error: sqlite3.Error) -> None:
        """Continue without the file, for example if it is locked or the disk is full."""
        logger.warning("vectors for search are no longer stored on disk: %s", error)
        self.close()
        self._opened = _open(_MEMORY)


def _open_file(file: Path) -> sqlite3.Connection:
    # Created first, because SQLite would make it readable for everybody.
    create_private(file)
    try:
        return _open(str(file))
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        logger.warning("%s is replaced: %s", file, error)
        for ending in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                file.with_name(file.name + ending).unlink()
        return _open_file(file)


def _open(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS)
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(_SCHEMA)
        if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("it is damaged")
    except BaseException:
        connection.close()
        raise
    return connection


def _key(model: TextModel, text: str) -> bytes:
    content = f"{model.name}\n{text}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).digest()[:_KEY_BYTES]


def _encode(vector: Vector) -> bytes:
    return vector.astype("<f2").tobytes()


def _decode(content: bytes, size: int) -> Vector | None:
    import numpy as np

    if len(content) != 2 * size:
        return None
    vector = np.frombuffer(content, "<f2").astype(np.float32)
    length = float(np.linalg.norm(vector))
    # Zeros are valid: the vector of a text without known words.
    return vector if not length or abs(length - 1) < _LENGTH_TOLERANCE else None


def _today() -> int:
    return int(time.time()) // _SECONDS_PER_DAY
