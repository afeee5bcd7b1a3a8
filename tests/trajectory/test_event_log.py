"""The events of a run: numbered, followed by many, resumed after a disconnect, bounded."""

from pathlib import Path

import anyio
import pytest

from nacre.trajectory import RUN_EVENT_KINDS, RunEvent, RunEventLog

PAGE = Path(__file__).parents[2] / "docs" / "agent.md"


async def read(log: RunEventLog, after: int = -1) -> list[RunEvent]:
    return [event async for event in log.follow(after)]


def numbers(events: list[RunEvent]) -> list[int]:
    return [event.sequence for event in events]


async def test_a_reader_gets_what_was_there_and_what_comes() -> None:
    log = RunEventLog()
    log.add("run.started")
    seen: list[str] = []
    has_read = anyio.Event()

    async def follow() -> None:
        async for event in log.follow():
            seen.append(event.kind)
            has_read.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await has_read.wait()
            log.add("text.delta", {"text": "a"})
            log.add("run.completed")
            log.close()
    assert seen == ["run.started", "text.delta", "run.completed"]


async def test_a_reader_resumes_after_the_last_event_that_it_saw() -> None:
    log = RunEventLog()
    for _ in range(5):
        log.add("text.delta", {"text": "x"})
    log.close()
    assert numbers(await read(log, after=2)) == [3, 4]
    assert await read(log, after=4) == []
    assert await read(log, after=100) == []


async def test_a_full_feed_lets_the_oldest_go_and_counts_them() -> None:
    log = RunEventLog(max_events=3)
    for _ in range(5):
        log.add("text.delta")
    log.close()
    assert numbers(await read(log)) == [2, 3, 4]
    assert log.dropped == 2


async def test_the_bytes_of_a_feed_are_bounded_but_the_newest_event_stays() -> None:
    log = RunEventLog(max_bytes=10_000)
    log.add("text.delta", {"text": "a"})
    log.add("text.delta", {"text": "x" * 50_000})
    assert numbers([*log.events]) == [1]
    log.add("text.delta", {"text": "b"})
    assert numbers([*log.events]) == [2]
    assert log.bytes_held < 10_000


async def test_a_slow_reader_skips_what_is_gone_and_never_holds_up_the_run() -> None:
    log = RunEventLog(max_events=2)
    log.add("text.delta")
    seen: list[int] = []
    with anyio.fail_after(5):
        async for event in log.follow():
            seen.append(event.sequence)
            if event.sequence == 0:
                for _ in range(5):
                    log.add("text.delta")
                log.close()
    assert seen == [0, 4, 5]


async def test_nothing_is_told_after_the_end() -> None:
    log = RunEventLog()
    log.close()
    log.add("text.delta")
    assert log.events == ()
    assert log.last_sequence == -1


def test_an_event_is_json() -> None:
    event = RunEvent(sequence=3, time=1.5, kind="text.delta", data={"text": "a"})
    assert event.to_json() == {
        "sequence": 3,
        "time": 1.5,
        "kind": "text.delta",
        "data": {"text": "a"},
    }


@pytest.mark.parametrize("kind", RUN_EVENT_KINDS)
def test_every_kind_of_event_is_documented(kind: str) -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    assert any(f"`{kind}`" in row.split("|")[1] for row in rows)
