"""What others say, as one line of our log."""

from nacre.telemetry.redaction import format_log_line


def test_what_would_begin_a_line_or_move_the_cursor_is_a_space() -> None:
    assert format_log_line("a\r\n2026 ERROR b\x1b[2J\u2028c") == "a 2026 ERROR b [2J c"


def test_a_long_text_is_cut_and_says_so() -> None:
    assert format_log_line("x" * 500) == "x" * 500
    line = format_log_line("x" * 1_000_000)
    assert (len(line), line[-1]) == (500, "…")


def test_a_secret_that_can_be_told_is_left_out() -> None:
    assert "sk-ant-api03" not in format_log_line("refused sk-ant-api03-" + "a1B2" * 12)
