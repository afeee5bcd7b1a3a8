"""Patterns with their repetitions written out."""

import pytest

from nacre.tools.input_checks.pattern_size import states_in, states_of


@pytest.mark.parametrize(
    ("pattern", "states"),
    [
        ("", 1),
        ("^abc$", 3),
        ("a+b*c?|d", 4),
        (r"[a-z\]]{36}", 36),
        (r"[^\s@]{1,255}x", 256),
        (r"(\w{1,100}){1,20}x", 2001),
        ("(?:(ab{3}){2}c){10}", (4 * 2 + 1 + 1) * 10),
        (r"\{5}", 3),
        (r"\p{L}{4}", 4),
        ("a{2}{3}", 6),
        ("a{0}", 1),
        ("a{5,}", 5),
        ("[", 1),
        ("((", 1),
        (")", 1),
    ],
)
def test_states_are_counted(pattern: str, states: int) -> None:
    assert states_of(pattern) == states


@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "(" * 500 + "a" + "){1000}" * 500])
def test_a_number_too_large_to_matter_stays_a_number(pattern: str) -> None:
    assert states_of(pattern) >= 1 << 30


def test_all_patterns_of_a_schema_are_found() -> None:
    schema: dict[str, object] = {
        "properties": {"a": {"pattern": "a{10}"}, "pattern": {"type": "string"}},
        "anyOf": [{"items": {"patternProperties": {"b{5}": True, "cc": {"pattern": "d"}}}}],
    }
    assert states_in(schema) == 18
