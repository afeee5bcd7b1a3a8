"""Amounts as people read them."""

import pytest

from nacre.cli.output import duration_text, size_text, time_text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0.0 ms"),
        (9.96, "10.0 ms"),
        (12.3, "12 ms"),
        (1500, "1.5 s"),
        (61_000, "1 min 1 s"),
        (3_720_000, "1 h 2 min"),
    ],
)
def test_durations(milliseconds: float, text: str) -> None:
    assert duration_text(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (3e9, "3.0 GB")],
)
def test_sizes(size: float, text: str) -> None:
    assert size_text(size) == text


def test_a_time_that_no_calendar_has_is_no_trouble() -> None:
    assert time_text(1e30) == f"{1e30:.0f} s after 1970"
