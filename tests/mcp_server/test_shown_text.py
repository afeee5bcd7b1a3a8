"""Text of others for a person: what is not seen is spelled out, or left out."""

import pytest

from nacre.mcp_server.display import escape, escape_start, one_line, visible_lines

UNSEEN = [
    "\x00", "\x1b", "\x7f", "\x9b", "\u00ad", "\u034f", "\u061c", "\u115f", "\u1160", "\u180e",
    "\u200b", "\u200d", "\u202e", "\u2066", "\u2800", "\u3164", "\ufe0f", "\ufeff", "\uffa0",
    "\ufff9", "\ud800", "\ue000", "\U000e0041", "\U000e0100", "\U0001d173",
]  # fmt: skip


@pytest.mark.parametrize("character", UNSEEN, ids=ascii)
def test_what_is_not_seen_is_spelled_out_or_left_out(character: str) -> None:
    code = f"{ord(character):x}"
    spelled_out = f"\\u{code:0>4}" if len(code) <= 4 else f"\\u{{{code}}}"
    assert escape(f"a{character}b") == f"a{spelled_out}b"
    assert one_line(f"a{character}b", most_characters=10) == "ab"
    assert visible_lines(f"a{character}b") == "ab"


@pytest.mark.parametrize("character", ["\n", "\u2028", "\u00a0", "\u3000", "\u2003"], ids=ascii)
def test_a_space_that_is_not_the_plain_one_is_spelled_out_or_becomes_one(character: str) -> None:
    assert escape(f"a{character}b") == f"a\\u{ord(character):04x}b"
    assert one_line(f"a{character}{character}b", most_characters=10) == "a b"


def test_other_text_stays_as_it_is() -> None:
    text = "Grüße, 世界, שלום, नमस्ते 😀 ~"
    assert (escape(text), one_line(text, most_characters=99), visible_lines(text)) == (text,) * 3


def test_lines_stay_lines_however_they_end() -> None:
    assert visible_lines("a\r\nb\rc\u2028\td\x1b[31m") == "a\nb\nc\n\td[31m"


def test_what_is_cut_says_so() -> None:
    assert escape_start("x" * 20, most_characters=3) == "xxx… (cut: 20 characters in all)"
    assert escape_start("xxx", most_characters=3) == "xxx"
    assert one_line("x" * 20, most_characters=3) == "xxx…"
    assert one_line(" " * 100, most_characters=3) == "…"
