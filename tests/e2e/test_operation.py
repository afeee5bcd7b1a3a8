"""What an operator does: change the configuration, look into what is sent, kill the process."""

import signal
from collections import defaultdict
from typing import Any

import anyio
import httpx2
import pytest

from nacre.testing import Call, RecordedRequest, Say
from nacre.testing.script import PlainTurn
from tests.e2e.gateways import API_KEY, CODE_MODE, ENDINGS, TOKEN, Gateway, Home

SESSIONS = 12
TURNS_BEFORE_KILL = 40


async def test_a_tool_of_a_changed_configuration_is_there_for_the_next_turn(home: Home) -> None:
    code = "return ALL_TOOLS.map(tool => tool.name).filter(name => name.startsWith('fake'))"
    model = home.model
    marker = model.script(
        Call("exec", {"code": code}), Say("a"), Call("exec", {"code": code}), Say("b")
    )
    await home.configure(tools=CODE_MODE)
    async with home.gateway() as gateway:
        await gateway.finished(f"look {marker}", sessionKey="k")
        await home.configure(tools=CODE_MODE, plugins={"kit": {}, "many": {"count": 2}})
        await gateway.logs.has("the configuration changed: plugins")
        await gateway.finished("look again", sessionKey="k")
    values = [request.last_object["value"] for request in model.requests(marker)[1::2]]
    assert values == [[], ["fake_0", "fake_1"]]


async def test_debug_switches_tell_what_is_sent_and_no_secret(home: Home) -> None:
    await home.configure(tools=CODE_MODE)
    marker = home.model.script(
        Call("exec", {"code": "return await tools.kit_add({a: 1, b: 2})"}), Say("three")
    )
    async with home.gateway(
        OPENCLAW_DEBUG_CODE_MODE="1",
        OPENCLAW_DEBUG_MODEL_TRANSPORT="1",
        OPENCLAW_DEBUG_MODEL_PAYLOAD="tools",
        OPENCLAW_DEBUG_SSE="events",
    ) as gateway:
        run = await gateway.finished(f"add {marker}")
        gateway.process.send_signal(signal.SIGTERM)
        await gateway.process.wait()
    assert run["result"]["text"] == "three"
    log = gateway.logs.text
    assert "nacre.debug.code_mode" in log
    assert "/chat/completions: attempt 1," in log
    assert "tools: exec, wait (" in log
    assert "nacre.debug.sse" in log
    assert (API_KEY in log, TOKEN in log) == (False, False)


async def test_whole_payloads_are_logged_redacted(home: Home) -> None:
    await home.configure(tools=CODE_MODE)
    secret = "sk-live-0123456789abcdefghijklmnop"
    marker = home.model.script(Say(f"I shall not repeat {secret}."))
    async with home.gateway(
        OPENCLAW_DEBUG_MODEL_PAYLOAD="full-redacted", OPENCLAW_DEBUG_SSE="peek"
    ) as gateway:
        await gateway.finished(f"my key is {secret} {marker}")
        gateway.process.send_signal(signal.SIGTERM)
        await gateway.process.wait()
    log = gateway.logs.text
    assert "my key is" in log
    assert '"messages":' in log.replace('": ', '":')
    assert (secret in log, API_KEY in log, TOKEN in log) == (False, False, False)


class Talk:
    """Sessions that talk to a gateway at once, and note what they saw finished."""

    def __init__(self, gateway: Gateway, markers: list[str]) -> None:
        self._gateway = gateway
        self._markers = markers
        self.seen: defaultdict[str, list[str]] = defaultdict(list)
        """By session: the texts of the turns whose end was told."""
        self.is_enough = anyio.Event()

    async def go_on(self, session: int) -> None:
        key = f"session-{session}"
        number = 0
        while True:
            number += 1
            text = f"turn {number} {self._markers[session]}"
            try:
                run_id = await self._gateway.start(text, sessionKey=key)
                ending = ""
                async for event in self._gateway.follow(run_id):
                    ending = event.kind
            except httpx2.TransportError:
                # The gateway is dead.
                return
            if ending not in ENDINGS:
                return
            assert ending == "run.completed"
            self.seen[key].append(text)
            if sum(map(len, self.seen.values())) >= TURNS_BEFORE_KILL:
                self.is_enough.set()


def numbered(request: RecordedRequest) -> PlainTurn:
    """Every turn: a program, then an answer."""
    if request.messages[-1].role == "user":
        return Call("exec", {"code": "return await tools.kit_add({a: 1, b: 2})"})
    return Say(f"answer to {request.prompt}")


@pytest.fixture
async def killed(home: Home) -> tuple[Home, dict[str, list[str]]]:
    """A place in which a gateway was killed in the middle of many turns."""
    await home.configure(tools=CODE_MODE)
    markers = [home.model.play(numbered) for _ in range(SESSIONS)]
    async with home.gateway() as gateway:
        talk = Talk(gateway, markers)
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                for session in range(SESSIONS):
                    tasks.start_soon(talk.go_on, session)
                await talk.is_enough.wait()
                await gateway.kill()
    return home, talk.seen


async def test_after_a_kill_every_turn_that_was_seen_to_end_is_there_and_none_is_half(
    killed: tuple[Home, dict[str, list[str]]],
) -> None:
    home, seen = killed
    async with home.gateway() as gateway:
        sessions = (await gateway.get("/api/sessions"))["sessions"]
        by_key = {session["key"]: session["id"] for session in sessions}
        assert set(by_key) >= set(seen)
        for key, texts in seen.items():
            whole = await gateway.get(f"/api/sessions/{by_key[key]}?turns=200")
            check_whole(whole, texts)
            run = await gateway.finished("and on", sessionKey=key)
            assert (run["state"], run["result"]["text"]) == ("completed", "answer to and on")


def check_whole(session: dict[str, Any], seen: list[str]) -> None:
    turns = session["turns"]
    assert [turn["prompt"] for turn in turns[: len(seen)]] == seen
    assert {turn["status"] for turn in turns[: len(seen)]} <= {"completed"}
    # At most one was under way when the gateway died: ended unseen, or cut off.
    assert len(turns) <= len(seen) + 1
    roles = ["user", "assistant", "tool", "assistant"]
    finished = [turn for turn in turns if turn["status"] == "completed"]
    assert [message["role"] for message in session["messages"]] == roles * len(finished)
    for turn in finished:
        (call,) = turn["calls"]
        assert [child["toolName"] for child in call["children"]] == ["kit_add"]
    assert all(turn["status"] in ("completed", "interrupted") for turn in turns)
