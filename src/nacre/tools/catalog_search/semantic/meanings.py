"""The texts of a catalog as vectors: made in the background, and used once they are there."""

from __future__ import annotations

import logging
import re
import threading
import weakref
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from nacre.tools.catalog_search.semantic.background import BackgroundThread, give_way
from nacre.tools.catalog_search.semantic.fusion import Likeness
from nacre.tools.catalog_search.semantic.sentences import sentences_of
from nacre.tools.catalog_search.semantic.text_models import installed_models, is_switched_off
from nacre.tools.catalog_search.semantic.vector_store import VectorStore

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from nacre.tools.catalog import CatalogEntry
    from nacre.tools.catalog_search.semantic.text_models import TextModel, Vector

_MAX_DESCRIPTION_CHARACTERS: Final = 1_000
_MAX_NAME_CHARACTERS: Final = 200
_MAX_PARAMETERS: Final = 20
_MAX_QUERY_CHARACTERS: Final = 1_000
_TEXTS_KEPT_AT_ONCE: Final = 64
# `createIssue` and `create_issue` as words.
_WORD_BORDER: Final = re.compile(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Up to here the alphabets are Latin.
_LAST_LATIN: Final = "\u024f"

logger = logging.getLogger(__name__)

_thread: Final = BackgroundThread("nacre-semantic-search", patience_seconds=0.3)


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedded:
    """All texts by one model, a row for each."""

    model: TextModel
    rows: Vector

    def likeness(self, sentences: Sequence[str]) -> Likeness:
        """A model counts for less where it read less."""
        vectors, share = self.model.query_vectors(sentences)
        return Likeness(weight=self.model.weight * share, cosines=vectors @ self.rows.T)


class Meanings:
    """What the texts mean, by every model that is installed. Never changes once it is settled."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        """Of the texts by position; every position has one."""
        self._embedded: tuple[Embedded, ...] = ()
        self._settled = threading.Event()
        if not texts or is_switched_off():
            self._settled.set()
        else:
            # Whoever has dropped the catalog wants no vectors of it.
            in_order = [texts[position] for position in range(len(texts))]
            _thread.add(_settling(weakref.ref(self), in_order))

    @property
    def embedded(self) -> tuple[Embedded, ...]:
        """By each model, the best first; none before they are made."""
        return self._embedded

    @property
    def is_known(self) -> bool:
        """Whether a query has likenesses: they are made, and there is a model to make them."""
        return bool(self._embedded)

    def wait(self, timeout_seconds: float) -> bool:
        """Whether the work in the background is over, at last or after so long."""
        _thread.start_now()
        return self._settled.wait(timeout_seconds)

    def likenesses(self, query: str) -> list[Likeness]:
        """To each text, by each model; none before they are made. Takes some milliseconds."""
        asked = _as_words(query[:_MAX_QUERY_CHARACTERS])
        # The models read Latin letters; of others they know some signs and no words.
        if not self._embedded or not _is_mostly_latin(asked):
            return []
        sentences = sentences_of(asked)
        return [it.likeness(sentences) for it in self._embedded]

    def settle(self, embedded: Sequence[tuple[TextModel, Vector]]) -> None:
        self._embedded = tuple(Embedded(model=model, rows=rows) for model, rows in embedded)
        self._settled.set()


def meaning_text(entry: CatalogEntry) -> str:
    """What is embedded of an entry; cheap, for it is made of every entry of an index."""
    properties = entry.tool.parameters.get("properties")
    names = list(properties)[:_MAX_PARAMETERS] if isinstance(properties, dict) else []
    takes = ", ".join(name[:_MAX_NAME_CHARACTERS] for name in names)
    owner = (entry.source_name or "")[:_MAX_NAME_CHARACTERS]
    name = entry.name[:_MAX_NAME_CHARACTERS]
    return f"{owner} {name}: {entry.description[:_MAX_DESCRIPTION_CHARACTERS]} ({takes})".lstrip()


@cache
def _models() -> list[TextModel]:
    """Loaded by the thread that makes vectors, when it first has some to make."""
    models = installed_models()
    give_way()
    return models


@cache
def _store() -> VectorStore:
    return VectorStore()


def _settling(meanings: weakref.ref[Meanings], texts: Sequence[str]) -> Generator[None]:
    embedded: list[tuple[TextModel, Vector]] = []
    try:
        yield
        asked = [_as_words(text) for text in texts]
        for model in _models():
            try:
                vectors = yield from _vectors(model, asked, meanings)
                embedded.append((model, _rows([vectors[text] for text in asked])))
            except _UnwantedError:
                return
            except Exception:
                # Whatever it stumbled over, the other models and search by words go on.
                logger.warning("search goes without %s: it failed", model.name, exc_info=True)
    finally:
        if (still_wanted := meanings()) is not None:
            still_wanted.settle(embedded)


class _UnwantedError(Exception):
    """Nobody is left who would use the vectors."""


def _vectors(
    model: TextModel, texts: Sequence[str], wanted_by: weakref.ref[Meanings]
) -> Generator[None, None, Mapping[str, Vector]]:
    vectors = _store().get(model, texts)
    missing = [text for text in dict.fromkeys(texts) if text not in vectors]
    yield
    for start in range(0, len(missing), _TEXTS_KEPT_AT_ONCE):
        made: dict[str, Vector] = {}
        for text in missing[start : start + _TEXTS_KEPT_AT_ONCE]:
            # As precise as those from disk: a text has one vector, whoever made it.
            made[text] = model.vector(text).astype("float16").astype("float32")
            yield
            if wanted_by() is None:
                raise _UnwantedError
        _store().add(model, made)
        vectors |= made
    if missing:
        _store().tidy()
    return vectors


def _rows(vectors: Sequence[Vector]) -> Vector:
    import numpy as np

    return np.stack(vectors)


def _as_words(text: str) -> str:
    return _WORD_BORDER.sub(" ", text)


def _is_mostly_latin(text: str) -> bool:
    letters = [letter for letter in text if letter.isalpha()]
    latin = sum(letter <= _LAST_LATIN for letter in letters)
    return bool(letters) and latin * 2 > len(letters)
