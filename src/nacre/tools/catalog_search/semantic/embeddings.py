"""Embeds the texts of a catalog in a background thread."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import re
import sys
import threading
import weakref
from collections import deque
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final

from nacre.lazy_dataclasses import dataclass
from nacre.tools.catalog_search.semantic.fusion import Likeness
from nacre.tools.catalog_search.semantic.text_models import installed_models, is_switched_off
from nacre.tools.catalog_search.semantic.vector_store import VectorStore

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from nacre.tools.catalog import CatalogEntry
    from nacre.tools.catalog_search.semantic.text_models import TextModel, Vector


logger = logging.getLogger(__name__)

# With a higher value, the exit of the process could wait long for a step on a busy machine.
_NICENESS: Final = 5
# Far longer than a step takes, even on a busy machine.
_END_SECONDS: Final = 10.0


class BackgroundThread:
    """Runs work in the background: iterators, one step of each in turn."""

    def __init__(self, name: str, *, patience_seconds: float) -> None:
        """The thread starts its work after a delay, so that a short process loads nothing."""
        self._name = name
        self._patience_seconds = patience_seconds
        self._added: queue.SimpleQueue[Iterator[object] | None] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._hurry = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, work: Iterator[object]) -> None:
        self._added.put(work)
        with self._guard:
            # A forked child has the object but not the thread.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
                atexit.register(self.end)

    def start_now(self) -> None:
        """Start without the delay."""
        self._hurry.set()

    def end(self) -> None:
        """Stop after the current step; drop the remaining work."""
        self._ending.set()
        self._hurry.set()
        self._added.put(None)
        # Native code that runs during the shutdown of the interpreter would abort the process.
        if self._thread is not None and self._thread.is_alive():
            # A second Ctrl-C must not print a traceback here.
            with suppress(KeyboardInterrupt):
                self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        self._hurry.wait(self._patience_seconds)
        turns: deque[Iterator[object]] = deque()
        has_worked = False
        while not self._ending.is_set():
            if has_worked and not turns and self._added.empty():
                _return_free_memory()
                has_worked = False
            while not turns or not self._added.empty():
                work = self._added.get()
                if work is None:
                    return
                turns.appendleft(work)
            work = turns.popleft()
            has_worked = True
            if _is_unfinished(work):
                turns.append(work)


def _return_free_memory() -> None:
    """Return free pages inside the heap to the system.

    An index and the models leave many: glibc keeps them. Blocks for milliseconds, without the
    lock of the interpreter.
    """
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None)
        # Not with other allocators.
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)


def _is_unfinished(work: Iterator[object]) -> bool:
    try:
        next(work)
    except StopIteration:
        return False
    except Exception:
        # A failure of one work must not stop the others.
        logger.exception("background work failed")
        return False
    return True


def give_way() -> None:
    """Lower the priority of this thread.

    Call it after libraries are loaded, because the exit of the process waits for a load.
    """
    if sys.platform == "linux":
        # On Linux, each thread has its own priority.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


# A limit, because each sentence is embedded separately.
_MAX_SENTENCES: Final = 8
# A single word is a greeting, a number or an abbreviation with a full stop.
_MIN_WORDS: Final = 2
_END: Final = re.compile(r"(?<=[.!?;])[\"')\]]*\s+|\n+")


def sentences_of(query: str) -> list[str]:
    """Split a query into sentences, at least one.

    Short sentences are merged with the next one. The last sentence has all remaining text.
    """
    sentences: list[str] = []
    open_words: list[str] = []
    for part in _END.split(query):
        open_words += part.split()
        if len(open_words) >= _MIN_WORDS and len(sentences) < _MAX_SENTENCES - 1:
            sentences.append(" ".join(open_words))
            open_words = []
    rest = " ".join(open_words)
    if len(open_words) >= _MIN_WORDS or not sentences:
        return [*sentences, rest]
    return [*sentences[:-1], f"{sentences[-1]} {rest}".rstrip()]


_MAX_DESCRIPTION_CHARACTERS: Final = 1_000
_MAX_NAME_CHARACTERS: Final = 200
_MAX_PARAMETERS: Final = 20
_MAX_QUERY_CHARACTERS: Final = 1_000
_TEXTS_PER_WRITE: Final = 64
# Splits `createIssue` and `create_issue` into words.
_WORD_BORDER: Final = re.compile(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# The end of the Latin alphabets in Unicode.
_LAST_LATIN: Final = "\u024f"


_thread: Final = BackgroundThread("nacre-semantic-search", patience_seconds=0.3)


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedded:
    """The vectors of all texts by one model, one row per text."""

    model: TextModel
    rows: Vector

    def likeness(self, sentences: Sequence[str]) -> Likeness:
        """The similarity to a query; if the model read only a part of it, the weight is lower."""
        vectors, share = self.model.query_vectors(sentences)
        return Likeness(weight=self.model.weight * share, cosines=vectors @ self.rows.T)


class Meanings:
    """The embeddings of all texts by each installed model, computed in the background."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        """`texts` are by position, without gaps."""
        self._embedded: tuple[Embedded, ...] = ()
        self._settled = threading.Event()
        if not texts or is_switched_off():
            self._settled.set()
        else:
            # A weak reference, so that work for a dropped catalog stops.
            ordered = [texts[position] for position in range(len(texts))]
            _thread.add(_compute(weakref.ref(self), ordered))

    @property
    def embedded(self) -> tuple[Embedded, ...]:
        """The embeddings by each model, best model first; empty until they are computed."""
        return self._embedded

    @property
    def is_known(self) -> bool:
        """Whether there are embeddings to compare a query with."""
        return bool(self._embedded)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the embeddings are computed; return False after the timeout."""
        _thread.start_now()
        return self._settled.wait(timeout_seconds)

    def likenesses(self, query: str) -> list[Likeness]:
        """The similarities of a query to all texts, by model. Takes a few milliseconds."""
        words = _split_words(query[:_MAX_QUERY_CHARACTERS])
        # The models support Latin scripts only.
        if not self._embedded or not _is_mostly_latin(words):
            return []
        sentences = sentences_of(words)
        try:
            return [it.likeness(sentences) for it in self._embedded]
        except (OSError, ValueError) as error:
            # Searches go on by words.
            logger.warning("the files of the models for search by meaning are damaged: %s", error)
            self._embedded = ()
            return []

    def settle(self, embedded: Sequence[tuple[TextModel, Vector]]) -> None:
        self._embedded = tuple(Embedded(model=model, rows=rows) for model, rows in embedded)
        self._settled.set()


