"""What clients show: answers, or only what the agent sends with its `message` tool."""

from pathlib import Path
from typing import Any

import pytest

from nacre.testing import Call, Say
from tests.contract.requirements import requirement
from tests.gateway.worlds import World, open_gateway

PRIVATE: dict[str, Any] = {"messages": {"visibleReplies": "message_tool"}}
SENT = [Call("message", {"action": "send", "text": "It is done."}), Say("I told them.")]


async def chat(world: World) -> str:
    body = {"model": "nacre", "messages": [{"role": "user", "content": "go"}]}
    answer = await world.client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


@requirement("codex:visible-replies-message-tool")
async def test_the_answer_is_private_and_sent_messages_are_the_reply(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [*SENT, *SENT, *SENT], PRIVATE) as world:
        run = await world.finished("go")
        content = await chat(world)
        body = {"model": "nacre", "input": "go"}
        response = (await world.client.post("/v1/responses", json=body)).json()
        events = world.run(run["runId"]).events.events
        asked = world.model.requests[0].body["messages"]
    async with open_gateway(tmp_path) as world:
        again = await world.get(f"/api/runs/{run['runId']}")
        session = await world.get(f"/api/sessions/{run['sessionId']}")
        stored = await world.get(f"/v1/responses/{response['id']}")

    assert "call the tool `message`" in str(asked)
    result = run["result"]
    assert (result["text"], result["privateText"]) == ("", "I told them.")
    assert (result["visibility"], result["sent"]) == ("private", ["It is done."])
    assert events[0].data["visibleReplies"] == "message_tool"
    assert not [event for event in events if event.kind == "text.delta"]
    assert events[-1].data["text"] == ""
    assert content == "It is done."
    texts = [item["content"][0]["text"] for item in response["output"]]
    assert texts == ["It is done."]
    assert [item["content"][0]["text"] for item in stored["output"]] == texts
    assert again["result"] == {**result, "media": []}
    [turn] = session["turns"]
    assert (turn["visibility"], turn["sent"]) == ("private", ["It is done."])


@requirement("codex:visible-replies-fallback")
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"tools": {"deny": ["message"]}}, {}),
        ({"tools": {"allow": ["read"]}}, {}),
        ({}, {"disableTools": True}),
    ],
)
async def test_without_the_message_tool_the_answer_is_visible(
    tmp_path: Path, settings: dict[str, Any], options: dict[str, Any]
) -> None:
    async with open_gateway(tmp_path, [Say("Hello.")], {**PRIVATE, **settings}) as world:
        run = await world.finished("go", **options)
        asked = world.model.requests[0].body["messages"]
    assert (run["result"]["text"], run["result"]["visibility"]) == ("Hello.", "visible")
    assert "private" not in str(asked)


@requirement("codex:visible-replies-automatic")
async def test_answers_are_visible_by_default_and_silent_ones_are_hidden(tmp_path: Path) -> None:
    script = [
        *[Call("message", {"text": "Done."}), Say("Done.")],
        Say("NO_REPLY"),
        Say("NO_REPLY"),
        Say("Plain."),
    ]
    async with open_gateway(tmp_path, script) as world:
        repeated = await world.finished("go")
        silent = await world.finished("go")
        content = await chat(world)
        plain = await world.finished("go")
        shown = [it.kind for it in world.run(silent["runId"]).events.events]
    assert (repeated["result"]["visibility"], repeated["result"]["sent"]) == ("silent", ["Done."])
    assert (silent["result"]["text"], silent["result"]["visibility"]) == ("", "silent")
    assert "text.delta" not in shown
    assert content == ""
    assert (plain["result"]["text"], plain["result"]["visibility"]) == ("Plain.", "visible")


async def test_openai_clients_get_a_link_to_each_file(tmp_path: Path) -> None:
    (tmp_path / "a[1].png").write_bytes(b"\x89PNG\r\n\x1a\n")
    script = [Call("message", {"attachments": ["a[1].png"]}), Say("Done.")]
    async with open_gateway(tmp_path, script) as world:
        content = await chat(world)
        link = content.partition("(/")[2].partition(")")[0]
        answer = await world.client.get(f"/{link}")
    assert content.startswith("![a(1).png](/api/media/media_")
    assert content.endswith("Done.")
    assert answer.content == b"\x89PNG\r\n\x1a\n"
