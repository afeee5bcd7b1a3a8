"""The one door to the libraries of the extra `semantic`: nothing of them is imported before use."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

Vector: TypeAlias = "NDArray[np.float32]"
"""One or more dimensions: also a matrix is one."""


class Encoding(Protocol):
    """A text as the numbers of its tokens."""

    @property
    def ids(self) -> list[int]: ...


class Tokenizer(Protocol):
    """Cuts a text into tokens."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> Encoding: ...


class Session(Protocol):
    """A model of ONNX Runtime; may be run in several threads."""

    def run(self, outputs: None, inputs: Mapping[str, Vector]) -> list[Vector]: ...


def installed_file(package: str, name: str) -> Path:
    """A file of a package, which is not imported. Raises ImportError where there is none."""
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, name)
        if file.is_file():
            return file
    raise ImportError(f"{package} with {name} is not installed", name=package)


def weights_in(file: Path) -> dict[str, Vector]:
    return cast("dict[str, Vector]", _library("safetensors.numpy").load_file(file))


def tokenizer_in(file: Path, *, max_tokens: int) -> Tokenizer:
    tokenizer = _library("tokenizers").Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    return cast("Tokenizer", tokenizer)


def session_of(model: bytes) -> Session:
    library = _library("onnxruntime")
    options = library.SessionOptions()
    # One thread, that of the caller: nothing is left running, and a niced thread stays nice.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = library.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return cast("Session", session)


def _library(name: str) -> Any:
    return import_module(name)
