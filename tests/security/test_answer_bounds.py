"""Answers of the host that are too many, too large, or that come without a pause."""

import math
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from nacre.errors import HostRequestError
from nacre.json_types import JsonValue, decode_json
from nacre.large_json import MAX_VALUE_BYTES
from nacre.sandbox import CellId, HostRequest, HostRequestHandler, Limits, Sandbox
from nacre.sandbox.host_requests import HostRequests
from nacre.sandbox.results import MAX_ERROR_CHARACTERS
from nacre.sandbox.worker_process import WorkerProcess
from nacre.sandbox.worker_protocol import Command, decode_header
from tests.security.attacks import BOUND_SECONDS, completed, expect_neighbour_to_work, shown

LONG = Limits(timeout_ms=60_000)


class Requests:
    """Requests of a program that the test stands in for."""

    def __init__(self, requests: HostRequests) -> None:
        self.all = requests

    def add(self, *ids: int) -> None:
        for request_id in ids:
            request = HostRequest(
                id=request_id, method="ask", payload=request_id, cell_id=CellId("run_1")
            )
            self.all.add(request)

    async def answered(self) -> list[Any]:
        """What the program gets, once there is nothing left to wait for."""
        await self.wait()
        _ids, answers = self.all.take_answers()
        found = decode_json(b"".join(answers))
        assert isinstance(found, list)
        return found

    async def wait(self) -> None:
        with anyio.fail_after(BOUND_SECONDS):
            while self.all.pending_count:
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def requests_of(
    handler: HostRequestHandler, *, max_bytes: int = 1 << 20, max_concurrent: int = 16
) -> AsyncGenerator[Requests]:
    async with anyio.create_task_group() as tasks:
        yield Requests(
            HostRequests(
                handler,
                tasks=tasks,
                max_concurrent=max_concurrent,
                max_bytes=max_bytes,
                wake=lambda: None,
            )
        )
        tasks.cancel_scope.cancel()


# So much in all.


async def hundred(request: HostRequest) -> JsonValue:
    return "x" * 100


async def test_no_part_of_a_large_answer_is_copied_in_one_step() -> None:
    rows: list[JsonValue] = [{"id": at} for at in range(200_000)]

    async def answer(_request: HostRequest) -> JsonValue:
        return rows

    async with requests_of(answer, max_bytes=16 << 20) as requests:
        requests.add(1)
        await requests.wait()
        ((_, is_success, recorded),) = requests.all.answers
        _ids, sent = requests.all.take_answers()
        assert is_success
        assert decode_json(b"".join(recorded)) == rows
        assert decode_json(b"".join(sent)) == [[1, True, rows]]
        for pieces in (recorded, sent):
            assert max(map(len, pieces)) < 1 << 20 < sum(map(len, pieces))


async def test_answers_beyond_what_fits_reject_and_the_others_are_delivered() -> None:
    async with requests_of(hundred, max_bytes=350) as requests:
        requests.add(1, 2, 3, 4, 5)
        answers = await requests.answered()
    assert [answer[:2] for answer in answers] == [
        [1, True],
        [2, True],
        [3, True],
        [4, False],
        [5, False],
    ]
    assert [answer[2] for answer in answers[:3]] == ["x" * 100] * 3
    rejection = answers[3][2]
    assert (rejection["name"], rejection["code"]) == ("RangeError", "result_too_large")
    assert "does not fit with the other answers" in rejection["message"]


async def test_a_small_answer_finds_room_after_a_large_one_was_refused() -> None:
    async def handler(request: HostRequest) -> JsonValue:
        return "x" * 1000 if request.id == 1 else "y"

    async with requests_of(handler, max_bytes=500) as requests:
        requests.add(1, 2)
        answers = await requests.answered()
    assert [answer[1] for answer in answers] == [False, True]
    assert answers[1] == [2, True, "y"]


async def test_what_was_taken_makes_room_again() -> None:
    async with requests_of(hundred, max_bytes=150) as requests:
        for request_id in (1, 2, 3):
            requests.add(request_id)
            assert await requests.answered() == [[request_id, True, "x" * 100]]


