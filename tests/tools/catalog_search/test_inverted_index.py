"""The inverted index finds the best documents, and guesses terms that no document has."""

from random import Random

import pytest

from nacre.tools.catalog_search.documents import Document
from nacre.tools.catalog_search.inverted_index import (
    GONE,
    Layer,
    PackedDocuments,
    SortedTerms,
    Vocabulary,
    scores_of_best,
)

TERMS = [f"t{number}" for number in range(12)]


def layer_of(random: Random, size: int) -> Layer:
    """The first terms are rare, the last are nearly everywhere."""
    documents = [
        Document(
            weights={
                term: 0.5 + 2 * random.random()
                for place, term in enumerate(TERMS)
                if random.random() < (place + 1) / 14
            },
            prose=(),
        )
        for _ in range(size)
    ]
    return Layer(documents)


def plain_sums(layer: Layer, weights: dict[str, float], common: set[str]) -> dict[int, float]:
    scores: dict[int, float] = {}
    for term, weight in weights.items():
        for slot, document in enumerate(layer.documents):
            if term in document.weights and (term not in common or slot in scores):
                scores[slot] = scores.get(slot, 0.0) + document.weights[term] * weight
    return scores


def first(scores: dict[int, float], count: int) -> list[tuple[int, float]]:
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]


@pytest.mark.parametrize("seed", range(12))
def test_the_best_have_the_sums_of_all_terms(seed: int) -> None:
    random = Random(seed)
    layer = layer_of(random, 700)
    weights = {term: random.random() * 5 / (place + 1) for place, term in enumerate(TERMS)}
    heaviest_first = dict(sorted(weights.items(), key=lambda item: -item[1]))
    common = {"t10", "t11"}
    sums = plain_sums(layer, heaviest_first, common)
    for count in (1, 8, 24, 600):
        scores = scores_of_best(layer, heaviest_first, common, count, positions=None)
        assert first(scores, count) == first(sums, count)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_gone_takes_nobodys_place(seed: int) -> None:
    random = Random(seed)
    layer = layer_of(random, 700)
    weights = {term: 5.0 / (place + 1) for place, term in enumerate(TERMS)}
    sums = plain_sums(layer, weights, set())
    # The best of all are those that are gone.
    gone = {slot for slot, _ in first(sums, 300)}
    positions = [GONE if slot in gone else slot for slot in range(700)]
    scores = scores_of_best(layer, weights, set(), 24, positions=positions)
    left = {slot: score for slot, score in sums.items() if slot not in gone}
    assert first(scores, 24) == first(left, 24)


def test_long_lists_are_not_read_for_documents_without_hope() -> None:
    layer = layer_of(Random(1), 5_000)
    weights = {term: 100.0 / (place + 1) ** 3 for place, term in enumerate(TERMS)}
    assert len(scores_of_best(layer, weights, set(), 24, positions=None)) < 1_000


WORDS = {
    "weather",
    "forecast",
    "web",
    "page",
    "databas",
    "delet",
    "detect",
    "calendar",
    "搜索",
}
VOCABULARY = Vocabulary([SortedTerms(WORDS)], WORDS.__contains__)


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
    halves = [SortedTerms(list(WORDS)[:4]), SortedTerms(list(WORDS)[4:])]
    layered = Vocabulary(halves, WORDS.__contains__)
    for term in ("calend", "detet", "webpage", "wether"):
        assert layered.guesses(term) == VOCABULARY.guesses(term)


def test_a_term_that_is_no_more_in_use_is_not_guessed() -> None:
    vocabulary = Vocabulary([SortedTerms(WORDS)], (WORDS - {"calendar", "web"}).__contains__)
    assert vocabulary.guesses("calend") == {}
    assert vocabulary.guesses("webpage") == {}


@pytest.mark.parametrize("seed", range(6))
def test_packed_documents_count_the_pairs_of_their_prose_as_others_do(seed: int) -> None:
    random = Random(seed)
    # More than 256 terms, so that their numbers have several bytes that are not 0.
    terms = [f"t{number}" for number in range(70_000 if seed == 0 else 300)]
    few = [*terms[:3], *terms[255:258], terms[-1]]
    documents = PackedDocuments()
    documents.add(Document(weights=dict.fromkeys(terms, 1.0), prose=()))
    pairs = [(one, other) for one in few for other in few if one != other]
    for _ in range(30):
        prose = tuple(random.choice((*few, None)) for _ in range(40))
        plain = Document(weights=dict.fromkeys(few, 1.0), prose=prose)
        documents.add(plain)
        packed = documents[len(documents) - 1]
        assert packed.prose == prose
        assert list(packed.count_pairs(pairs).items()) == list(plain.count_pairs(pairs).items())
        assert sum(packed.count_pairs(pairs).values()) > 0


def test_a_document_that_was_read_is_not_read_again() -> None:
    layer = layer_of(Random(1), 10)

    assert layer.documents[3] is layer.documents[3]
    assert layer.documents[3].weights == layer.documents[2:4][1].weights
