"""Words and meanings in one order."""

from collections.abc import Sequence

import numpy as np
import pytest

from nacre.tools.catalog_search.documents import document_of
from nacre.tools.catalog_search.reranking import Candidate
from nacre.tools.catalog_search.semantic.fusion import Likeness, fuse


def by_words(position: int, score: float) -> Candidate:
    return Candidate(position=position, document=document_of({}), words=score)


def by_meaning(*cosines: float, weight: float = 1.0) -> Likeness:
    return by_sentences(cosines, weight=weight)


def by_sentences(*cosines: Sequence[float], weight: float = 1.0) -> Likeness:
    return Likeness(weight=weight, cosines=np.array(cosines, dtype=np.float32))


def positions(candidates: list[Candidate], *likenesses: Likeness, limit: int = 8) -> list[int]:
    return [each.position for each in fuse(candidates, likenesses, limit)]


def test_what_both_find_is_before_what_one_finds() -> None:
    candidates = [by_words(0, 10.0), by_words(2, 6.0)]
    assert positions(candidates, by_meaning(0.0, 0.6, 0.55)) == [2, 0, 1]


def test_words_that_found_nothing_leave_it_to_meaning() -> None:
    assert positions([], by_meaning(0.3, 0.5, 0.1)) == [1, 0]


def test_where_words_found_nothing_weak_likeness_is_chance() -> None:
    assert positions([], by_meaning(0.29, 0.31), by_meaning(0.9, 0.0, weight=0.6)) == [1]


def test_what_has_no_word_of_the_query_and_is_hardly_alike_is_not_shown() -> None:
    assert positions([by_words(1, 5.0)], by_meaning(0.19, 0.0, 0.21)) == [1, 2]


def test_a_best_likeness_that_is_small_counts_little() -> None:
    candidates = [by_words(0, 10.0), by_words(1, 9.0)]
    assert positions(candidates, by_meaning(0.0, 0.05)) == [0, 1]
    assert positions(candidates, by_meaning(0.0, 0.3)) == [1, 0]


def test_models_add_up_by_their_weights() -> None:
    one = by_meaning(0.8, 0.4)
    other = by_meaning(0.0, 0.8, weight=0.5)
    assert positions([], one, other) == [0, 1]
    assert [each.score for each in fuse([], [one, other], 8)] == pytest.approx([10.0, 7.5])


def test_what_one_sentence_asks_for_is_before_what_is_a_little_like_all() -> None:
    asked = by_sentences([0.8, 0.0, 0.45], [0.0, 0.6, 0.35])
    assert positions([], asked) == [0, 1, 2]


def test_of_what_one_sentence_asks_for_that_is_first_which_is_like_the_others_too() -> None:
    asked = by_sentences([0.6, 0.6, 0.6], [0.0, 0.3, 0.1])
    assert positions([], asked) == [1, 2, 0]


def test_a_query_of_one_sentence_said_twice_is_the_same_query() -> None:
    once = fuse([by_words(1, 8.0)], [by_meaning(0.7, 0.4)], 8)
    twice = fuse([by_words(1, 8.0)], [by_sentences([0.7, 0.4], [0.7, 0.4])], 8)
    assert [each.score for each in once] == pytest.approx([each.score for each in twice])


def test_what_is_alike_to_one_sentence_needs_no_word_of_the_query() -> None:
    asked = by_sentences([0.25, 0.0, 0.1], [0.0, 0.0, 0.1])
    assert positions([by_words(1, 5.0)], asked) == [1, 0]


def test_equal_ones_come_in_the_order_of_the_catalog() -> None:
    assert positions([], by_meaning(0.5, 0.5, 0.5, 0.5), limit=3) == [0, 1, 2]


def test_the_score_is_that_of_the_words_and_what_meaning_adds() -> None:
    first, second = fuse([by_words(1, 8.0)], [by_meaning(0.7, 0.7)], 8)
    assert (first.position, first.meaning, first.score) == (
        1,
        pytest.approx(8.0),
        pytest.approx(16.0),
    )
    assert (second.candidate, second.score) == (None, pytest.approx(8.0))