async def test_a_program_is_never_sent_more_than_it_may_be_given(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of 40 megabytes pile up while it sleeps; the host keeps 16 of them."""
    sent: list[int] = []
    send = WorkerProcess.send

    async def measured_send(worker: WorkerProcess, data: bytes, *, until: float = math.inf) -> None:
        if data[0] == Command.DELIVER:
            sent.append(sum(decode_header(data)[1:]))
        await send(worker, data, until=until)

    async def large(request: HostRequest) -> JsonValue:
        return "x" * (2 << 20)

    monkeypatch.setattr(WorkerProcess, "send", measured_send)
    cell = sandbox.cell(
        "for (let i = 0; i < 20; i++) large(i); await yield_control(); return 1",
        limits=Limits(memory_limit_bytes=1),
        functions=("large",),
        handler=large,
    )
    with anyio.fail_after(BOUND_SECONDS):
        assert type(await cell.run()).__name__ == "Waiting"
        while cell.pending:
            await anyio.lowlevel.checkpoint()
        # That it has not the memory for them is its own affair.
        await cell.resume()
        assert len(sent) == 1
        assert 8 << 20 < sent[0] < MAX_VALUE_BYTES + (1 << 16)
        await expect_neighbour_to_work(sandbox)


# Errors.


@pytest.mark.parametrize("character", ["e", "é", "😀", "\x00", "\ud800", '"'])
async def test_the_words_of_a_huge_error_are_cut(character: str) -> None:
    async def handler(request: HostRequest) -> JsonValue:
        raise ValueError(character * (1 << 20))

    async with requests_of(handler) as requests:
        requests.add(1)
        ((_, succeeded, error),) = await requests.answered()
    shown_character = "\ufffd" if character == "\ud800" else character
    assert not succeeded
    assert error == {"name": "Error", "message": shown_character * MAX_ERROR_CHARACTERS}


async def test_large_data_of_an_error_is_dropped_and_its_message_and_code_are_kept() -> None:
    async def handler(request: HostRequest) -> JsonValue:
        raise HostRequestError("no", name="ToolError", code="c", data={"s": "x" * (1 << 20)})

    async with requests_of(handler) as requests:
        requests.add(1)
        assert await requests.answered() == [
            [1, False, {"name": "ToolError", "message": "no", "code": "c"}]
        ]


@pytest.mark.parametrize("data", [{"a": object()}, {"a": float("nan")}, {"a": {1: 2, "1": {3}}}])
async def test_data_that_is_not_json_is_dropped_as_well(data: dict[str, object]) -> None:
    async def handler(request: HostRequest) -> JsonValue:
        raise HostRequestError("no", data=data)

    async with requests_of(handler) as requests:
        requests.add(1)
        assert await requests.answered() == [[1, False, {"name": "Error", "message": "no"}]]


async def test_data_that_is_not_too_large_reaches_the_program() -> None:
    async def handler(request: HostRequest) -> JsonValue:
        raise HostRequestError("no", data={"s": "x" * 100_000})

    async with requests_of(handler) as requests:
        requests.add(1)
        assert await requests.answered() == [
            [1, False, {"name": "Error", "message": "no", "s": "x" * 100_000}]
        ]


async def test_a_program_catches_a_huge_error_as_a_short_one(sandbox: Sandbox) -> None:
    async def ask(request: HostRequest) -> JsonValue:
        raise ValueError("e" * (30 << 20))

    cell = sandbox.cell(
        "return ask(1).catch(e => e.message.length)", limits=LONG, functions=("ask",), handler=ask
    )
    assert shown(await cell.run()) == completed(MAX_ERROR_CHARACTERS)
    await expect_neighbour_to_work(sandbox)


# Handlers that never wait.


def spend_a_turn() -> None:
    """Use up what one server may take before others have theirs; nothing is measured with it."""
    end = time.monotonic() + 0.006
    while time.monotonic() < end:
        pass


async def test_handlers_that_never_wait_let_others_have_their_turn() -> None:
    events: list[str] = []

    async def busy(request: HostRequest) -> JsonValue:
        events.append("request")
        spend_a_turn()
        return None

    async def other() -> None:
        events.append("other")

    async with requests_of(busy, max_concurrent=1) as requests:
        async with anyio.create_task_group() as tasks:
            requests.add(*range(10))
            tasks.start_soon(other)
        await requests.answered()
    assert events.count("request") == 10
    assert events.index("other") == 1


async def test_a_flood_of_requests_that_never_wait_can_be_given_up() -> None:
    served: list[int] = []

    async def busy(request: HostRequest) -> JsonValue:
        served.append(request.id)
        spend_a_turn()
        return None

    async with requests_of(busy, max_concurrent=1) as requests:

        async def give_up() -> None:
            requests.all.cancel("enough")

        async with anyio.create_task_group() as tasks:
            requests.add(*range(10))
            tasks.start_soon(give_up)
        await anyio.lowlevel.checkpoint()
        assert requests.all.pending_count == 0
    assert served == [0]
