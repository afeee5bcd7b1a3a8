"""What a catalog entry says about itself."""

import pytest

from nacre.json_types import JsonObject
from nacre.tools.catalog import CatalogEntry, build_catalog
from nacre.tools.catalog_search.documents import texts_of
from nacre.tools.definition import Tool, ToolCall


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
