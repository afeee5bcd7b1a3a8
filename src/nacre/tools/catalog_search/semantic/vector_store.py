"""Vectors on disk, by model and text: an unchanged text is never embedded twice on a machine.

SQLite keeps several processes and half-finished writes apart. Whatever is wrong with the file, the
worst is that vectors are made again: a broken one is replaced, and where none can be kept, memory
serves this process.
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
# About 60 MB; what was not used for longest goes first.
MAX_VECTORS: Final = 60_000
_SECONDS_OF_A_DAY: Final = 86_400
# SQLite takes so many values in one statement, in every version.
_MAX_VALUES: Final = 900
_KEY_BYTES: Final = 16
_LENGTH_TOLERANCE: Final = 0.01

_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS vectors"
    " (key BLOB PRIMARY KEY, vector BLOB NOT NULL, used_day INTEGER NOT NULL)"
)


class VectorStore:
    """Used by one thread. No method raises: what cannot be kept is not kept."""

    def __init__(self, directory: Path | None = None, *, max_vectors: int = MAX_VECTORS) -> None:
        self._directory = directory
        self._max_vectors = max_vectors
        self._opened: sqlite3.Connection | None = None

    def get(self, model: TextModel, texts: Iterable[str]) -> dict[str, Vector]:
        """The vectors that are there, and are what vectors of this model can be."""
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
        """Forget what was not used for longest, where there is too much."""
        self._write(
            "DELETE FROM vectors WHERE key IN (SELECT key FROM vectors ORDER BY used_day, key"
            " LIMIT max(0, (SELECT count(*) FROM vectors) - ?))",
            [(self._max_vectors,)],
        )

    def close(self) -> None:
        if self._opened is not None:
            # In a forked child it belongs to a thread that is not there.
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
            logger.warning("vectors for search are not kept on disk: %s", error)
            return None

    def _give_up(self, error: sqlite3.Error) -> None:
        """Go on without the file, which another process may be holding, or the disk be full."""
        logger.warning("vectors for search are not kept on disk any more: %s", error)
        self.close()
        self._opened = _open(_MEMORY)


def _open_file(file: Path) -> sqlite3.Connection:
    # Before SQLite makes it for all to read.
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


def _open(place: str) -> sqlite3.Connection:
    connection = sqlite3.connect(place, timeout=_BUSY_SECONDS)
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
    # Zeros are the vector of a text of which the model knows nothing.
    return vector if not length or abs(length - 1) < _LENGTH_TOLERANCE else None


def _today() -> int:
    return int(time.time()) // _SECONDS_OF_A_DAY
