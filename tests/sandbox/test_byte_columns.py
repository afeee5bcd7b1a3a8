"""Columns in characters, for lines that are not all ASCII."""

import pytest

from nacre.sandbox import Failed, Sandbox
from nacre.sandbox.program import ByteColumns


@pytest.mark.parametrize(
    ("code", "position", "expected"),
    [
        ("foo()", (1, 3), (1, 3)),
        ("/*\u00e9\U0001f600*/ foo()", (1, 12), (1, 8)),
        ("\u00e9\nfoo", (2, 2), (2, 2)),
        ("\u00e9", (7, 3), (7, 3)),
        ("\u00e9", (0, 0), (0, 0)),
    ],
)
def test_columns_are_counted_in_characters(
    code: str, position: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert ByteColumns(code.encode()).position(*position) == expected


@pytest.mark.parametrize("language", ["javascript", "typescript"])
async def test_an_error_behind_wide_characters_names_its_column(
    sandbox: Sandbox, language: str
) -> None:
    code = "/*\u00e9\U0001f600*/ foo()"
    result = await sandbox.cell(
        code,
        language="typescript" if language == "typescript" else "javascript",
    ).run()
    assert isinstance(result, Failed)
    assert result.position is not None
    assert (result.position.line, result.position.column) == (1, 8)
