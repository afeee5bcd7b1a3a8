"""The text of a catalog entry, and the document that ranking makes of it."""

import pytest

from nacre.json_types import JsonObject
from nacre.tools.catalog import CatalogEntry, build_catalog
from nacre.tools.catalog_search.documents import document_of, shares_by_field, texts_of
from nacre.tools.definition import Tool, ToolCall


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


async def nothing(input: dict[str, object], call: ToolCall) -> object:
    return None


def entry(description: str = "", parameters: JsonObject | None = None) -> CatalogEntry:
    schema: JsonObject = {"type": "object"} if parameters is None else parameters
    tool = Tool(
        name="read",
        description=description,
        label="Reader",
        owner="files",
        parameters=schema,
        execute=nothing,
    )
    return build_catalog([tool]).entries[0]


@pytest.mark.parametrize(
    ("description", "summary", "rest"),
    [
        ("Read a file from the disk. Then stop.", "Read a file from the disk.", "Then stop."),
        ("Read e.g. a file from the disk", "Read e.g. a file from the disk", ""),
        ("First line of what it does\nsecond", "First line of what it does", "second"),
        ("搜索网页并返回结果列表" * 2 + "。其他", "搜索网页并返回结果列表" * 2, "。其他"),
        ("Hi. Read files", "Hi. Read files", ""),
        ("", "", ""),
    ],
)  # fmt: skip
def test_the_first_sentence_is_the_summary(description: str, summary: str, rest: str) -> None:
    texts = texts_of(entry(description))
    assert (texts["summary"], texts["description"].strip()) == (summary, rest)


def test_names_descriptions_and_choices_are_found_wherever_they_stand_in_the_schema() -> None:
    nested: JsonObject = {
        "type": "object",
        "properties": {
            "mode": {"enum": ["fast", 3, "safe"], "description": "How"},
            "items": {"type": "array", "items": {"properties": {"deep": {"description": "Far"}}}},
        },
    }
    texts = texts_of(entry(parameters=nested))
    assert texts["parameter"] == "mode items deep"
    assert texts["parameter description"] == "How Far"
    assert texts["choice"] == "fast safe"


def test_a_tool_names_itself_and_who_provides_it() -> None:
    texts = texts_of(entry())
    assert (texts["name"], texts["label"], texts["owner"]) == ("read", "Reader", "files")


def test_schemas_that_are_odd_say_nothing_and_break_nothing() -> None:
    odd: JsonObject = {"type": "object", "properties": [1], "enum": {"a": 1}, "description": 5}
    texts = texts_of(entry(parameters=odd))
    assert texts["parameter"] == texts["choice"] == texts["parameter description"] == ""
