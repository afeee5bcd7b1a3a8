"""Documents on disk: the next process finds them, and ignores them if anything is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

from nacre.tools.catalog_search import document_cache
from nacre.tools.catalog_search.document_cache import load_documents, store_documents
from nacre.tools.catalog_search.documents import Document, document_of

KEYS = [number.to_bytes(32, "big") for number in range(document_cache.MIN_DOCUMENTS)]


def documents() -> list[Document]:
    return [
        document_of({"name": f"get_item_{number}", "summary": f"Gets item {number} of a list."})
        for number in range(len(KEYS))
    ]


def only_file(directory: Path) -> Path:
    (file,) = (directory / "search").iterdir()
    return file


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_stored_documents_are_the_same_when_they_are_loaded(directory: Path) -> None:
    store_documents(KEYS, documents(), directory)
    assert list(load_documents(KEYS, directory) or ()) == documents()


def test_only_their_owner_can_access_them(directory: Path) -> None:
    store_documents(KEYS, documents(), directory)
    file = only_file(directory)
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    file.chmod(0o644)
    assert load_documents(KEYS, directory) is None


def test_other_tools_or_another_order_have_other_documents(directory: Path) -> None:
    store_documents(KEYS, documents(), directory)
    assert load_documents(KEYS[::-1], directory) is None
    assert load_documents([*KEYS, b"more"], directory) is None


@pytest.mark.parametrize("damage", ["cut", "changed", "version", "empty", "shorter"])
def test_a_damaged_file_is_ignored_and_replaced(directory: Path, damage: str) -> None:
    store_documents(KEYS, documents(), directory)
    file = only_file(directory)
    content = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(content[:-10])
        case "changed":
            file.write_bytes(content[:-10] + bytes(10))
        case "version":
            file.write_bytes(content.replace(b"documents 1", b"documents 0", 1))
        case "empty":
            file.write_bytes(b"")
        case _:
            fewer = Path(directory, "fewer")
            store_documents(KEYS, documents()[:-1], fewer)
            file.write_bytes(only_file(fewer).read_bytes())
    assert load_documents(KEYS, directory) is None
    store_documents(KEYS, documents(), directory)
    assert list(load_documents(KEYS, directory) or ()) == documents()


def test_few_documents_are_not_stored(directory: Path) -> None:
    store_documents(KEYS[1:], documents()[1:], directory)
    assert not directory.exists()


def test_the_number_of_files_is_limited(directory: Path) -> None:
    kept = documents()
    for first in range(12):
        store_documents([bytes([first]) * 32, *KEYS[1:]], kept, directory)
    assert len(list((directory / "search").iterdir())) == 8
    assert list(load_documents([bytes([11]) * 32, *KEYS[1:]], directory) or ()) == kept


def test_a_directory_that_cannot_be_used_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    store_documents(KEYS, documents(), file)
    assert load_documents(KEYS, file) is None


def test_text_that_cannot_be_encoded_is_not_stored(directory: Path) -> None:
    broken = Document(weights={"\ud800": 1.0}, prose=())
    store_documents(KEYS, [broken, *documents()[1:]], directory)
    assert load_documents(KEYS, directory) is None


_WRITER = """
import sys
from pathlib import Path
from tests.tools.catalog_search.test_document_cache import KEYS, documents
from nacre.tools.catalog_search.document_cache import load_documents, store_documents
made = documents()
for _ in range(5):
    store_documents(KEYS, made, Path(sys.argv[1]))
    assert list(load_documents(KEYS, Path(sys.argv[1])) or ()) == made
"""


def test_two_processes_can_write_at_once(directory: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(directory)]
    root = Path(__file__).parents[3]
    writers = [subprocess.Popen(command, cwd=root) for _ in range(2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert list(load_documents(KEYS, directory) or ()) == documents()
    assert len(list((directory / "search").iterdir())) == 1
