"""What a tool does, in one sentence."""

import pytest

from nacre.cli.output import escape_json_controls, shorten
from nacre.cli.tools_views import first_sentence


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ("Read a file. Or two.", "Read a file."),
        ("Read a file\nof any kind. Or two.", "Read a file\nof any kind."),
        ("Read a file\n \nArgs: none", "Read a file"),
        ("E.g. reads a file. Or two.", "E.g. reads a file."),
        ("ファイルを読み取ります。そして閉じます。", "ファイルを読み取ります。"),
        ("version 1.5 of it", "version 1.5 of it"),
        ("  ", ""),
    ],
)
def test_first_sentence(description: str, sentence: str) -> None:
    assert first_sentence(description) == sentence


def test_of_an_endless_text_only_the_start_is_read() -> None:
    assert len(first_sentence("a" * 1_000_000)) == 1_000


def test_a_name_with_its_letters_turned_around_is_not_shown_as_another() -> None:
    assert shorten("tac\u202edaer\u2066\u2069") == "tac\\u202edaer\\u2066\\u2069"
    assert escape_json_controls('"tac\u202edaer"') == '"tac\\u202edaer"'
