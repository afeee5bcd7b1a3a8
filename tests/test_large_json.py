"""Large JSON values: measured first, converted in a thread, with the same results as small ones."""

import json
import math
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

import anyio
import anyio.lowlevel
import pytest

from nacre.json_types import JsonValue, NotJsonError, TooLargeError, decode_json, encode_json
from nacre.large_json import (
    MAX_LOOP_BYTES,
    MAX_VALUE_BYTES,
    MAX_VALUES,
    CheckedJson,
    copy_off_loop,
    decode_off_loop,
    encode_large,
    encode_off_loop,
    encode_pieces_off_loop,
    is_plain,
    is_small,
    run_in_json_thread,
)

ROWS = [{"id": at, "name": f"row {at}", "tags": ["é", None, True, 1.5]} for at in range(20_000)]


class Level(IntEnum):
    """A number that is not exactly `int`."""

    HIGH = 3


@dataclass(slots=True)
class Report:
    """A dataclass without a `__dict__`."""

    rows: list[object]


def doubled(times: int) -> list[object]:
    """A value that is small in memory and has 2 to the power of `times` leaves."""
    value: list[object] = [0]
    for _ in range(times):
        value = [value, value]
    return value


async def count_turns(work: Callable[[], Awaitable[object]]) -> int:
    """How often another task runs meanwhile."""
    turns = before = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await anyio.lowlevel.checkpoint()
        before = turns
        await work()
        tasks.cancel_scope.cancel()
    return turns - before


@pytest.mark.parametrize("work", [encode_off_loop, copy_off_loop])
async def test_other_tasks_run_while_a_large_value_is_converted(
    work: Callable[[object], Awaitable[object]],
) -> None:
    assert await count_turns(lambda: work(ROWS)) > 0


async def test_other_tasks_run_while_a_large_text_is_decoded() -> None:
    text = encode_json(ROWS)
    assert await count_turns(lambda: decode_off_loop(text)) > 0


async def test_the_results_are_those_of_small_values() -> None:
    text = encode_json(ROWS)
    assert await encode_off_loop(ROWS) == text
    assert await encode_off_loop(CheckedJson(decode_json(text))) == text
    assert await encode_off_loop(CheckedJson([1])) == b"[1]"
    assert await decode_off_loop(text) == ROWS
    copy = await copy_off_loop(ROWS)
    assert copy == ROWS
    assert copy[0]["tags"] is not ROWS[0]["tags"]


async def test_large_values_are_converted_one_at_a_time() -> None:
    inside = most = 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        encode_large(ROWS)
        with lock:
            inside -= 1

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(run_in_json_thread, work)
    assert most == 1


@pytest.mark.parametrize(
    "value",
    [None, "text", [1, {"a": 2.5}], {}, Report(rows=[1]), MappingProxyType({"a": 1}), {1, 2}],
)
def test_a_small_value_is_small(value: object) -> None:
    assert is_small(value)


@pytest.mark.parametrize(
    "value",
    [
        "x" * (MAX_LOOP_BYTES + 1),
        {"x" * (MAX_LOOP_BYTES + 1): 1},
        list(range(10_000)),
        dict.fromkeys(range(10_000)),
        set(range(10_000)),
        Report(rows=list(range(10_000))),
        MappingProxyType(dict.fromkeys(range(10_000))),
        doubled(20),
    ],
)
def test_a_large_value_of_any_kind_is_recognized(value: object) -> None:
    assert not is_small(value)


def test_a_value_that_contains_itself_is_not_small() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert not is_small(loop)
    with pytest.raises(NotJsonError, match="is a part of itself"):
        encode_large(loop)


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        [(1,)],
        {1: 2},
        {"a": math.nan},
        [math.inf],
        Level.HIGH,
        OrderedDict[str, int](),
        {"a": {"b": {1}}},
        [*range(100), (1,)],
        [{"a": 1}] * 100,
    ],
)
def test_other_types_and_many_shared_parts_are_not_plain(value: object) -> None:
    assert not is_plain(value)


