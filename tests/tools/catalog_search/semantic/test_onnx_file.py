"""Models that are written by hand: ONNX Runtime reads and runs them."""

import numpy as np
import pytest

from nacre.tools.catalog_search.semantic.text_models import CONTRIB, OnnxGraph, session_of

pytest.importorskip("onnxruntime")


def test_a_graph_with_constants_and_attributes_runs() -> None:
    graph = OnnxGraph()
    matrix = np.arange(4, dtype=np.float32).reshape(2, 2)
    product = graph.node("MatMul", ["given", graph.constant(matrix)])[0]
    result = graph.node("LeakyRelu", [product], alpha=0.5)[0]
    session = session_of(graph.to_bytes(given="given", result=result, width=2))
    given = np.array([[[1.0, 1.0], [-1.0, 0.0]]], dtype=np.float32)
    assert session.run(None, {"given": given})[0].tolist() == [[[2.0, 4.0], [0.0, -0.5]]]


def test_an_operator_may_give_several_things_and_leave_inputs_out() -> None:
    graph = OnnxGraph()
    values, scale, zero = graph.node("DynamicQuantizeLinear", ["given"], outputs=3)
    back = graph.node("DequantizeLinear", [values, scale, zero])[0]
    weight = graph.constant(np.full((3, 3), 2, dtype=np.int8))
    scales = graph.constant(np.full(3, 0.5, dtype=np.float32))
    result = graph.node("DynamicQuantizeMatMul", [back, weight, scales, "", ""], domain=CONTRIB)[0]
    session = session_of(graph.to_bytes(given="given", result=result, width=3))
    given = np.array([[[0.0, 1.0, 2.0]]], dtype=np.float32)
    assert session.run(None, {"given": given})[0].ravel() == pytest.approx([3.0] * 3, abs=0.02)
