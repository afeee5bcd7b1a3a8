"""Source maps: sound ones are read as the format says, others are refused and cost little."""

import pytest

from nacre.sandbox.source_map import (
    MAX_MAPPINGS_LENGTH,
    PositionMap,
    decode_segment,
    encode_segment,
)


def test_position_is_that_of_the_segment_it_falls_into() -> None:
    # Line 1: columns 1 and 5 come from 1:1 and 1:9. Line 3: column 3 comes from 2:1.
    positions = PositionMap.from_mappings("AAAA,IAAQ;;EACR")
    assert [positions.original(1, column) for column in (1, 4, 5, 99)] == [
        (1, 1),
        (1, 1),
        (1, 9),
        (1, 9),
    ]
    assert positions.original(3, 3) == (2, 1)


def test_position_without_a_segment_is_that_of_the_nearest_one() -> None:
    positions = PositionMap.from_mappings("AAAA,IAAQ;;EACR")
    before_the_first_of_its_line, empty_line, behind_the_end = (3, 1), (2, 7), (50, 1)
    assert positions.original(*before_the_first_of_its_line) == (2, 1)
    assert positions.original(*empty_line) == (1, 9)
    assert positions.original(*behind_the_end) == (2, 1)


@pytest.mark.parametrize("mappings", ["", ";;", "A", "A;C,C"])
def test_map_without_sources_knows_no_position(mappings: str) -> None:
    assert PositionMap.from_mappings(mappings).original(1, 1) is None


@pytest.mark.parametrize("line", [0, -1, -(1 << 70)])
def test_line_before_the_first_has_no_position(line: int) -> None:
    assert PositionMap.from_mappings("AAAA").original(line, 1) is None


@pytest.mark.parametrize("position", [(1, 0), (1, -5), (1 << 70, 1), (1, 1 << 70)])
def test_position_outside_the_code_is_answered_without_an_error(position: tuple[int, int]) -> None:
    assert PositionMap.from_mappings("AAAA").original(*position) == (1, 1)


def test_segment_with_a_name_is_read() -> None:
    assert PositionMap.from_mappings("AAEAA").original(1, 1) == (3, 1)


@pytest.mark.parametrize(
    "mappings",
    [
        "AAA",
        "AA",
        "AAAAAA",
        "AAA!",
        "AAA\u00e9",
        "AAAg",
        "ggggggggA",
        "AAAA\nAAAA",
        "AADA",
        "AAAD",
        "DAAA",
        "CAAA,DAAA",
        "AA+/////BA;" * 4,
        "A" * 100_000,
    ],
    ids=lambda mappings: repr(mappings[:20]),
)
def test_garbage_is_refused(mappings: str) -> None:
    with pytest.raises(ValueError):
        PositionMap.from_mappings(mappings)


def test_mappings_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 1048576"):
        PositionMap.from_mappings(";" * (MAX_MAPPINGS_LENGTH + 1))


@pytest.mark.parametrize(
    ("unit", "position"),
    [("AAAA,", (1, 1)), (";", None), ("A,", None), (",", None), ("AAAA;", (1, 1))],
)
def test_the_longest_mappings_are_read(unit: str, position: tuple[int, int] | None) -> None:
    mappings = unit * (MAX_MAPPINGS_LENGTH // len(unit))
    assert PositionMap.from_mappings(mappings).original(1, 1) == position


@pytest.mark.parametrize("fields", [[0], [16, -1, 15, -16], [1 << 29, 0, -(1 << 29), 31, 32]])
def test_encoded_segment_decodes_to_the_same_fields(fields: list[int]) -> None:
    assert list(decode_segment(encode_segment(fields))) == fields
