"""Word pairs, coverage and shared terms change the order of documents."""

from nacre.tools.catalog_search.documents import document_of
from nacre.tools.catalog_search.inverted_index import Layer
from nacre.tools.catalog_search.ranking import Ranking
from nacre.tools.catalog_search.terms import terms_of


def order(query: str, *summaries: str, limit: int = 9) -> list[int]:
    layer = Layer([document_of({"summary": summary}) for summary in summaries])
    found = Ranking((layer, range(len(summaries)))).best(terms_of(query), limit)
    return [candidate.position for candidate in found]


def test_words_side_by_side_as_in_the_query_come_before_words_apart() -> None:
    assert order("stock price", "price tree stock", "tree stock price") == [1, 0]


def test_repeating_a_pair_of_words_soon_helps_no_more() -> None:
    layer = Layer([document_of({"summary": "stock price " * times}) for times in (2, 40)])
    few, many = sorted(
        Ranking((layer, range(2))).best(terms_of("stock price"), 2), key=lambda it: it.position
    )
    assert few.pairs == many.pairs > 0


def test_a_document_with_all_words_of_the_query_gains_a_larger_share_of_its_score() -> None:
    layer = Layer([document_of({"summary": text}) for text in ("send tree mail", "send tree")])
    both, one = Ranking((layer, range(2))).best(terms_of("send mail"), 2)
    assert both.coverage / both.words > one.coverage / one.words > 0


def test_what_the_best_have_in_common_lifts_others_that_have_it() -> None:
    weather = ["weather forecast meteorology", "weather forecast meteorology city"]
    rest = ["today news headline", "today meteorology headline", "news tree", "headline tree"]
    found = order("weather today", *weather, *rest)
    # The two are alike but for a word that the query does not have.
    assert found.index(3) < found.index(2)


def test_a_query_for_two_things_gets_both_among_the_first() -> None:
    stocks = [f"stock quote market{n}" for n in range(6)]
    forecasts = [f"weather forecast city{n} tree river" for n in range(6)]
    first = order("stock quote, weather forecast", *stocks, *forecasts, limit=4)
    assert any(position < 6 for position in first)
    assert any(position >= 6 for position in first)


def test_the_best_by_the_words_of_the_query_stays_first() -> None:
    layer = Layer(
        [document_of({"summary": text}) for text in ("mail a1 b1 c1", "mail a1 b1", "mail send")]
    )
    found = Ranking((layer, range(3))).best(terms_of("send mail"), 3)
    assert found[0].position == 2
