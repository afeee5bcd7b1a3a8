"""The text models, where they are installed, and the ONNX graphs that are built for them."""

import logging
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nacre.tools.catalog_search.semantic import text_models
from nacre.tools.catalog_search.semantic.text_models import (
    CONTRIB,
    OnnxGraph,
    SentenceModel,
    StoredRows,
    TextModel,
    Vector,
    WordModel,
    installed_models,
    is_switched_off,
    open_safetensors,
    session_of,
    store_rows,
)


@pytest.fixture(scope="module", params=[SentenceModel, WordModel])
def model(request: pytest.FixtureRequest) -> TextModel:
    try:
        return request.param()
    except ImportError as missing:
        pytest.skip(str(missing))


def test_what_means_the_same_is_more_alike_than_what_does_not(model: TextModel) -> None:
    query = model.vector("remove a calendar appointment")
    wanted = model.vector("delete event: cancel a meeting in the diary")
    other = model.vector("convert image: change a picture to another format")
    assert query @ wanted > query @ other + 0.1


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "word " * 100_000,
        "日本語のテキスト",
        "\U0001f600" * 50,
        "a\x00b\u202ec",
        "é\u0301" * 300,
    ],
)
def test_any_text_has_a_vector_of_length_one(model: TextModel, text: str) -> None:
    vector = model.vector(text)
    assert vector.shape == (model.size,)
    assert float(np.linalg.norm(vector)) == pytest.approx(1.0, abs=1e-3)


def test_an_empty_text_has_a_vector_too(model: TextModel) -> None:
    assert np.isfinite(model.vector("")).all()


def test_a_text_has_one_vector_whatever_came_before(model: TextModel) -> None:
    first = model.vector("open a ticket")
    model.vector("something else, and longer than that")
    assert (model.vector("open a ticket") == first).all()


def test_a_short_query_is_read_like_any_text(model: TextModel) -> None:
    sentences = ["open a ticket", "send an invoice"]
    vectors, share = model.query_vectors(sentences)
    assert (vectors == [model.vector(sentence) for sentence in sentences]).all()
    assert share == 1.0


@pytest.fixture(name="sentence_model")
def installed_sentence_model() -> SentenceModel:
    try:
        return SentenceModel()
    except ImportError as missing:
        pytest.skip(str(missing))


def test_of_a_long_query_the_sentence_model_reads_the_beginning(
    sentence_model: SentenceModel,
) -> None:
    start = "open a ticket " * 42
    vectors, share = sentence_model.query_vectors([start + "and send an invoice " * 8])
    others, other_share = sentence_model.query_vectors([start + "or paint the whole house " * 4])
    assert (vectors == others).all()
    assert (vectors == [sentence_model.vector(start + "is read no more")]).all()
    assert 0.7 < share < other_share < 1.0


def test_of_many_sentences_the_sentence_model_reads_the_first(
    sentence_model: SentenceModel,
) -> None:
    sentence = "open a ticket " * 15
    vectors, share = sentence_model.query_vectors([sentence] * 4)
    whole = sentence_model.vector(sentence)
    assert (vectors[:2] == whole).all()
    # The third is cut, the fourth is not read.
    assert len(vectors) == 3
    assert (vectors[2] != whole).any()
    assert 0.6 < share < 0.75


def test_a_few_words_of_a_sentence_are_not_read(sentence_model: SentenceModel) -> None:
    vectors, share = sentence_model.query_vectors(["open a ticket " * 41, "send an invoice " * 9])
    assert len(vectors) == 1
    assert 0.7 < share < 0.9


def test_without_a_library_there_is_no_model_and_no_complaint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with caplog.at_level(logging.INFO):
        assert installed_models() == []
    assert caplog.records == []


