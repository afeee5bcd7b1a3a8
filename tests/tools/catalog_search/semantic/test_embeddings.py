"""Embeddings of a catalog's texts, computed in a background thread."""

import gc
import threading
from collections.abc import Iterator, Sequence

import pytest

from nacre.tools.catalog_search.semantic import embeddings
from nacre.tools.catalog_search.semantic.embeddings import BackgroundThread, Meanings, sentences_of
from nacre.tools.catalog_search.semantic.text_models import Vector
from tests.tools.catalog_search.semantic.fake_model import FakeModel

SECONDS = 60


def meanings_of(*texts: str) -> Meanings:
    made = Meanings(dict(enumerate(texts)))
    assert made.wait(SECONDS)
    return made


def likest(made: Meanings, query: str) -> list[float]:
    (likeness,) = made.likenesses(query)
    (of_sentence,) = likeness.cosines.tolist()
    return of_sentence


def test_a_query_is_alike_to_what_means_the_same(fake_model: FakeModel) -> None:
    made = meanings_of("a calendar", "a polaroid", "a shell")
    assert made.is_known
    assert likest(made, "arrange a meeting") == [1.0, 0.0, 0.0]
    assert likest(made, "take a selfie") == [0.0, 1.0, 0.0]


def test_each_sentence_of_a_query_is_alike_to_its_own(fake_model: FakeModel) -> None:
    made = meanings_of("a calendar", "a polaroid", "a shell")
    (likeness,) = made.likenesses("Arrange a meeting. Then take a selfie!")
    assert likeness.cosines.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert likeness.to_nearest.tolist() == [1.0, 1.0, 0.0]


