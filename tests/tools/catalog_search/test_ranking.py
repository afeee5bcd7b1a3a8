"""Ranking by terms alone."""

import pytest

from nacre.tools.catalog_search.documents import Document, document_of
from nacre.tools.catalog_search.inverted_index import Layer
from nacre.tools.catalog_search.ranking import GONE, Ranking
from nacre.tools.catalog_search.terms import terms_of


def document(name: str, description: str = "") -> Document:
    return document_of({"name": name, "summary": description})


def ranking(*documents: tuple[str, str]) -> Ranking:
    layer = Layer([document(*each) for each in documents])
    return Ranking((layer, range(len(documents))))


def best(ranked: Ranking, query: str, limit: int) -> list[int]:
    return [candidate.position for candidate in ranked.best(terms_of(query), limit)]


def test_a_term_in_a_heavier_field_counts_more() -> None:
    assert best(ranking(("x", "mail"), ("mail", "x")), "mail", 2) == [1, 0]


def test_a_rare_term_counts_more_than_a_common_one() -> None:
    documents = ranking(("", "get a1"), ("", "get b1"), ("", "get c1"), ("", "zebra d1"))
    assert best(documents, "get zebra", 1) == [3]


def test_a_short_text_counts_more_than_a_long_one_with_the_same_term() -> None:
    assert best(ranking(("", "mail " + "tree " * 30), ("", "mail")), "mail", 2) == [1, 0]


def test_who_has_more_of_the_terms_comes_first() -> None:
    documents = ranking(("", "mail tree"), ("", "mail send"), ("", "send tree"))
    assert best(documents, "send mail", 3)[0] == 1


def test_equal_scores_keep_the_order_of_the_documents() -> None:
    documents = ranking(*[("", "alike")] * 60)
    assert best(documents, "alike", 50) == list(range(50))


def test_a_smaller_limit_only_shortens_the_list() -> None:
    words = ("mail", "send", "read", "list", "file")
    texts = [(words[n % 5], f"{words[n % 3]} {words[n % 4]} {n}") for n in range(80)]
    documents = ranking(*texts)
    whole = best(documents, "send mail read file", 70)
    for limit in (1, 5, 12, 13, 24, 25, 40):
        assert best(documents, "send mail read file", limit) == whole[:limit]


def test_documents_without_any_of_the_terms_are_not_found() -> None:
    assert best(ranking(("", "mail"), ("", "web")), "web nowhere", 9) == [1]


def test_a_repeated_term_of_a_query_counts_more() -> None:
    documents = ranking(("", "mail"), ("", "send"))
    assert best(documents, "mail send send", 1) == [1]
    assert best(documents, "mail mail send", 1) == [0]


def test_a_term_of_nearly_all_documents_does_not_hide_those_with_the_others() -> None:
    documents = ranking(*[("", "account")] * 900, ("", "zebra"), ("", "account zebra"))
    assert best(documents, "account zebra", 9) == [901, 900]
    assert best(documents, "account", 3) == [0, 1, 2]


def test_an_unknown_term_is_guessed() -> None:
    assert best(ranking(("", "weather"), ("", "mail")), "wether", 2) == [0]


def test_nothing_is_found_among_nothing() -> None:
    assert best(ranking(), "mail", 3) == []
    assert best(ranking(("", "")), "mail", 3) == []
    assert best(ranking(("", "mail")), "", 3) == []


@pytest.mark.parametrize("query", ["send mail", "read file", "sned", "delete the zebra", "li"])
def test_layers_rank_as_one_would(query: str) -> None:
    words = ("mail", "send", "read", "list", "file", "zebra")
    old = [document(words[n % 5], f"{words[n % 3]} {words[n % 4]} gone{n}") for n in range(40)]
    new = [document(words[n % 6], f"delete {words[n % 4]} new{n}") for n in range(10)]
    # Every third is gone, and the new ones stand before those that are left.
    kept = [n for n in range(40) if n % 3]
    positions = [10 + kept.index(n) if n in kept else GONE for n in range(40)]
    layered = Ranking((Layer(old), positions), (Layer(new), range(10)))
    fresh = [*new, *(old[n] for n in kept)]
    whole = Ranking((Layer(fresh), range(len(fresh))))

    def scored(ranked: Ranking) -> list[tuple[int, float]]:
        return [(it.position, it.score) for it in ranked.best(terms_of(query), 30)]

    assert scored(layered) == scored(whole)


def test_a_term_that_only_gone_documents_have_is_unknown() -> None:
    layer = Layer([document("weather"), document("mail")])
    ranked = Ranking((layer, [GONE, 0]))
    assert best(ranked, "weather", 3) == []
    assert best(ranked, "weathe", 3) == []


def test_a_synonym_finds_what_the_word_itself_does_not() -> None:
    assert best(ranking(("", "show the movie"), ("", "zebra")), "film", 2) == [0]


def test_a_synonym_counts_less_than_the_word_itself() -> None:
    documents = ranking(("", "the movie"), ("", "the film"), ("", "zebra"))
    assert best(documents, "film", 2) == [1, 0]


def test_a_query_of_words_that_most_documents_have_still_finds_them() -> None:
    documents = ranking(*[("", "film")] * 600, ("", "movie zebra"))
    assert best(documents, "film", 2) == [0, 1]
