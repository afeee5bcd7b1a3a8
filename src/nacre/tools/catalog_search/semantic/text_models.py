"""The embedding models, and how they are loaded.

The ONNX graph is built here, because the `onnx` package has 30 MB. Texts are embedded one by one:
the scale of 8-bit numbers depends on the whole batch, and the vector of a text must not.
"""

from __future__ import annotations

import json
import logging
import os
import weakref
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast
from zipfile import ZipFile

from nacre.config import NotPrivateError, private_cache_directory
from nacre.private_files import read_private, write_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)


# Of the private cache.
_FOLDER: Final = "models"
_MAX_HEADER_BYTES: Final = 1 << 20

Vector: TypeAlias = "NDArray[np.float32]"
"""A vector or a matrix."""


class Encoding(Protocol):
    """The token ids of a text."""

    @property
    def ids(self) -> list[int]: ...


class Tokenizer(Protocol):
    """Splits a text into tokens."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> Encoding: ...


class Session(Protocol):
    """A model of ONNX Runtime; thread-safe."""

    def run(self, outputs: None, inputs: Mapping[str, Vector]) -> list[Vector]: ...


def installed_file(package: str, name: str) -> Path:
    """A file of a package, without importing it; raises ImportError if there is none."""
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, name)
        if file.is_file():
            return file
    raise ImportError(f"{package} with {name} is not installed", name=package)


class StoredRows:
    """The rows of a matrix of 16-bit floats in a file, which are read when they are needed.

    In memory, they would take 40 MB for both models, and a text needs a few of them.
    """

    def __init__(self, path: Path, *, start: int, width: int) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        self._start = start
        self._width = width

    def __getitem__(self, numbers: list[int]) -> NDArray[np.float16]:
        import numpy as np

        size, start = 2 * self._width, self._start
        rows = [os.pread(self._descriptor, size, start + size * it) for it in numbers]
        return np.frombuffer(b"".join(rows), dtype="<f2").reshape(len(numbers), self._width)


def store_rows(
    name: str, rows: NDArray[np.float16], directory: Path | None = None
) -> StoredRows | NDArray[np.float16]:
    """The rows in a file of the private cache, or in memory if there is none."""
    try:
        path = private_cache_directory(directory) / _FOLDER / name
        content = rows.tobytes()
        if read_private(path) != content:
            write_private(path, content)
        return StoredRows(path, start=0, width=rows.shape[1])
    except (OSError, RuntimeError, NotPrivateError) as error:
        logger.debug("%s stays in memory: %s", name, error)
        return rows


def open_safetensors(path: Path, name: str) -> StoredRows:
    """The matrix with this name; raises ValueError if it is not one of 16-bit floats."""
    with path.open("rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        if header_size > _MAX_HEADER_BYTES:
            raise ValueError(f"the header of {path.name} is too large")
        tensor = json.loads(file.read(header_size))[name]
    if tensor["dtype"] != "F16":
        raise ValueError(f"{name} has numbers of the type {tensor['dtype']}")
    start = 8 + header_size + tensor["data_offsets"][0]
    return StoredRows(path, start=start, width=tensor["shape"][1])


def load_weights(content: bytes) -> dict[str, Vector]:
    return cast("dict[str, Vector]", _library("safetensors.numpy").load(content))


def load_tokenizer(content: bytes, *, max_tokens: int) -> Tokenizer:
    tokenizer = _library("tokenizers").Tokenizer.from_str(content.decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    return cast("Tokenizer", tokenizer)


def session_of(model: bytes) -> Session:
    library = _library("onnxruntime")
    options = library.SessionOptions()
    # In the thread of the caller, so that its priority applies and no threads are left.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Its pool would keep the memory of the longest text.
    options.enable_cpu_mem_arena = False
    session = library.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    # It keeps the bytes only to start again with other providers.
    session._model_bytes = None
    return cast("Session", session)


def _library(name: str) -> Any:
    return import_module(name)


CONTRIB: Final = "com.microsoft"
"""The domain of the operators that ONNX Runtime adds."""

_IR_VERSION: Final = 9
_OPSETS: Final = {"": 17, CONTRIB: 1}
# The numbers of the element types in the ONNX format, by NumPy name.
_ELEMENT_TYPES: Final = {"float32": 1, "int8": 3}
_FLOAT_ATTRIBUTE: Final = 1
_INT_ATTRIBUTE: Final = 2


class OnnxGraph:
    """Builds a graph: constants, and nodes in execution order."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0

    def constant(self, values: NDArray[Any]) -> str:
        """Add a constant and return its name."""
        name = self._new_name()
        dimensions = b"".join(_number(1, size) for size in values.shape)
        element_type = _number(2, _ELEMENT_TYPES[values.dtype.name])
        tensor = dimensions + element_type + _text(8, name) + _field(9, values.tobytes())
        self._parts.append(_field(5, tensor))
        return name

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        *,
        outputs: int = 1,
        domain: str = "",
        **attributes: float,
    ) -> list[str]:
        """Add a node and return the names of its outputs; an empty input name means none."""
        names = [self._new_name() for _ in range(outputs)]
        parts = [*(_text(1, each) for each in inputs), *(_text(2, each) for each in names)]
        parts += [_text(4, operator)]
        parts += [_field(5, _attribute(name, value)) for name, value in attributes.items()]
        self._parts.append(_field(1, b"".join(parts) + _text(7, domain)))
        return names

    def to_bytes(self, *, given: str, result: str, width: int) -> bytes:
        """The serialized model; its input and output have the shape (1, any, width)."""
        ends = _field(11, _value(given, width)) + _field(12, _value(result, width))
        graph = b"".join(self._parts) + _text(2, "nacre") + ends
        opsets = (_text(1, domain) + _number(2, number) for domain, number in _OPSETS.items())
        versions = b"".join(_field(8, each) for each in opsets)
        return _number(1, _IR_VERSION) + versions + _field(7, graph)

    def _new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"


