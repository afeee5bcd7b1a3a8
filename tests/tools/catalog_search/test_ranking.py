"""Ranking by terms alone."""

from nacre.tools.catalog_search.ranking import Field, Ranking

TITLE = Field(weight=3.0, length_penalty=0.3)
BODY = Field(weight=1.0, length_penalty=0.6)


def ranking(*documents: tuple[str, str]) -> Ranking:
    terms = [[title.split(), body.split()] for title, body in documents]
    return Ranking(terms, fields=(TITLE, BODY))


def test_a_term_in_a_heavier_field_counts_more() -> None:
    assert ranking(("x", "mail"), ("mail", "x")).best(["mail"], 2) == [1, 0]


def test_a_rare_term_counts_more_than_a_common_one() -> None:
    documents = ranking(("", "get a"), ("", "get b"), ("", "get c"), ("", "zebra d"))
    assert documents.best(["get", "zebra"], 1) == [3]


def test_a_short_text_counts_more_than_a_long_one_with_the_same_term() -> None:
    assert ranking(("", "mail " + "x " * 30), ("", "mail")).best(["mail"], 2) == [1, 0]


def test_who_has_more_of_the_terms_comes_first() -> None:
    documents = ranking(("", "mail a"), ("", "mail send"), ("", "send b"))
    assert documents.best(["send", "mail"], 3)[0] == 1


def test_equal_scores_keep_the_order_of_the_documents() -> None:
    documents = ranking(*[("", "same")] * 20)
    assert documents.best(["same"], 5) == [0, 1, 2, 3, 4]


def test_documents_without_any_of_the_terms_are_not_found() -> None:
    assert ranking(("", "mail"), ("", "web")).best(["web", "nowhere"], 9) == [1]


def test_a_repeated_term_of_a_query_counts_once() -> None:
    documents = ranking(("", "mail mail"), ("", "send"), ("", "send"), ("", "mail"))
    assert documents.best(["mail"] * 5 + ["send"], 4) == documents.best(["send", "mail"], 4)


def test_an_unknown_term_is_guessed() -> None:
    assert ranking(("", "weather"), ("", "mail")).best(["wether"], 2) == [0]


def test_nothing_is_found_among_nothing() -> None:
    assert Ranking([], fields=(TITLE, BODY)).best(["mail"], 3) == []
    assert ranking(("", "")).best(["mail"], 3) == []
    assert ranking(("", "mail")).best([], 3) == []