def test_before_they_are_made_there_are_none(
    fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_embed = threading.Event()
    vector = fake_model.vector

    def held(text: str) -> Vector:
        assert may_embed.wait(SECONDS)
        return vector(text)

    monkeypatch.setattr(fake_model, "vector", held)
    made = Meanings({0: "a calendar"})
    assert not made.is_known
    assert made.likenesses("meeting") == []
    assert not made.wait(0)
    may_embed.set()
    assert made.wait(SECONDS)
    assert made.is_known


def test_identifiers_are_read_as_words(fake_model: FakeModel) -> None:
    made = meanings_of("makeCalendar", "make_polaroid", "HTTPSelfie")
    assert fake_model.embedded == ["make Calendar", "make polaroid", "HTTP Selfie"]
    assert likest(made, "newPolaroid") == [0.0, 1.0, 1.0]


def test_an_unchanged_text_is_embedded_once_for_all_catalogs_and_processes(
    fake_model: FakeModel,
) -> None:
    first = meanings_of("a calendar", "a polaroid", "a polaroid")
    second = meanings_of("a polaroid", "a shell", "a calendar")
    assert fake_model.embedded == ["a calendar", "a polaroid", "a shell"]
    assert likest(first, "polaroid") == [0.0, 1.0, 1.0]
    assert likest(second, "polaroid") == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("query", ["会議を予定する", "встреча calendar в календаре", "123 !?", ""])
def test_a_query_in_letters_that_the_models_do_not_read_is_left_to_words(
    query: str, fake_model: FakeModel
) -> None:
    assert meanings_of("a calendar").likenesses(query) == []


def test_accents_are_latin_letters(fake_model: FakeModel) -> None:
    assert likest(meanings_of("a calendar"), "où est le calendar été") == [1.0]


def test_a_long_query_is_cut(fake_model: FakeModel) -> None:
    meanings_of("a calendar").likenesses("word " * 1_000_000)
    assert len(fake_model.embedded[-1]) == len("word " * 200) - 1


def test_a_model_that_read_half_of_a_query_counts_half(
    fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = fake_model.query_vectors

    def half(sentences: Sequence[str]) -> tuple[Vector, float]:
        return read(sentences)[0], 0.5

    monkeypatch.setattr(fake_model, "query_vectors", half)
    (likeness,) = meanings_of("a calendar").likenesses("calendar")
    assert (likeness.weight, likeness.cosines.tolist()) == (0.5, [[1.0]])


def test_without_a_model_the_work_is_over_and_nothing_is_known(
    fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "_models", list)
    assert not meanings_of("a calendar").is_known


def test_switched_off_nothing_is_started(
    fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_SEMANTIC_SEARCH", "off")
    assert not meanings_of("a calendar").is_known
    assert "test-semantic-search" not in [thread.name for thread in threading.enumerate()]


def test_no_texts_need_no_work(fake_model: FakeModel) -> None:
    assert Meanings({}).wait(0)


def test_a_model_that_fails_leaves_search_to_words(
    fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(text: str) -> Vector:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(fake_model, "vector", failing)
    assert not meanings_of("a calendar").is_known
    assert "search does not use fake: it failed" in caplog.text


def test_a_model_whose_file_is_damaged_later_leaves_search_to_words(
    fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = meanings_of("a calendar")

    def fail(_sentences: Sequence[str]) -> None:
        raise ValueError("cannot reshape array of size 3 into shape (1,384)")

    monkeypatch.setattr(fake_model, "query_vectors", fail)
    assert made.likenesses("meeting") == []
    assert not made.is_known
    assert "are damaged: cannot reshape" in caplog.text


def test_work_for_a_catalog_that_was_dropped_ends_early(
    fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_started, may_go_on = threading.Event(), threading.Event()
    vector = fake_model.vector

    def held(text: str) -> Vector:
        is_started.set()
        assert may_go_on.wait(SECONDS)
        return vector(text)

    monkeypatch.setattr(fake_model, "vector", held)
    dropped = Meanings({number: f"text {number}" for number in range(1_000)})
    assert is_started.wait(SECONDS)
    del dropped
    gc.collect()
    may_go_on.set()
    meanings_of("a calendar")
    meanings_of("a polaroid")
    assert len(fake_model.embedded) < 100


@pytest.fixture
def background() -> Iterator[BackgroundThread]:
    thread = BackgroundThread("test", patience_seconds=0)
    yield thread
    thread.end()


def test_work_takes_turns_so_that_the_short_does_not_wait_for_the_long(
    background: BackgroundThread,
) -> None:
    may_start, is_over = threading.Event(), threading.Event()
    steps: list[str] = []

    def work(name: str, count: int) -> Iterator[None]:
        may_start.wait(SECONDS)
        for _ in range(count):
            steps.append(name)
            yield
        if name == "long":
            is_over.set()

    background.add(work("long", 3))
    background.add(work("short", 1))
    may_start.set()
    assert is_over.wait(SECONDS)
    assert steps == ["long", "short", "long", "long"]


def test_work_that_fails_is_reported_and_the_rest_goes_on(
    background: BackgroundThread, caplog: pytest.LogCaptureFixture
) -> None:
    is_done = threading.Event()

    def failing() -> Iterator[None]:
        yield
        raise ValueError("a broken model")

    def other() -> Iterator[None]:
        yield
        yield
        is_done.set()

    background.add(failing())
    background.add(other())
    assert is_done.wait(SECONDS)
    assert [record.getMessage() for record in caplog.records] == ["background work failed"]


def test_memory_is_returned_once_when_all_work_is_done(
    background: BackgroundThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    is_returned = threading.Event()
    may_start = threading.Event()

    def return_free_memory() -> None:
        steps.append("memory")
        is_returned.set()

    def work(count: int) -> Iterator[None]:
        may_start.wait(SECONDS)
        for _ in range(count):
            steps.append("work")
            yield

    monkeypatch.setattr(embeddings, "_return_free_memory", return_free_memory)
    background.add(work(3))
    background.add(work(1))
    may_start.set()
    assert is_returned.wait(SECONDS)
    assert steps == ["work"] * 4 + ["memory"]
    is_returned.clear()
    background.add(work(1))
    assert is_returned.wait(SECONDS)
    assert steps == ["work"] * 4 + ["memory", "work", "memory"]


def test_an_end_drops_what_is_open_after_its_step() -> None:
    thread = BackgroundThread("test", patience_seconds=0)
    is_started, may_go_on = threading.Event(), threading.Event()

    def endless() -> Iterator[None]:
        while True:
            is_started.set()
            may_go_on.wait(SECONDS)
            yield

    thread.add(endless())
    assert is_started.wait(SECONDS)
    may_go_on.set()
    thread.end()
    assert "test" not in [each.name for each in threading.enumerate()]


def test_work_runs_in_a_thread_that_does_not_keep_the_process(background: BackgroundThread) -> None:
    seen: list[threading.Thread] = []
    is_done = threading.Event()

    def work() -> Iterator[None]:
        seen.append(threading.current_thread())
        is_done.set()
        yield

    background.add(work())
    assert is_done.wait(SECONDS)
    assert seen[0].daemon


def test_an_end_that_comes_soon_finds_nothing_started() -> None:
    thread = BackgroundThread("test", patience_seconds=60)
    started: list[str] = []

    def work() -> Iterator[None]:
        started.append("work")
        yield

    thread.add(work())
    thread.end()
    assert started == []
    assert "test" not in [each.name for each in threading.enumerate()]


def test_who_waits_for_the_work_has_it_started_at_once() -> None:
    thread = BackgroundThread("test", patience_seconds=60)
    is_done = threading.Event()

    def work() -> Iterator[None]:
        is_done.set()
        yield

    thread.add(work())
    thread.start_now()
    assert is_done.wait(SECONDS)
    thread.end()


@pytest.mark.parametrize(
    ("query", "sentences"),
    [
        ("find a flight", ["find a flight"]),
        ("Find a flight. Then book it!", ["Find a flight.", "Then book it!"]),
        ("is it cold?\nsend a mail", ["is it cold?", "send a mail"]),
        ("list all files; count the lines", ["list all files;", "count the lines"]),
        ('Say "it is done." Then stop all.', ['Say "it is done.', "Then stop all."]),
        ("a rate of 0.985 is low", ["a rate of 0.985 is low"]),
        ("  two   spaces here  ", ["two spaces here"]),
    ],
)
def test_a_query_is_cut_where_sentences_end(query: str, sentences: list[str]) -> None:
    assert sentences_of(query) == sentences


def test_a_short_sentence_is_part_of_the_next() -> None:
    assert sentences_of("Hello. Find a flight. 2. Book it.") == [
        "Hello. Find a flight.",
        "2. Book it.",
    ]


def test_a_short_last_sentence_is_part_of_the_one_before() -> None:
    assert sentences_of("Find a flight. Thanks!") == ["Find a flight. Thanks!"]


@pytest.mark.parametrize("query", ["", " ", "hi", ". . .", "\n\n"])
def test_there_is_always_one(query: str) -> None:
    assert len(sentences_of(query)) == 1


def test_of_very_many_the_last_has_all_that_is_left() -> None:
    sentences = sentences_of("one two three. " * 1_000)
    assert len(sentences) == 8
    assert sentences[0] == "one two three."
    assert len(" ".join(sentences)) == len("one two three. " * 1_000) - 1


def test_letters_without_an_end_are_cut_quickly() -> None:
    assert len(sentences_of(".\"')]" * 100_000)) == 1