def _value(name: str, width: int) -> bytes:
    sizes = (_number(1, 1), _text(2, "any"), _number(1, width))
    shape = b"".join(_field(1, each) for each in sizes)
    tensor = _number(1, _ELEMENT_TYPES["float32"]) + _field(2, shape)
    return _text(1, name) + _field(2, _field(1, tensor))


def _attribute(name: str, value: float) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, _INT_ATTRIBUTE)
    import numpy as np

    return _text(1, name) + b"\x15" + np.float32(value).tobytes() + _number(20, _FLOAT_ATTRIBUTE)


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


# Not imported: it would print a line.
_MINILM_PACKAGE: Final = "all_minilm_l6_v2"
_LAYERS: Final = 6
_HEADS: Final = 12
_WIDTH: Final = 384
_MAX_TOKENS: Final = 128
# A search waits for the tokens of the query, about 0.12 ms each.
_MAX_QUERY_TOKENS: Final = 128
# The part of a text that is tokenized, to know which share of it the model reads.
_MAX_COUNTED_TOKENS: Final = 1_024
_MIN_TOKENS: Final = 8
_EPSILON: Final = 1e-12
# The input of the graph.
_TOKENS: Final = "tokens"
# Less than 8 bits, because older processors add two products in 16 bits. An overflow would give
# different vectors on different machines.
_GREATEST_WEIGHT: Final = 63


class SentenceModel:
    """Load the model; raises ImportError, OSError or ValueError if it is not available."""

    def __init__(self) -> None:
        self.name = "all-MiniLM-L6-v2 int8 1"
        self.weight = 1.5
        self.size = _WIDTH
        with ZipFile(installed_file(_MINILM_PACKAGE, "model.zip")) as archive:
            weights = load_weights(archive.read("model.safetensors"))
            tokenizer = archive.read("tokenizer.json")
        self._tokenizer = load_tokenizer(tokenizer, max_tokens=_MAX_COUNTED_TOKENS)
        words = weights["embeddings.word_embeddings.weight"].astype("<f2")
        self._words = store_rows("minilm-words.f2", words)
        position = weights["embeddings.position_embeddings.weight"][:_MAX_TOKENS]
        self._places = position + weights["embeddings.token_type_embeddings.weight"][0]
        self._scale = weights["embeddings.LayerNorm.weight"]
        self._shift = weights["embeddings.LayerNorm.bias"]
        self._session = session_of(_encoder(weights))

    def vector(self, text: str) -> Vector:
        return self._vector_of(_truncate(self._tokenizer.encode(text).ids, _MAX_TOKENS))

    def query_vectors(self, sentences: Sequence[str]) -> tuple[Vector, float]:
        import numpy as np

        tokens = [self._tokenizer.encode(sentence).ids for sentence in sentences]
        read = list(_limit_tokens(tokens, _MAX_QUERY_TOKENS))
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


