"""Programs as lines for a terminal."""

from nacre.cli.agent_view import create_highlighter, program_lines


def test_a_program_is_coloured_line_by_line() -> None:
    lines = program_lines("\nconst a: number = 1;\nreturn `a\nb`;\n", colours=create_highlighter())
    assert len(lines) == 3
    assert lines[0].startswith("\x1b[94")
    assert all("\x1b" not in line or line.endswith("\x1b[0m") for line in lines)


def test_escapes_of_a_program_do_not_pass() -> None:
    lines = program_lines("a\x1b[2J\u202eb\r\n\tc", colours=None)
    assert lines == ["a\\u001b[2J\\u202eb", "  c"]


def test_of_a_long_program_the_beginning_is_shown() -> None:
    lines = program_lines("\n".join(f"line{number}" for number in range(100)), colours=None)
    assert lines[-2:] == ["line59", "… 40 more lines"]
    assert len(program_lines("x" * 10_000, colours=None)[0]) == 401
