"""A cache of indexed documents on disk, by the texts of a catalog.

Reading the texts of 10,000 tools takes most of the time of an index. A file has the documents of
one catalog. It is replaced as a whole, and only its owner can access it. Its name and its checksum
say what it contains. A file that is damaged or of another version is ignored, and then replaced.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from nacre.config import NotPrivateError, private_cache_directory
from nacre.private_files import read_private, write_private
from nacre.tools.catalog_search.documents import Document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

# Changes with the format, and with every change of what a document contains.
_VERSION: Final = 1
_MAGIC: Final = f"nacre documents {_VERSION}\n".encode()
_CHECKSUM_BYTES: Final = 32
_FOLDER: Final = "search"
_ENDING: Final = f".{_VERSION}.documents"
# Fewer are read from their texts in a few milliseconds.
MIN_DOCUMENTS: Final = 500
_MAX_FILE_BYTES: Final = 64 << 20
_MAX_FILES: Final = 8
_MAX_TOTAL_BYTES: Final = 128 << 20
# In place of a term, the border between two fields.
_BORDER: Final = -1

# The terms of all documents; then the numbers of its terms, their weights, its prose and whether it
# reads, for each document.
_Stored: TypeAlias = "tuple[list[str], list[tuple[list[int], list[float], list[int], bool]]]"


def load_documents(keys: Sequence[bytes], directory: Path | None = None) -> list[Document] | None:
    """The documents of the tools with these digests, in order; None if they are not stored."""
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
        documents = _decode(content)
        if len(documents) != len(keys):
            raise ValueError("it has another number of documents")
    except (OSError, RuntimeError, NotPrivateError) as error:
        logger.debug("stored documents cannot be read: %s", error)
        return None
    except (ValueError, IndexError) as error:
        logger.warning("a damaged file of the search cache is ignored: %s", error)
        return None
    return documents


def store_documents(
    keys: Sequence[bytes], documents: Sequence[Document], directory: Path | None = None
) -> None:
    """Store the documents for the next process. Does not raise."""
    if len(keys) < MIN_DOCUMENTS:
        return
    try:
        content = _encode(documents)
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


def _encode(documents: Sequence[Document]) -> bytes:
    import msgspec

    numbers: dict[str, int] = {}

    def number_of(term: str) -> int:
        return numbers.setdefault(term, len(numbers))

    rows = [
        (
            [number_of(term) for term in document.weights],
            list(document.weights.values()),
            [_BORDER if term is None else number_of(term) for term in document.prose],
            document.is_reading,
        )
        for document in documents
    ]
    body = msgspec.msgpack.encode((list(numbers), rows))
    return _MAGIC + hashlib.sha256(body).digest() + body


def _decode(content: bytes) -> list[Document]:
    """Raises ValueError or IndexError for anything but the output of `_encode`."""
    import msgspec

    start = len(_MAGIC) + _CHECKSUM_BYTES
    if not content.startswith(_MAGIC):
        raise ValueError("it has another format")
    if hashlib.sha256(content[start:]).digest() != content[len(_MAGIC) : start]:
        raise ValueError("its checksum is wrong")
    stored: _Stored = msgspec.msgpack.decode(
        memoryview(content)[start:],
        type=tuple[list[str], list[tuple[list[int], list[float], list[int], bool]]],
    )
    terms: list[str | None] = [*stored[0], None]
    words = stored[0]
    return [
        Document(
            weights=dict(zip([words[number] for number in numbers], weights, strict=True)),
            # The border is the last one.
            prose=tuple([terms[number] for number in prose]),
            is_reading=is_reading,
        )
        for numbers, weights, prose, is_reading in stored[1]
    ]


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