def _limit_tokens(sentences: Sequence[list[int]], limit: int) -> Iterator[list[int]]:
    """Limit the total number of tokens; a short rest of the last text is dropped."""
    for ids in sentences:
        if len(ids) <= limit or limit >= _MIN_TOKENS:
            yield _truncate(ids, limit)
        limit = max(0, limit - len(ids))


def _truncate(ids: list[int], limit: int) -> list[int]:
    # The last token marks the end of the text.
    return ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]]


def _encoder(weights: Mapping[str, Vector]) -> bytes:
    """The layers of the transformer, after the token embedding."""
    graph = OnnxGraph()
    now = _TOKENS
    for number in range(_LAYERS):
        now = _Layer(graph, weights, f"encoder.layer.{number}.").add(now)
    return graph.to_bytes(given=_TOKENS, result=now, width=_WIDTH)


class _Layer:
    """One layer: attention and a feed-forward network, each with residual and normalization."""

    def __init__(self, graph: OnnxGraph, weights: Mapping[str, Vector], prefix: str) -> None:
        self._graph = graph
        self._weights = weights
        self._prefix = prefix

    def add(self, given: str) -> str:
        """Add the layer and return the name of its output."""
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
        """The transpose of a matrix in 8 bits, and a scale for each output."""
        import numpy as np

        scale = np.maximum(np.abs(matrix).max(axis=1), _EPSILON) / _GREATEST_WEIGHT
        whole = np.rint(matrix / scale[:, np.newaxis]).astype(np.int8)
        constant = self._graph.constant
        return constant(np.ascontiguousarray(whole.T)), constant(scale.astype(np.float32))

    def _of(self, name: str) -> Vector:
        return self._weights[self._prefix + name]


# Not imported: that would set up logging for the whole process.
_WORDLLAMA_PACKAGE: Final = "wordllama"
_MAX_WORD_TOKENS: Final = 512


class WordModel:
    """Load the model; raises ImportError, OSError or ValueError if it is not available."""

    def __init__(self) -> None:
        self.name = "wordllama l2_supercat_256 1"
        self.weight = 0.8
        self.size = 256
        weights = installed_file(_WORDLLAMA_PACKAGE, "weights/l2_supercat_256.safetensors")
        self._words = open_safetensors(weights, "embedding.weight")
        tokens = installed_file(_WORDLLAMA_PACKAGE, "tokenizers/l2_supercat_tokenizer_config.json")
        self._tokenizer = load_tokenizer(tokens.read_bytes(), max_tokens=_MAX_WORD_TOKENS)

    def vector(self, text: str) -> Vector:
        import numpy as np

        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        total = self._words[ids].astype(np.float32).sum(axis=0)
        length = np.linalg.norm(total)
        return total / length if length else total

    def query_vectors(self, sentences: Sequence[str]) -> tuple[Vector, float]:
        import numpy as np

        return np.stack([self.vector(sentence) for sentence in sentences]), 1.0


SWITCH: Final = "NACRE_SEMANTIC_SEARCH"
"""Set it to `off` to search by words only, even if models are installed."""


class TextModel(Protocol):
    """Embeds texts: similar meanings have similar vectors. Thread-safe."""

    name: str
    """The name; it changes when the vectors change."""
    weight: float
    """The weight, relative to the best score of words, which is 1."""
    size: int
    """The length of a vector."""

    def vector(self, text: str) -> Vector:
        """The normalized vector of a text; zeros if the model knows none of its words."""
        ...

    def query_vectors(self, sentences: Sequence[str]) -> tuple[Vector, float]:
        """One row per sentence within the time limit, and the share of the text that was read."""
        ...


def is_switched_off() -> bool:
    return os.environ.get(SWITCH, "").strip().lower() in ("off", "0", "false", "no")


def installed_models() -> list[TextModel]:
    """The available models; may be empty. Takes up to a second."""
    models: list[TextModel] = []
    for kind in (SentenceModel, WordModel):
        try:
            models.append(kind())
        except ImportError as missing:
            logger.debug("search does not use %s: %s", kind.__name__, missing)
        except Exception:
            # If the files of a model are damaged, the word search still works.
            logger.warning(
                "search does not use %s: it cannot be loaded", kind.__name__, exc_info=True
            )
    return models
