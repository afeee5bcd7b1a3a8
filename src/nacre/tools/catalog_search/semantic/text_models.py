"""The models that turn texts into vectors: which of them are installed."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, Protocol

from nacre.tools.catalog_search.semantic.sentence_model import SentenceModel
from nacre.tools.catalog_search.semantic.word_model import WordModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.tools.catalog_search.semantic.libraries import Vector

logger = logging.getLogger(__name__)

SWITCH: Final = "NACRE_SEMANTIC_SEARCH"
"""Set to `off`, it keeps search to words even where models are installed."""


class TextModel(Protocol):
    """Gives texts that mean alike vectors that are alike; may be used in several threads."""

    name: str
    """Another name where the same text has another vector."""
    weight: float
    """How much it counts beside the best score of words, which is 1."""
    size: int
    """The numbers in a vector."""

    def vector(self, text: str) -> Vector:
        """Of length 1; of length 0 where the model knows nothing of the text."""
        ...

    def query_vectors(self, sentences: Sequence[str]) -> tuple[Vector, float]:
        """A row for each sentence that can be read in time; and which share of all was read."""
        ...


def is_switched_off() -> bool:
    return os.environ.get(SWITCH, "").strip().lower() in ("off", "0", "false", "no")


def installed_models() -> list[TextModel]:
    """Those that can be used here; takes up to a second, and none is no error."""
    models: list[TextModel] = []
    for kind in (SentenceModel, WordModel):
        try:
            models.append(kind())
        except ImportError as missing:
            logger.debug("search goes without %s: %s", kind.__name__, missing)
        except Exception:
            # Whatever is wrong with a model's files, search by words goes on.
            logger.warning(
                "search goes without %s: it cannot be loaded", kind.__name__, exc_info=True
            )
    return models
