"""How large inputs are."""

from collections import OrderedDict

from nacre.tools.input_checks.input_size import InputSize, size_of


def size(parts: int, depth: int = 0, characters: int = 0, number_work: int = 0) -> InputSize:
    return InputSize(parts=parts, depth=depth, characters=characters, number_work=number_work)


def test_parts_levels_and_characters_are_counted() -> None:
    value = {"a": [1, {"bc": 2}, ("x", None)], "c": "text"}
    assert size_of(value, most_parts=100) == size(9, 3, characters=9)
    assert size_of(5, most_parts=100) == size(1)
    assert size_of({"a": [], "b": {}}, most_parts=100) == size(3, 1, characters=2)


def test_subclasses_count_as_what_they_are() -> None:
    class Text(str):
        pass

    assert size_of(OrderedDict[str, str](a=Text("abc")), most_parts=10) == size(2, 1, characters=4)


def test_numbers_count_by_what_comparing_them_takes() -> None:
    plain = size_of([0.5], most_parts=10).number_work
    assert size_of([1, 2, True], most_parts=10).number_work == 0
    assert size_of([1, 0.5, 0.5], most_parts=10).number_work == 2 * plain
    assert size_of([10**400, 1], most_parts=10).number_work > plain


def test_counting_ends_when_there_are_enough() -> None:
    counted = size_of([["x"] * 1000], most_parts=10)
    assert counted == size(1002, 2)


def test_counting_ends_at_the_level_that_is_asked_for() -> None:
    assert size_of({"a": [1] * 1000}, most_parts=10, levels=1) == size(2, 1, characters=1)
    assert size_of({"a": [1] * 1000}, most_parts=10, levels=0) == size(1)


def test_a_value_that_is_too_deep_is_not_followed_to_its_end() -> None:
    value: object = 1
    for _ in range(5000):
        value = [value]
    assert size_of(value, most_parts=10_000).depth < 300
