"""What a term that no text has may stand for."""

import pytest

from nacre.tools.catalog_search.inverted_index import SortedTerms, Vocabulary

TERMS = {"weather", "forecast", "web", "page", "databas", "delet", "detect", "calendar", "搜索"}
VOCABULARY = Vocabulary([SortedTerms(TERMS)], TERMS.__contains__)


@pytest.mark.parametrize(
    ("term", "guesses"),
    [
        ("calend", {"calendar"}),
        ("wether", {"weather"}),
        ("weatherr", {"weather"}),
        ("weathre", {"weather"}),
        ("wexther", {"weather"}),
        ("forcast", {"forecast"}),
        ("webpage", {"web", "page"}),
        ("detet", {"detect", "delet"}),
        ("wea", set[str]()),
        ("yesterday", set[str]()),
        ("xeather", set[str]()),
        ("搜", set[str]()),
    ],
)
def test_a_guess_is_a_longer_word_a_corrected_one_or_two(term: str, guesses: set[str]) -> None:
    assert VOCABULARY.guesses(term).keys() == guesses


def test_a_guess_counts_less_than_the_word_itself_and_less_still_among_several() -> None:
    for term in ("calend", "wether", "webpage"):
        assert all(0 < weight < 1 for weight in VOCABULARY.guesses(term).values())
    assert sum(VOCABULARY.guesses("detet").values()) < 1


def test_guesses_are_few() -> None:
    terms = {f"term{number:03}" for number in range(500)}
    vocabulary = Vocabulary([SortedTerms(terms)], terms.__contains__)
    assert 0 < len(vocabulary.guesses("term")) < 10
    assert 0 < len(vocabulary.guesses("term00x")) < 10


def test_terms_of_several_layers_are_guessed_as_if_they_were_in_one() -> None:
    halves = [SortedTerms(list(TERMS)[:4]), SortedTerms(list(TERMS)[4:])]
    layered = Vocabulary(halves, TERMS.__contains__)
    for term in ("calend", "detet", "webpage", "wether"):
        assert layered.guesses(term) == VOCABULARY.guesses(term)


def test_a_term_that_is_no_more_in_use_is_not_guessed() -> None:
    vocabulary = Vocabulary([SortedTerms(TERMS)], (TERMS - {"calendar", "web"}).__contains__)
    assert vocabulary.guesses("calend") == {}
    assert vocabulary.guesses("webpage") == {}
