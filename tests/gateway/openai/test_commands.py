"""Chat commands over HTTP: our API, both OpenAI APIs, and the rights that a token gives."""

from pathlib import Path
from typing import Any

import pytest

from nacre.testing import Call, Say
from nacre.testing.scripted_provider import ScriptedProvider
from tests.contract.requirements import requirement
from tests.gateway.openai.conftest import CHAT_WEATHER, OpenWorld, user
from tests.gateway.worlds import World, open_gateway, open_world


def said(world: Any, index: int = -1) -> list[str]:
    messages = world.model.requests[index].messages
    return [message.text for message in messages if message.role != "system"]


async def test_commands_are_listed_with_their_scopes(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        listed = {it["name"]: it for it in (await world.get("/api/commands"))["commands"]}
    assert listed["stop"]["aliases"] == ["abort"]
    assert listed["queue"]["arguments"] == "[steer|followup|collect|default]"
    assert {name: listed[name]["requiredScope"] for name in ("help", "approve")} == {
        "help": "run",
        "approve": "approve",
    }


@requirement("codex:chat-commands")
async def test_a_command_is_a_completed_run_that_survives_a_restart(tmp_path: Path) -> None:
    async with ScriptedProvider([Say("hello")]) as model:
        async with open_world(tmp_path, model) as world:
            empty = await world.finished("/status")
            assert (empty["sessionId"], empty["isKept"]) == ("", False)
            assert "Runtime: Nacre" in empty["result"]["text"]
            first = await world.finished("hi", sessionKey="chat")
            chosen = await world.finished("/queue collect", sessionKey="chat")
            events = await world.events(f"/api/runs/{chosen['runId']}/events")
            assert [it.kind for it in events] == [
                "run.started",
                "message.completed",
                "run.completed",
            ]
            assert chosen["sessionId"] == first["sessionId"]
            assert len(model.requests) == 1
        async with open_world(tmp_path, model) as world:
            again = await world.get(f"/api/runs/{chosen['runId']}")
            assert again["result"] == {**chosen["result"], "model": again["result"]["model"]}
            shown = await world.get(f"/api/sessions/{first['sessionId']}")
            assert shown["session"]["queueMode"] == "collect"
            turn = shown["turns"][-1]
            assert (turn["prompt"], turn["surface"]) == ("/queue collect", "command")
            assert turn["reply"] == chosen["result"]["text"]
            assert [it["text"] for it in shown["messages"]] == ["hi", "hello"]
            # The answer names the session that the client continues.
            renewed = await world.finished("/new", sessionId=first["sessionId"])
            assert renewed["sessionId"] not in ("", first["sessionId"])


def scoped(*scopes: str) -> dict[str, Any]:
    token = {"token": "other-0123456789abcdef", "scopes": list(scopes)}
    return {"gateway": {"auth": {"token": "0123456789abcdef-test", "tokens": {"other": token}}}}


async def ask_for_approvals(world: World) -> str:
    """The reply to `/approve`, sent with the other token."""
    answer = await world.client.post(
        "/api/runs",
        json={"text": "/approve"},
        headers={"authorization": "Bearer other-0123456789abcdef"},
    )
    await world.end_of(answer.json()["runId"])
    result = world.run(answer.json()["runId"]).result
    assert result is not None
    return result.text


@requirement("codex:owner-only-commands")
@pytest.mark.parametrize(
    ("document", "is_allowed"),
    [
        (scoped("read", "run"), False),
        (scoped("run", "approve"), True),
        (scoped("admin"), True),
        ({"gateway": {"auth": {"mode": "none"}}}, True),
    ],
    ids=["run", "approve", "admin", "no authentication"],
)
async def test_the_scopes_of_the_token_decide_about_restricted_commands(
    tmp_path: Path, document: dict[str, Any], is_allowed: bool
) -> None:
    async with open_gateway(tmp_path, document=document) as world:
        text = await ask_for_approvals(world)
        assert text.startswith("No approval is open." if is_allowed else "You may not use /approve")


async def test_a_client_with_its_own_history_gets_replies_that_no_model_reads(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([Say("hello"), Say("again")]) as world:
        first = await world.chat("hi")
        messages = [user("hi"), {"role": "assistant", "content": "hello"}, user("/status")]
        status = await world.chat(messages)
        text = status.choices[0].message.content
        assert "Session: none yet" in text
        assert status.usage.total_tokens == 0
        stream = await world.chat("/help", stream=True)
        chunks = [it.choices[0].delta.content or "" async for it in stream if it.choices]
        assert "/status" in "".join(chunks)
        messages += [{"role": "assistant", "content": text}, user("more")]
        await world.chat(messages)
        assert first.choices[0].message.content == "hello"
        assert said(world) == ["hi", "hello", "more"]
        # Nothing of it is stored.
        assert (await world.world.get("/api/sessions"))["sessions"] == []


async def test_a_command_leaves_a_run_that_waits_for_its_client(open_openai: OpenWorld) -> None:
    header = {"x-nacre-session-key": "mine"}
    async with open_openai([Call("weather", {"city": "Oslo"}), Say("Cold.")]) as world:
        first = await world.chat("Oslo?", tools=[CHAT_WEATHER], extra_headers=header)
        (call,) = first.choices[0].message.tool_calls
        status = await world.chat("/status", extra_headers=header)
        assert "(waiting, for " in status.choices[0].message.content
        answer = await world.chat(
            [
                user("Oslo?"),
                {"role": "assistant", "tool_calls": [call.model_dump()]},
                {"role": "tool", "tool_call_id": call.id, "content": "-3"},
            ],
            extra_headers=header,
        )
        assert answer.choices[0].message.content == "Cold."


async def test_a_response_goes_on_after_commands_also_from_an_earlier_one(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([Say("one"), Say("two"), Say("three"), Say("four")]) as world:
        first = await world.respond("/help")
        second = await world.respond("a", previous_response_id=first.id)
        status = await world.respond("/status", previous_response_id=second.id)
        assert "(2 messages)" in status.output_text
        await world.respond("b", previous_response_id=status.id)
        assert said(world) == ["a", "one", "b"]
        await world.respond("c", previous_response_id=status.id)
        assert said(world) == ["a", "one", "c"]
        renewed = await world.respond("/new", previous_response_id=status.id)
        await world.respond("d", previous_response_id=renewed.id)
        assert said(world) == ["d"]
        assert (await world.client.responses.retrieve(status.id)).output_text == status.output_text
    async with open_openai() as world:
        assert (await world.client.responses.retrieve(status.id)).output_text == status.output_text
