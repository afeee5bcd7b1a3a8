"""Words that mean about the same."""

from nacre.tools.catalog_search import terms as synonyms
from nacre.tools.catalog_search.terms import synonyms_of, terms_of


def test_words_of_a_group_stand_for_each_other() -> None:
    (film,), (movie,) = terms_of("films"), terms_of("movies")
    assert movie in synonyms_of(film)
    assert film in synonyms_of(movie)


def test_a_word_of_two_groups_means_the_words_of_both() -> None:
    (talk,) = terms_of("talk")
    assert {*terms_of("speak chat")} <= {*synonyms_of(talk)}


def test_no_word_is_its_own_synonym_and_others_have_none() -> None:
    (movie,) = terms_of("movie")
    assert movie not in synonyms_of(movie)
    assert synonyms_of("zebra") == ()


def test_every_group_has_at_least_two_terms() -> None:
    groups = (
        *synonyms._WHAT_TOOLS_DO.split("\n"),  # pyright: ignore[reportPrivateUsage]
        *synonyms._WHAT_TOOLS_HANDLE.split("\n"),  # pyright: ignore[reportPrivateUsage]
        *synonyms._SHORT_FORMS.split("\n"),  # pyright: ignore[reportPrivateUsage]
    )
    assert [group for group in groups if group and len(set(terms_of(group))) < 2] == []
