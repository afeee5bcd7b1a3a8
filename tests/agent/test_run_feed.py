"""The events of a run: numbered, followed by many, resumed after a disconnect, bounded."""

from pathlib import Path

import anyio
import pytest

from nacre.agent.event_log import RUN_EVENT_KINDS, RunEvent, RunEventLog

PAGE = Path(__file__).parents[2] / "docs" / "agent.md"


async def read(feed: RunEventLog, after: int = -1) -> list[RunEvent]:
    return [event async for event in feed.follow(after)]


def numbers(events: list[RunEvent]) -> list[int]:
    return [event.sequence for event in events]


async def test_a_reader_gets_what_was_there_and_what_comes() -> None:
    feed = RunEventLog()
    feed.add("run.started")
    seen: list[str] = []
    has_read = anyio.Event()

    async def follow() -> None:
        async for event in feed.follow():
            seen.append(event.kind)
            has_read.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await has_read.wait()
            feed.add("text.delta", {"text": "a"})
            feed.add("run.completed")
            feed.close()
    assert seen == ["run.started", "text.delta", "run.completed"]


async def test_a_reader_resumes_after_the_last_event_that_it_saw() -> None:
    feed = RunEventLog()
    for _ in range(5):
        feed.add("text.delta", {"text": "x"})
    feed.close()
    assert numbers(await read(feed, after=2)) == [3, 4]
    assert await read(feed, after=4) == []
    assert await read(feed, after=100) == []


async def test_a_full_feed_lets_the_oldest_go_and_counts_them() -> None:
    feed = RunEventLog(most_events=3)
    for _ in range(5):
        feed.add("text.delta")
    feed.close()
    assert numbers(await read(feed)) == [2, 3, 4]
    assert feed.dropped == 2


async def test_the_bytes_of_a_feed_are_bounded_but_the_newest_event_stays() -> None:
    feed = RunEventLog(most_bytes=10_000)
    feed.add("text.delta", {"text": "a"})
    feed.add("text.delta", {"text": "x" * 50_000})
    assert numbers([*feed.events]) == [1]
    feed.add("text.delta", {"text": "b"})
    assert numbers([*feed.events]) == [2]
    assert feed.bytes_held < 10_000


async def test_a_slow_reader_skips_what_is_gone_and_never_holds_up_the_run() -> None:
    feed = RunEventLog(most_events=2)
    feed.add("text.delta")
    seen: list[int] = []
    with anyio.fail_after(5):
        async for event in feed.follow():
            seen.append(event.sequence)
            if event.sequence == 0:
                for _ in range(5):
                    feed.add("text.delta")
                feed.close()
    assert seen == [0, 4, 5]


async def test_nothing_is_told_after_the_end() -> None:
    feed = RunEventLog()
    feed.close()
    feed.add("text.delta")
    assert feed.events == ()
    assert feed.last_sequence == -1


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
