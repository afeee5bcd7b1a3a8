"""Values in messages."""

import pytest

from nacre.config.documents import shown


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, "5"),
        ("ä" * 100, f'"{"ä" * 59}…'),
        ("https://ada:pass/word@x.example", '"https://***@x.example"'),
        (["https://token@x.example", "a@b"], '["https://***@x.example", "a@b"]'),
        (object(), "of type object"),
    ],
)
def test_a_value_is_shown_in_short_and_without_the_user_of_a_url(
    value: object, expected: str
) -> None:
    assert shown(value) == expected
