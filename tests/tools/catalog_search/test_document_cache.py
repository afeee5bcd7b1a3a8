"""Documents on disk: the next process finds them, and ignores them if anything is wrong."""

import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from nacre.tools.catalog_search import document_cache
from nacre.tools.catalog_search.document_cache import load_layer, store_layer
from nacre.tools.catalog_search.documents import Document, document_of
from nacre.tools.catalog_search.inverted_index import Layer, Posting

KEYS = [number.to_bytes(32, "big") for number in range(document_cache.MIN_DOCUMENTS)]


def documents() -> list[Document]:
    return [
        document_of({"name": f"get_item_{number}", "summary": f"Gets item {number} of a list."})
        for number in range(len(KEYS))
    ]


def layer() -> Layer:
    return Layer(documents())


def read_all(layer: Layer) -> list[Document]:
    return [
        Document(weights=it.weights, prose=it.prose, is_reading=it.is_reading)
        for it in layer.documents
    ]


def load(directory: Path, keys: list[bytes] = KEYS) -> list[Document]:
    loaded = load_layer(keys, directory)
    return [] if loaded is None else read_all(loaded)


def only_file(directory: Path) -> Path:
    (file,) = (directory / "search").iterdir()
    return file


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_stored_documents_are_the_same_when_they_are_loaded(directory: Path) -> None:
    made = layer()
    store_layer(KEYS, made, directory)
    loaded = load_layer(KEYS, directory)
    assert loaded is not None
    assert read_all(loaded) == read_all(made)
    postings = [made.posting(term) for term in made.documents.numbers]
    assert [loaded.posting(term) for term in made.documents.numbers] == postings


def test_a_posting_has_the_documents_of_a_term() -> None:
    made = Layer(
        [Document(weights={"a": 1.0, "b": 2.0}, prose=()), Document(weights={"b": 0.5}, prose=())]
    )
    assert made.posting("b") == Posting(
        slots=array("I", [0, 1]), weights=array("f", [2.0, 0.5]), greatest=2.0
    )
    assert made.posting("c") is None
    assert [made.count(term) for term in "abc"] == [1, 2, 0]


def test_only_their_owner_can_access_them(directory: Path) -> None:
    store_layer(KEYS, layer(), directory)
    file = only_file(directory)
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    file.chmod(0o644)
    assert load_layer(KEYS, directory) is None


def test_other_tools_or_another_order_have_other_documents(directory: Path) -> None:
    store_layer(KEYS, layer(), directory)
    assert load_layer(KEYS[::-1], directory) is None
    assert load_layer([*KEYS, b"more"], directory) is None


@pytest.mark.parametrize("damage", ["cut", "changed", "version", "empty", "shorter"])
def test_a_damaged_file_is_ignored_and_replaced(directory: Path, damage: str) -> None:
    store_layer(KEYS, layer(), directory)
    file = only_file(directory)
    content = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(content[:-10])
        case "changed":
            file.write_bytes(content[:-10] + bytes(10))
        case "version":
            file.write_bytes(content.replace(b"documents ", b"documents 0", 1))
        case "empty":
            file.write_bytes(b"")
        case _:
            fewer = Path(directory, "fewer")
            store_layer(KEYS, Layer(documents()[:-1]), fewer)
            file.write_bytes(only_file(fewer).read_bytes())
    assert load_layer(KEYS, directory) is None
    store_layer(KEYS, layer(), directory)
    assert load(directory) == read_all(layer())


def test_few_documents_are_not_stored(directory: Path) -> None:
    store_layer(KEYS[1:], Layer(documents()[1:]), directory)
    assert not directory.exists()


def test_the_number_of_files_is_limited(directory: Path) -> None:
    kept = layer()
    for first in range(12):
        store_layer([bytes([first]) * 32, *KEYS[1:]], kept, directory)
    assert len(list((directory / "search").iterdir())) == 8
    assert load(directory, [bytes([11]) * 32, *KEYS[1:]]) == read_all(kept)


def test_a_directory_that_cannot_be_used_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    store_layer(KEYS, layer(), file)
    assert load_layer(KEYS, file) is None


def test_text_that_cannot_be_encoded_is_not_stored(directory: Path) -> None:
    broken = Document(weights={"\ud800": 1.0}, prose=())
    store_layer(KEYS, Layer([broken, *documents()[1:]]), directory)
    assert load_layer(KEYS, directory) is None


_WRITER = """
import sys
from pathlib import Path
from tests.tools.catalog_search.test_document_cache import KEYS, layer, load, read_all
from nacre.tools.catalog_search.document_cache import store_layer
made = layer()
for _ in range(5):
    store_layer(KEYS, made, Path(sys.argv[1]))
    assert load(Path(sys.argv[1])) == read_all(made)
"""


def test_two_processes_can_write_at_once(directory: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(directory)]
    root = Path(__file__).parents[3]
    writers = [subprocess.Popen(command, cwd=root) for _ in range(2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert load(directory) == read_all(layer())
    assert len(list((directory / "search").iterdir())) == 1