def test_plain_values_are_plain() -> None:
    assert is_plain(ROWS)
    values: list[JsonValue] = [1, "a", None, True, 0.5, {}, [], {"k": [{}]}]
    assert is_plain(values)
    assert is_plain(doubled(2))


@pytest.mark.parametrize(
    "value",
    [
        [*ROWS, "half \ud83d of a pair"],
        [*ROWS, 2**70, -(2**63) - 1],
        [*ROWS, (1, 2), Level.HIGH],
        [*ROWS, {1: "a", None: "b"}],
    ],
)
def test_a_large_value_is_encoded_as_a_small_one(value: object) -> None:
    assert decode_json(encode_large(value)) == decode_json(encode_json(value))


def test_a_large_value_that_is_not_json_is_refused_with_its_path() -> None:
    with pytest.raises(NotJsonError) as refusal:
        encode_large([*ROWS, {"a": math.nan}])
    assert str(refusal.value) == "$[20000].a is nan, which is not a JSON number"
    with pytest.raises(NotJsonError, match=r"^\$\[20000\] is too large an integer: "):
        encode_large([*ROWS, 10**5000])


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        ("x" * (MAX_VALUE_BYTES + 1), f"{MAX_VALUE_BYTES} bytes"),
        ({"x" * (MAX_VALUE_BYTES + 1): 1}, f"{MAX_VALUE_BYTES} bytes"),
        ([0] * (MAX_VALUES + 1), f"{MAX_VALUES} values"),
        ([[0] * 20_000 for _ in range(101)], f"{MAX_VALUES} values"),
    ],
    ids=["text", "key", "list", "lists"],
)
def test_a_value_over_a_limit_is_refused(value: object, limit: str) -> None:
    with pytest.raises(TooLargeError, match=rf"^\$ has more than {limit}$"):
        encode_large(value)


@pytest.mark.parametrize(
    "value",
    [
        [],
        list(range(50_000)),
        {"rows": [{"id": at} for at in range(30_000)], "é": {"inner": {"deep": [1, [2]]}}},
        {"empty": {}, "none": None, "wide": {str(at): at for at in range(500)}},
    ],
)
def test_a_value_that_is_encoded_in_steps_is_the_same_json(value: object) -> None:
    assert json.loads(encode_large(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        [{"id": at, "tags": ["a", "b"]} for at in range(100_000)],
        [{f"column {column}": at for column in range(100)} for at in range(3_000)],
        [f"{at:0800}" for at in range(5_000)],
        [[[at] * 100 for at in range(100)] for _ in range(100)],
        {str(at): {"a": at} for at in range(100_000)},
        {
            f"a{a}": {f"b{b}": {f"c{c}": c for c in range(100)} for b in range(10)}
            for a in range(99)
        },
        {"content": [{"type": "text", "text": 'é"\n' * 500_000}]},
    ],
    ids=["rows", "wide rows", "texts", "matrix", "keys", "objects", "text"],
)
async def test_a_large_value_is_encoded_in_pieces_of_similar_size(value: object) -> None:
    # A piece is made in one step in C, while the event loop cannot run.
    pieces = await encode_pieces_off_loop(value)
    *whole, _ = map(len, pieces)
    assert len(whole) > 1
    assert all(MAX_LOOP_BYTES <= size <= 4 * MAX_LOOP_BYTES for size in whole)
    # To join them, `bytes.join` lets other threads run only if all of them are exactly `bytes`.
    assert {type(piece) for piece in pieces} == {bytes}
    assert b"".join(pieces) == await encode_off_loop(value)
    assert json.loads(b"".join(pieces)) == value


async def test_a_small_value_is_one_piece() -> None:
    assert await encode_pieces_off_loop({"a": [1]}) == [b'{"a":[1]}']


@pytest.mark.parametrize("value", [{"x" * (1 << 19): 1}, {"a": "x" * (1 << 19)}])
def test_a_flat_object_with_a_large_name_or_text_is_not_small(value: object) -> None:
    assert not is_small(value)


async def test_a_copy_of_a_flat_object_is_another_object() -> None:
    given = {"a": 1, "b": "text", "c": None}
    copy = await copy_off_loop(given)
    copy["a"] = 2
    assert given == {"a": 1, "b": "text", "c": None}