@pytest.mark.parametrize("library", ["onnxruntime", "safetensors.numpy"])
def test_without_its_libraries_words_alone_have_vectors(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert "SentenceModel" not in [type(model).__name__ for model in installed_models()]


def test_a_model_that_does_not_load_is_reported_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class BrokenModel:
        name, weight, size = "broken", 1.0, 1

        def __init__(self) -> None:
            raise ValueError("the header is too large")

        def vector(self, text: str) -> Vector:
            raise NotImplementedError

    monkeypatch.setattr(text_models, "SentenceModel", BrokenModel)
    monkeypatch.setattr(text_models, "WordModel", BrokenModel)
    assert installed_models() == []
    assert [record.getMessage() for record in caplog.records] == [
        "search does not use BrokenModel: it cannot be loaded"
    ] * 2


@pytest.mark.parametrize(
    ("value", "is_off"), [("off", True), (" OFF ", True), ("0", True), ("on", False), ("", False)]
)
def test_the_switch(value: str, is_off: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_SEMANTIC_SEARCH", value)
    assert is_switched_off() is is_off


def rows_of(count: int) -> NDArray[np.float16]:
    return np.random.default_rng(1).standard_normal((count, 6)).astype("<f2")


def test_stored_rows_are_the_rows_and_the_file_is_private(tmp_path: Path) -> None:
    rows = rows_of(50)
    numbers = [49, 0, 7, 7]
    for _ in range(2):
        stored = store_rows("some.f2", rows, tmp_path)
        assert isinstance(stored, StoredRows)
        assert (stored[numbers] == rows[numbers]).all()
        assert stored[[]].shape == (0, 6)
    (file,) = (tmp_path / "models").iterdir()
    assert file.stat().st_mode & 0o077 == 0


def test_a_file_with_other_rows_is_replaced_and_its_readers_keep_theirs(tmp_path: Path) -> None:
    before, after = rows_of(50), rows_of(51)[1:]
    old = store_rows("some.f2", before, tmp_path)
    assert (store_rows("some.f2", after, tmp_path)[[3]] == after[[3]]).all()
    assert (old[[3]] == before[[3]]).all()
    Path(tmp_path, "models", "some.f2").write_bytes(b"short")
    assert (store_rows("some.f2", after, tmp_path)[[49]] == after[[49]]).all()


def test_without_a_private_cache_the_rows_stay_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    rows = rows_of(3)
    assert store_rows("some.f2", rows, file) is rows


def test_a_matrix_of_safetensors_is_read_by_rows(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    rows = rows_of(20)
    file = tmp_path / "some.safetensors"
    numpy.save_file({"other": rows_of(2), "words": rows}, file)
    assert (open_safetensors(file, "words")[[19, 4]] == rows[[19, 4]]).all()
    numpy.save_file({"words": rows.astype("float32")}, file)
    with pytest.raises(ValueError, match="F32"):
        open_safetensors(file, "words")


def test_a_graph_with_constants_and_attributes_runs() -> None:
    pytest.importorskip("onnxruntime")
    graph = OnnxGraph()
    matrix = np.arange(4, dtype=np.float32).reshape(2, 2)
    product = graph.node("MatMul", ["given", graph.constant(matrix)])[0]
    result = graph.node("LeakyRelu", [product], alpha=0.5)[0]
    session = session_of(graph.to_bytes(given="given", result=result, width=2))
    given = np.array([[[1.0, 1.0], [-1.0, 0.0]]], dtype=np.float32)
    assert session.run(None, {"given": given})[0].tolist() == [[[2.0, 4.0], [0.0, -0.5]]]


def test_an_operator_may_give_several_things_and_leave_inputs_out() -> None:
    pytest.importorskip("onnxruntime")
    graph = OnnxGraph()
    values, scale, zero = graph.node("DynamicQuantizeLinear", ["given"], outputs=3)
    back = graph.node("DequantizeLinear", [values, scale, zero])[0]
    weight = graph.constant(np.full((3, 3), 2, dtype=np.int8))
    scales = graph.constant(np.full(3, 0.5, dtype=np.float32))
    result = graph.node("DynamicQuantizeMatMul", [back, weight, scales, "", ""], domain=CONTRIB)[0]
    session = session_of(graph.to_bytes(given="given", result=result, width=3))
    given = np.array([[[0.0, 1.0, 2.0]]], dtype=np.float32)
    assert session.run(None, {"given": given})[0].ravel() == pytest.approx([3.0] * 3, abs=0.02)
