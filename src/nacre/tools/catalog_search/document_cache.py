"""A cache of indexed documents on disk, by the texts of a catalog.

Reading the texts of 10,000 tools takes most of the time of an index. A file has the documents of
one catalog and their postings, as arrays. It is replaced as a whole, and only its owner can access
it. Its name and its checksum say what it contains. A file that is damaged or of another version is
ignored, and then replaced.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from nacre.config import NotPrivateError, private_cache_directory
from nacre.private_files import read_private, write_private
from nacre.tools.catalog_search.inverted_index import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

# Changes with the format, and with every change of what a document contains.
_VERSION: Final = 2
_MAGIC: Final = f"nacre documents {_VERSION} {sys.byteorder}\n".encode()
_CHECKSUM_BYTES: Final = 32
_FOLDER: Final = "search"
_ENDING: Final = f".{_VERSION}.documents"
# Fewer are read from their texts in a few milliseconds.
MIN_DOCUMENTS: Final = 500
_MAX_FILE_BYTES: Final = 64 << 20
_MAX_FILES: Final = 8
_MAX_TOTAL_BYTES: Final = 128 << 20


def load_layer(keys: Sequence[bytes], directory: Path | None = None) -> Layer | None:
    """The indexed documents of the tools with these digests, in order; None if not stored."""
    if len(keys) < MIN_DOCUMENTS:
        return None
    try:
        path = _path_of(keys, directory)
        content = read_private(path)
        if content is None:
            return None
        # Marks it as used. It fails on a read-only file system, where nothing is removed either.
        with suppress(OSError):
            os.utime(path)
        return _decode(content, count=len(keys))
    except (OSError, RuntimeError, NotPrivateError) as error:
        logger.debug("stored documents cannot be read: %s", error)
    except ValueError as error:
        logger.warning("a damaged file of the search cache is ignored: %s", error)
    return None


def store_layer(keys: Sequence[bytes], layer: Layer, directory: Path | None = None) -> None:
    """Store the documents for the next process. Does not raise."""
    if len(keys) < MIN_DOCUMENTS:
        return
    try:
        content = _encode(layer)
        if len(content) <= _MAX_FILE_BYTES:
            path = _path_of(keys, directory)
            write_private(path, content)
            _remove_oldest(path.parent)
    except (OSError, RuntimeError, NotPrivateError, ValueError) as error:
        # Half a surrogate pair in a text cannot be stored, for example, or the disk is full.
        logger.debug("documents for search are not stored: %s", error)


def _path_of(keys: Sequence[bytes], directory: Path | None) -> Path:
    name = hashlib.sha256(b"".join(keys)).hexdigest()
    return private_cache_directory(directory) / _FOLDER / f"{name}{_ENDING}"


def _encode(layer: Layer) -> bytes:
    import msgspec

    arrays = [memoryview(each).cast("B") for each in layer.arrays()]
    body = msgspec.msgpack.encode((list(layer.documents.numbers), arrays))
    return _MAGIC + hashlib.sha256(body).digest() + body


def _decode(content: bytes, *, count: int) -> Layer:
    """Raises ValueError for anything but the output of `_encode` with so many documents."""
    import msgspec

    start = len(_MAGIC) + _CHECKSUM_BYTES
    if not content.startswith(_MAGIC):
        raise ValueError("it has another format")
    if hashlib.sha256(content[start:]).digest() != content[len(_MAGIC) : start]:
        raise ValueError("its checksum is wrong")
    words, arrays = msgspec.msgpack.decode(
        memoryview(content)[start:], type=tuple[list[str], list[memoryview]]
    )
    layer = Layer.from_arrays(words, arrays)
    if len(layer.documents) != count:
        raise ValueError("it has another number of documents")
    return layer


def _remove_oldest(folder: Path) -> None:
    """Remove the files that were not used for longest, beyond the limits."""
    used: list[tuple[float, int, str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                info = entry.stat(follow_symlinks=False)
                used.append((info.st_mtime, info.st_size, entry.path))
    total = 0
    for count, (_, size, path) in enumerate(sorted(used, reverse=True), start=1):
        total += size
        if count > _MAX_FILES or total > _MAX_TOTAL_BYTES:
            with suppress(OSError):
                os.unlink(path)
