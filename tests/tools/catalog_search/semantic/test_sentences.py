"""Where one thing that is asked for ends and the next begins."""

import pytest

from nacre.tools.catalog_search.semantic.embeddings import sentences_of


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
