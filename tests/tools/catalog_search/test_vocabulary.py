"""What a term that no text has may stand for."""

import pytest

from nacre.tools.catalog_search.vocabulary import Vocabulary

VOCABULARY = Vocabulary(
    ["weather", "forecast", "web", "page", "databas", "delet", "detect", "calendar", "搜索"]
)


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


def test_a_guess_counts_less_than_the_word_itself() -> None:
    for term in ("calend", "wether", "webpage"):
        assert all(0 < weight < 1 for weight in VOCABULARY.guesses(term).values())


def test_guesses_are_few() -> None:
    vocabulary = Vocabulary(f"term{number:03}" for number in range(500))
    assert 0 < len(vocabulary.guesses("term")) < 10
    assert 0 < len(vocabulary.guesses("term00x")) < 10
