"""What is printed of a value that a tool gave."""

import pytest

from nacre.cli.tools_calls import write_outcome
from nacre.json_types import JsonValue
from nacre.tools import DirectResult


def words(text: str) -> list[JsonValue]:
    return [{"type": "text", "text": text}]


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ({"content": words("hi")}, "hi\n"),
        ({"content": words("hi\n"), "structuredContent": {"result": "hi\n"}}, "hi\n"),
        ({"content": words("[1]"), "structuredContent": {"items": [1]}}, "[1]\n"),
        ({"content": words('{"a":1}'), "structuredContent": {"a": 1}}, '{\n  "a": 1\n}\n'),
        ({"content": words("hi"), "structuredContent": {"a": None}}, 'hi\n{\n  "a": null\n}\n'),
        ({"content": [], "structuredContent": {"a": 1}}, '{\n  "a": 1\n}\n'),
        ({"content": []}, ""),
        (
            {"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]},
            "[image image/png, 3 bytes]\n",
        ),
        ({"content": "plain"}, '{\n  "content": "plain"\n}\n'),
        ({"content": [1]}, '{\n  "content": [\n    1\n  ]\n}\n'),
        ({"content": [], "title": 1}, '{\n  "content": [],\n  "title": 1\n}\n'),
        ([1], "[\n  1\n]\n"),
        ("text", "text\n"),
        (False, "false\n"),
        (None, ""),
    ],
)
def test_value_for_a_person(
    capsys: pytest.CaptureFixture[str], value: JsonValue, printed: str
) -> None:
    status = write_outcome(DirectResult(value=value), is_json=False)

    assert (status, capsys.readouterr().out) == (0, printed)


def test_failure_says_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    status = write_outcome(DirectResult(error="no", code="tool_failed"), is_json=False)

    assert (status, capsys.readouterr()) == (1, ("", "failed: no\n  code tool_failed\n"))
