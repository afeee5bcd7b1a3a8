"""What a model reads of an error, whatever a program made of its stack."""

from nacre.sandbox.program import _FRAME, failed_from_worker  # pyright: ignore[reportPrivateUsage]
from nacre.sandbox.results import MAX_ERROR_CHARACTERS, Limits, Position


def test_the_frames_of_the_program_are_shown_and_those_of_the_guest_are_not() -> None:
    stack = "    at f (cell.js:3:4)\n    at start (nacre-guest.js:1:9)\n    at cell.js:7:1\n"
    failed = failed_from_worker(
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
    failed = failed_from_worker(
        "guest_error", {"message": "x" * 10**6}, limits=Limits(), file_name="cell.js"
    )
    assert failed.error == "x" * MAX_ERROR_CHARACTERS + " [...]"
