"""Runs as server-sent events: followed, resumed, and told again after a restart."""

import json
from pathlib import Path

import anyio
import pytest

from nacre.agent import RunEventLog
from nacre.gateway.run_events import Cursor, live_events, parse_cursor
from nacre.testing import Call, Say, Stall
from nacre.testing.scripted_provider import ScriptedProvider
from tests.gateway.worlds import CODE_MODE, PATIENCE_SECONDS, Event, open_gateway, open_world


async def test_events_come_while_the_run_goes_on_and_end_with_it(tmp_path: Path) -> None:
    release = anyio.Event()
    async with open_gateway(tmp_path, [[Say("first "), Stall(release), Say("then")]]) as world:
        started = await world.start()
        seen: list[Event] = []
        with anyio.fail_after(PATIENCE_SECONDS):
            async for event in world.follow(f"/api/runs/{started['runId']}/events"):
                seen.append(event)
                if event.kind == "text.delta":
                    # It is told though the run is in the middle of its answer.
                    assert not world.run(started["runId"]).has_ended or release.is_set()
                    release.set()
    assert [event.id for event in seen] == [str(n) for n in range(len(seen))]
    assert (seen[0].kind, seen[-1].kind) == ("run.started", "run.completed")
    said = [json.loads(event.text) for event in seen if event.kind == "text.delta"]
    assert "".join(it["data"]["text"] for it in said) == "first then"
    assert set(said[0]) == {"sequence", "time", "kind", "data"}


@pytest.mark.parametrize("how", ["header", "query", "both"])
async def test_a_reader_that_was_away_goes_on_where_it_was(tmp_path: Path, how: str) -> None:
    async with open_gateway(tmp_path, [Say("a b c d")]) as world:
        run = await world.finished()
        path = f"/api/runs/{run['runId']}/events"
        whole = await world.events(path)
        headers = {} if how == "query" else {"last-event-id": whole[2].id}
        after = {"header": "", "query": f"?after={whole[2].id}", "both": "?after=0"}[how]
        rest = await world.events(f"{path}{after}", headers=headers)
        at_end = await world.events(path, headers={"last-event-id": whole[-1].id})
    assert rest == whole[3:]
    assert at_end == []


async def test_many_readers_see_the_same(tmp_path: Path) -> None:
    release = anyio.Event()
    told: list[list[Event]] = []
    async with open_gateway(tmp_path, [[Say("a "), Stall(release), Say("b")]]) as world:
        path = f"/api/runs/{(await world.start())['runId']}/events"

        async def read() -> None:
            told.append(await world.events(path))

        async with anyio.create_task_group() as readers:
            for _ in range(20):
                readers.start_soon(read)
            async for event in world.follow(path):
                if event.kind == "text.delta":
                    release.set()
    assert len(told) == 20
    assert all(events == told[0] for events in told)


async def test_a_reader_that_goes_away_does_not_disturb_the_run(tmp_path: Path) -> None:
    release = anyio.Event()
    async with open_gateway(tmp_path, [[Say("a "), Stall(release), Say("b")]]) as world:
        started = await world.start()
        async for event in world.follow(f"/api/runs/{started['runId']}/events"):
            if event.kind == "text.delta":
                break
        release.set()
        await world.end_of(started["runId"])
        run = await world.get(f"/api/runs/{started['runId']}")
    assert run["result"]["text"] == "a b"


async def test_after_a_restart_the_trajectory_is_told_instead(tmp_path: Path) -> None:
    script = [Call("exec", {"code": "return tools.call('list', {})"}), Say("that is all")]
    async with ScriptedProvider(script) as model:
        async with open_world(tmp_path, model, CODE_MODE) as world:
            run = await world.finished()
        path = f"/api/runs/{run['runId']}/events"
        async with open_world(tmp_path, model, CODE_MODE) as world:
            whole = await world.events(path, headers={"last-event-id": "3"})
            rest = await world.events(path, headers={"last-event-id": whole[2].id})
    assert whole[0].kind == "replay.started"
    kinds = [event.kind for event in whole]
    assert kinds.count("call.started") == 2
    assert kinds[-1] == "run.completed"
    nested = json.loads(whole[kinds.index("call.started", kinds.index("call.started") + 1)].text)
    assert (nested["data"]["toolName"], bool(nested["data"]["parentToolCallId"])) == ("list", True)
    assert rest == whole[3:]


async def test_a_turn_that_was_cut_off_by_a_kill_says_so(tmp_path: Path) -> None:
    async with ScriptedProvider([]) as model:
        async with open_world(tmp_path, model) as world:
            session = await world.system.store.add_session(id="s", agent_id="main")
            await world.system.store.begin_turn(
                run_id="run_cut", session_id=session.id, prompt=None, model="m", surface="direct"
            )
        async with open_world(tmp_path, model) as world:
            events = await world.events("/api/runs/run_cut/events")
            run = await world.get("/api/runs/run_cut")
    assert [event.kind for event in events] == ["replay.started", "run.interrupted"]
    assert run["state"] == "interrupted"
    told = "the process ended in the middle of the turn"
    assert (run["result"]["finishReason"], run["result"]["error"]) == ("error", told)
    assert json.loads(events[-1].text)["data"]["error"] == told


async def test_what_is_no_id_of_an_event_is_refused(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [Say("a")]) as world:
        run = await world.finished()
        path = f"/api/runs/{run['runId']}/events"
        for bad in ("x", "1.5", "-2", "t", "٣", "9" * 30):
            in_address = await world.client.get(path, params={"after": bad})
            as_header = await world.client.get(path, headers={b"last-event-id": bad.encode()})
            assert (in_address.status_code, as_header.status_code) == (422, 422), bad
            message = in_address.json()["error"]["message"]
            assert message.startswith("query.after: must be the `id` of an event, such as ")
        assert await world.events(path, params={"after": "999"}) == []


def test_what_a_browser_sends_counts_before_the_address() -> None:
    assert parse_cursor("t5", "7") == Cursor(source="trajectory", number=5)
    assert parse_cursor("", "7") == Cursor(number=7)
    assert parse_cursor("", "-1") == parse_cursor("", "") == Cursor()
    assert str(parse_cursor("t5", "")) == "t5"


async def test_events_that_a_full_feed_let_go_are_counted() -> None:
    class Run:
        events = RunEventLog(max_events=2)

    for _ in range(5):
        Run.events.add("text.delta", {"text": "a"})
    Run.events.close()
    told = [chunk.decode() async for chunk in live_events(Run, Cursor(number=0))]  # pyright: ignore[reportArgumentType]
    assert told[0] == 'event: events.dropped\ndata: {"count":2}\n\n'
    assert [chunk.partition("\n")[0] for chunk in told[1:]] == ["id: 3", "id: 4"]