def meaning_text(entry: CatalogEntry) -> str:
    """The text of an entry that is embedded; cheap, because every entry needs one."""
    properties = entry.tool.parameters.get("properties")
    names = list(properties)[:_MAX_PARAMETERS] if isinstance(properties, dict) else []
    takes = ", ".join(name[:_MAX_NAME_CHARACTERS] for name in names)
    owner = (entry.source_name or "")[:_MAX_NAME_CHARACTERS]
    name = entry.name[:_MAX_NAME_CHARACTERS]
    return f"{owner} {name}: {entry.description[:_MAX_DESCRIPTION_CHARACTERS]} ({takes})".lstrip()


@cache
def _models() -> list[TextModel]:
    """The installed models, loaded by the background thread at the first use."""
    models = installed_models()
    give_way()
    return models


@cache
def _store() -> VectorStore:
    return VectorStore()


def _compute(meanings: weakref.ref[Meanings], texts: Sequence[str]) -> Generator[None]:
    embedded: list[tuple[TextModel, Vector]] = []
    try:
        yield
        split_texts = [_split_words(text) for text in texts]
        for model in _models():
            try:
                vectors = yield from _vectors(model, split_texts, meanings)
                embedded.append((model, _stack([vectors[text] for text in split_texts])))
            except _UnwantedError:
                return
            except Exception:
                # The other models and the word search still work.
                logger.warning("search does not use %s: it failed", model.name, exc_info=True)
    finally:
        if (still_wanted := meanings()) is not None:
            still_wanted.settle(embedded)


class _UnwantedError(Exception):
    """The vectors are no longer needed."""


def _vectors(
    model: TextModel, texts: Sequence[str], wanted_by: weakref.ref[Meanings]
) -> Generator[None, None, Mapping[str, Vector]]:
    vectors = _store().get(model, texts)
    missing = [text for text in dict.fromkeys(texts) if text not in vectors]
    yield
    for start in range(0, len(missing), _TEXTS_PER_WRITE):
        made: dict[str, Vector] = {}
        for text in missing[start : start + _TEXTS_PER_WRITE]:
            # The precision of stored vectors, so that a text always has the same vector.
            made[text] = model.vector(text).astype("float16").astype("float32")
            yield
            if wanted_by() is None:
                raise _UnwantedError
        _store().add(model, made)
        vectors |= made
    if missing:
        _store().tidy()
    return vectors


def _stack(vectors: Sequence[Vector]) -> Vector:
    import numpy as np

    return np.stack(vectors)


def _split_words(text: str) -> str:
    return _WORD_BORDER.sub(" ", text)


def _is_mostly_latin(text: str) -> bool:
    letters = [letter for letter in text if letter.isalpha()]
    latin = sum(letter <= _LAST_LATIN for letter in letters)
    return bool(letters) and latin * 2 > len(letters)
