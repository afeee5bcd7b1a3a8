"""Errors of programs: columns in characters, and the stack that a model reads."""

import pytest

from nacre.sandbox import Failed, Sandbox
from nacre.sandbox.program import _FRAME, ByteColumns, failure_from_worker  # pyright: ignore[reportPrivateUsage]
from nacre.sandbox.results import MAX_ERROR_CHARACTERS, Limits, Position


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


def test_the_frames_of_the_program_are_shown_and_those_of_the_guest_are_not() -> None:
    stack = "    at f (cell.js:3:4)\n    at start (nacre-guest.js:1:9)\n    at cell.js:7:1\n"
    failed = failure_from_worker(
        "guest_error", {"message": "x", "stack": stack}, limits=Limits(), file_name="cell.js"
    )
    assert failed.error == "x\n    at f cell.js:3:4\n    at cell.js:7:1"
    assert failed.position == Position(line=3, column=4)


def test_a_frame_is_looked_for_line_by_line() -> None:
    # A pattern that runs on over line breaks takes quadratic time on a stack made of them.
    found = _FRAME.search("\n" * 50 + "    at cell.js:1:2")
    assert found is not None
    assert found.start() == 50


def test_a_message_as_long_as_memory_is_cut() -> None:
    failed = failure_from_worker(
        "guest_error", {"message": "x" * 10**6}, limits=Limits(), file_name="cell.js"
    )
    assert failed.error == "x" * MAX_ERROR_CHARACTERS + " [...]"
