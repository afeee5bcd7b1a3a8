"""A text as ranking sees it."""

import pytest

from nacre.tools.catalog_search.documents import document_of, shares_by_field


def test_a_repeated_term_counts_more_but_never_without_end() -> None:
    once = document_of({"summary": "mail tree tree tree"}).weights["mail"]
    twice = document_of({"summary": "mail mail tree tree"}).weights["mail"]
    stuffed = document_of({"name": "mail", "summary": "mail " * 700}).weights["mail"]
    assert once < twice < stuffed < 3


def test_the_same_text_is_the_same_document_whatever_else_there_is() -> None:
    texts = {"name": "send_mail", "summary": "Send a message."}
    assert document_of({"name": "send_mail", "summary": "Send a message."}) == document_of(
        {"summary": texts["summary"], "name": texts["name"]}
    )


def test_prose_keeps_fields_apart_and_leaves_lists_out() -> None:
    document = document_of({"name": "send_mail", "summary": "Write texts", "parameter": "to cc"})
    assert list(document.prose) == ["send", "mail", None, None, "write", "text", None, None]
    assert "cc" in document.weights


def test_the_shares_of_fields_add_up_and_the_name_has_most() -> None:
    shares = shares_by_field({"name": "mail", "summary": "mail box", "owner": "x"}, "mail")
    assert shares.keys() == {"name", "summary"}
    assert shares["name"] > shares["summary"]
    assert sum(shares.values()) == pytest.approx(1)


def test_no_text_is_a_document_without_terms() -> None:
    assert document_of({}).weights == {}


def test_a_name_counts_the_same_however_its_words_are_joined() -> None:
    joined, apart = document_of({"name": "sendMail"}), document_of({"name": "send_mail"})
    assert joined.weights["mail"] == apart.weights["mail"]
