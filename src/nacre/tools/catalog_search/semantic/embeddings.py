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
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from nacre.tools.catalog_search.semantic.fusion import Likeness
from nacre.tools.catalog_search.semantic.text_models import installed_models, is_switched_off
from nacre.tools.catalog_search.semantic.vector_store import VectorStore

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from nacre.tools.catalog import CatalogEntry
    from nacre.tools.catalog_search.semantic.text_models import TextModel, Vector


logger = logging.getLogger(__name__)

# More would make the end of the process wait for a step, on a machine that is busy.
_NICENESS: Final = 5
# Many times what a step takes, however busy the machine.
_END_SECONDS: Final = 10.0


class BackgroundThread:
    """Work is an iterator; a step of each in turn, so that nobody waits for the longest."""

    def __init__(self, name: str, *, patience_seconds: float) -> None:
        """It starts after so long: a process that is over sooner has loaded nothing in vain."""
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
            # A forked child has the object and not the thread.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
                atexit.register(self.end)

    def start_now(self) -> None:
        """Somebody waits for the work."""
        self._hurry.set()

    def end(self) -> None:
        """Stop after the step that is being done; what is open is dropped."""
        self._ending.set()
        self._hurry.set()
        self._added.put(None)
        # Foreign code that runs while the interpreter is taken apart would abort the process.
        if self._thread is not None and self._thread.is_alive():
            # Who presses Ctrl-C again is no quicker out, and need not see where it was.
            with suppress(KeyboardInterrupt):
                self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        self._hurry.wait(self._patience_seconds)
        turns: deque[Iterator[object]] = deque()
        while not self._ending.is_set():
            while not turns or not self._added.empty():
                work = self._added.get()
                if work is None:
                    return
                turns.appendleft(work)
            work = turns.popleft()
            if _is_unfinished(work):
                turns.append(work)


def _is_unfinished(work: Iterator[object]) -> bool:
    try:
        next(work)
    except StopIteration:
        return False
    except Exception:
        # At the top of a thread: one piece of work must not end the others.
        logger.exception("work in the background failed")
        return False
    return True


def give_way() -> None:
    """From now on this thread goes after all others.

    Not while it loads libraries: the end of the process would have to wait for a slow load.
    """
    if sys.platform == "linux":
        # There, a thread has a priority of its own.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


# More would keep whoever searches waiting: each is read by itself.
_MAX_SENTENCES: Final = 8
# What to do and with what; one word is a greeting, a number or a short form with a full stop.
_MIN_WORDS: Final = 2
_END: Final = re.compile(r"(?<=[.!?;])[\"')\]]*\s+|\n+")


def sentences_of(query: str) -> list[str]:
    """At least one; a short one is part of the next. The last is all that is left."""
    found: list[str] = []
    open_words: list[str] = []
    for part in _END.split(query):
        open_words += part.split()
        if len(open_words) >= _MIN_WORDS and len(found) < _MAX_SENTENCES - 1:
            found.append(" ".join(open_words))
            open_words = []
    rest = " ".join(open_words)
    if len(open_words) >= _MIN_WORDS or not found:
        return [*found, rest]
    return [*found[:-1], f"{found[-1]} {rest}".rstrip()]


_MAX_DESCRIPTION_CHARACTERS: Final = 1_000
_MAX_NAME_CHARACTERS: Final = 200
_MAX_PARAMETERS: Final = 20
_MAX_QUERY_CHARACTERS: Final = 1_000
_TEXTS_KEPT_AT_ONCE: Final = 64
# `createIssue` and `create_issue` as words.
_WORD_BORDER: Final = re.compile(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Up to here the alphabets are Latin.
_LAST_LATIN: Final = "\u024f"


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
