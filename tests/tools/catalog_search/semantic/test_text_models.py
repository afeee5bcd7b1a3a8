"""The text models, where they are installed, and the ONNX graphs that are built for them."""

import logging
import sys

import numpy as np
import pytest

from nacre.tools.catalog_search.semantic import text_models
from nacre.tools.catalog_search.semantic.text_models import (
    CONTRIB,
    OnnxGraph,
    SentenceModel,
    TextModel,
    Vector,
    WordModel,
    installed_models,
    is_switched_off,
    session_of,
)

LIBRARIES = ("numpy", "safetensors", "tokenizers", "onnxruntime")


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


@pytest.mark.parametrize("library", LIBRARIES[1:3])
def test_without_a_library_there_is_no_model_and_no_complaint(
    library: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (library, f"{library}.numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    with caplog.at_level(logging.INFO):
        assert installed_models() == []
    assert caplog.records == []


def test_without_onnxruntime_words_alone_have_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
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
