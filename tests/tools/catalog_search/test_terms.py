"""Splitting text into terms, and synonyms of terms."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.tools.catalog_search import terms
from nacre.tools.catalog_search.terms import synonyms_of, terms_and_length_of, terms_of


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("weather", ["weath"]),
        ("web_search", ["web", "search"]),
        ("read-file.txt", ["read", "file", "txt"]),
        ("getUser", ["get", "user", "getus"]),
        ("GitHub", ["git", "hub", "github"]),
        ("HTTPServer", ["http", "serv", "httpserv"]),
        ("s3", ["s3"]),
        ("oauth2", ["oauth", "oauth2"]),
        ("APIs", ["api"]),
        ("searching searches", ["search", "search"]),
        ("translator translate translation", ["transl"] * 3),
        ("analysis analyze analyst", ["analy"] * 3),
        ("the user's file", ["user", "file"]),
        ("don\u2019t", ["don"]),
        ("what is the", []),
        ("Café", ["cafe"]),
        ("\uff57\uff45\uff42", ["web"]),
        ("搜索网页", ["搜索", "索网", "网页"]),
        ("网", ["网"]),
        ("github的问题", ["github", "的问", "问题"]),
        ("날씨 검색", ["날씨", "검색"]),
        ("Погода — прогноз", ["погода", "прогноз"]),
        ("हिन्दी खोज", ["हिन्दी", "खोज"]),
        ("Straße", ["strass"]),
        ("😀 go 😀", ["go"]),
        ("\ud800", []),
    ],
)
def test_a_text_becomes_terms(text: str, terms: list[str]) -> None:
    assert terms_of(text) == terms


@given(st.text(max_size=200))
def test_no_text_breaks_it_and_no_term_is_long(text: str) -> None:
    assert all(0 < len(term) <= 40 for term in terms_of(text))


def test_an_endless_word_is_one_short_term() -> None:
    assert terms_of("a" * 100_000) == ["a" * 40]


def test_threads_do_not_disturb_each_other() -> None:
    words = [f"{start}{middle}ations" for start in "bcdfgh" for middle in ("oper", "gener", "loc")]
    alone = [terms_of(f"{word}X") for word in words]
    found: list[list[list[str]]] = []

    def work(ending: str) -> None:
        found.append([terms_of(f"{word}{ending}") for word in words])

    threads = [threading.Thread(target=work, args=("X",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 4


@pytest.mark.parametrize(
    ("text", "length"),
    [("read_file", 2), ("readFile", 2), ("file", 1), ("s3", 1), ("the", 0), ("", 0)],
)
def test_a_whole_word_beside_its_parts_makes_a_text_no_longer(text: str, length: int) -> None:
    assert terms_and_length_of(text)[1] == length


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
        *terms._WHAT_TOOLS_DO.split("\n"),  # pyright: ignore[reportPrivateUsage]
        *terms._WHAT_TOOLS_HANDLE.split("\n"),  # pyright: ignore[reportPrivateUsage]
        *terms._SHORT_FORMS.split("\n"),  # pyright: ignore[reportPrivateUsage]
    )
    assert [group for group in groups if group and len(set(terms_of(group))) < 2] == []
