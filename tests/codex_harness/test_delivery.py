"""What users see of turns in the real Codex: heartbeats, private answers and images."""

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from nacre.agent import Heartbeats
from nacre.codex_harness.threads import ThreadBindings
from nacre.gateway.app import create_app
from nacre.testing import Call, Raw, Say, Think
from nacre.testing.http_server import serving
from nacre.testing.script import RecordedRequest
from tests.codex_harness.codex_setup import HAS_CONTEXT, fake_server
from tests.codex_harness.test_harness import Setup, open_setup
from tests.contract.requirements import requirement

pytestmark = pytest.mark.anyio

PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
ALERT = {"outcome": "needs_attention", "notify": True, "summary": "the disk is full"}


def search(query: str) -> Call:
    return Call("tool_search", {"query": query, "limit": 3}, kind="tool_search")


def developer_texts(request: RecordedRequest) -> list[str]:
    items: Any = request.body["input"]
    return [
        part["text"]
        for item in items
        if item.get("role") == "developer"
        for part in item["content"]
    ]


async def wake(setup: Setup) -> Any:
    report = await Heartbeats(setup.system.agents, setup.system.store).wake("main")
    assert report.run is not None
    with anyio.fail_after(60):
        await report.run.wait()
    return report


@requirement("codex:heartbeat-collaboration-mode", "codex:heartbeat-respond-searchable")
async def test_a_heartbeat_has_instructions_that_ordinary_turns_do_not_have(
    tmp_path: Path,
) -> None:
    script = [
        Say("Hello."),
        search("heartbeat respond"),
        Call("heartbeat_respond", json.dumps(ALERT), namespace="openclaw"),
        Say("I told them."),
        Say("I will look."),
    ]
    agent = {"workspace": "workspace", "heartbeat": {"every": "1h", "target": "last"}}
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "HEARTBEAT.md").write_text("- look after the disk of Ada\n")
    async with open_setup(tmp_path, script, agent=agent) as setup:
        first = await setup.turn("hi")
        bindings = ThreadBindings(setup.system.store)
        before = await bindings.find(first.session_id)
        report = await wake(setup)
        last = await setup.turn("and now?")
        after = await bindings.find(first.session_id)
        kept = [it.message for it in await setup.system.store.messages(first.session_id)]
        requests = setup.provider.requests

    # One thread for all of them, with the same tools.
    assert before is not None
    assert after is not None
    assert before.thread_id == after.thread_id
    assert (report.status, report.run.events.sent) == ("notified", ["the disk is full"])
    assert last.result is not None
    assert last.result.reply == "I will look."
    new = [set(developer_texts(requests[1])) - set(developer_texts(requests[0]))]
    new.append(set(developer_texts(requests[-1])) - set(developer_texts(requests[-2])))
    assert any("This turn is a heartbeat. Nacre has woken you" in text for text in new[0])
    assert any("HEARTBEAT.md in the workspace says" in text for text in new[0])
    # The file is named, and its content is not in the request.
    assert "disk of Ada" not in json.dumps(requests[1].body)
    # The next turn is in Codex's own mode again. Older versions say so without a message.
    assert new[1] or not HAS_CONTEXT
    assert not any("has woken you" in text for text in new[1])
    assert [getattr(message, "text", "") for message in kept] == [
        *["hi", "Hello."],
        *["[heartbeat]", "the disk is full"],
        *["and now?", "I will look."],
    ]


@requirement("codex:visible-replies-message-tool")
async def test_with_message_tool_the_tool_is_direct_and_the_answer_private(tmp_path: Path) -> None:
    script = [Call("message", {"action": "send", "text": "It is done."}), Say("I told them.")]
    replies = {"messages": {"visibleReplies": "message_tool"}}
    async with open_setup(tmp_path, script, replies) as setup:
        run = await setup.turn("go")
        names = setup.provider.requests[0].tool_names
    assert "message" in names
    assert run.result is not None
    assert (run.result.visibility, run.result.reply) == ("private", "It is done.")
    assert not [event for event in run.events.events if event.kind == "text.delta"]


@requirement("codex:visible-replies-fallback")
async def test_without_the_message_tool_the_answer_is_visible(tmp_path: Path) -> None:
    replies = {"messages": {"visibleReplies": "message_tool"}}
    codex = {"codexDynamicToolsExclude": ["message"]}
    async with open_setup(tmp_path, [Say("Hello.")], replies, codex=codex) as setup:
        run = await setup.turn("go")
        asked = json.dumps(setup.provider.requests[0].body)
    assert run.result is not None
    assert (run.result.visibility, run.result.reply) == ("visible", "Hello.")
    assert "Your final answer is private" not in asked


@requirement("codex:image-saved-path")
@pytest.mark.parametrize("visible", ["automatic", "message_tool"])
async def test_a_generated_image_is_delivered_once_also_without_text(
    tmp_path: Path, visible: str
) -> None:
    # The tool of the real Codex needs an account of ChatGPT.
    picture = tmp_path / "ig_1.png"
    picture.write_bytes(PNG)
    codex = {"appServer": fake_server(f"image={picture}")}
    document = {"messages": {"visibleReplies": visible}}
    async with open_setup(tmp_path, [], document, codex=codex) as setup:
        run = await setup.turn("draw a pearl")
        assert run.result is not None
        assert (run.result.error, run.result.text) == ("", "")
        [record] = run.result.media
        found = await setup.system.store.media.find(record.id)
    [item] = run.media.items
    assert (record.name, record.type) == ("ig_1.png", "image/png")
    assert (found, item.path) == ((record, PNG), str(picture))
    added = [event.data["id"] for event in run.events.events if event.kind == "media.added"]
    assert added == [record.id]


@requirement("codex:image-saved-path")
@pytest.mark.skipif(HAS_CONTEXT, reason="newer versions draw only with an account of ChatGPT")
async def test_an_image_of_the_real_codex_is_delivered(tmp_path: Path) -> None:
    item = {"type": "image_generation_call", "id": "ig_7", "status": "completed"}
    drawn = {**item, "revised_prompt": "a pearl", "result": b64encode(PNG).decode()}
    event = {"type": "response.output_item.done", "output_index": 0, "item": drawn}
    raw = Raw(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n")
    async with open_setup(tmp_path, [[Think("Hm."), raw]]) as setup:
        run = await setup.turn("draw a pearl")
        assert run.result is not None
        assert (run.result.error, run.result.text) == ("", "")
        [record] = run.result.media
        found = await setup.system.store.media.find(record.id)
    assert (found, record.type) == ((record, PNG), "image/png")
    [media] = run.media.items
    assert "generated_images" in media.path


@requirement("codex:delivery", "codex:mirror-search")
async def test_every_entry_point_reaches_the_same_thread_and_its_mirror_is_found(
    tmp_path: Path,
) -> None:
    token = "0123456789abcdef-test"
    script = [Say(f"answer {number}") for number in range(3)]
    gateway = {"gateway": {"auth": {"token": token}}}
    headers = {"authorization": f"Bearer {token}", "x-nacre-session-key": "ada"}
    async with (
        open_setup(tmp_path, script, gateway) as setup,
        serving(create_app(setup.system)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as http,
    ):
        asked = {"text": "through the API", "sessionKey": "ada", "channel": "web"}
        started = (await http.post("/api/runs", json=asked)).json()
        run = setup.system.agents.run(started["runId"])
        assert run is not None
        with anyio.fail_after(60):
            assert (await run.wait()).text == "answer 0"
        messages = [{"role": "user", "content": "as a chat completion"}]
        chat = await http.post(
            "/v1/chat/completions", json={"model": "nacre", "messages": messages}
        )
        assert chat.json()["choices"][0]["message"]["content"] == "answer 1"
        response = await http.post(
            "/v1/responses", json={"model": "nacre", "input": "as a response"}
        )
        assert response.json()["output"][-1]["content"][0]["text"] == "answer 2"
        # One thread: the model has read all of it.
        read = " ".join(message.text for message in setup.provider.requests[-1].messages)
        assert all(text in read for text in ("through the API", "as a chat completion", "answer 1"))
        hits = await setup.system.store.search("completion")
        assert [hit.session_id for hit in hits] == [run.session_id]


async def test_a_saved_path_of_another_file_is_not_delivered(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_text("root:x:0:0", encoding="utf-8")
    codex = {"appServer": fake_server(f"image={secret}")}
    async with open_setup(tmp_path, [], codex=codex) as setup:
        run = await setup.turn("draw a pearl")
    assert run.result is not None
    assert (run.state, run.result.media) == ("completed", ())


async def test_a_turn_is_stored_though_codex_reports_an_impossible_number_of_tokens(
    tmp_path: Path,
) -> None:
    picture = tmp_path / "ig_1.png"
    picture.write_bytes(PNG)
    codex = {"appServer": fake_server(f"image={picture}", f"tokens={2**63}")}
    async with open_setup(tmp_path, [], codex=codex) as setup:
        run = await setup.turn("draw a pearl")
        [turn] = await setup.system.store.turns(run.session_id)
    assert run.result is not None
    assert (run.state, turn.error, turn.usage.input_tokens) == ("completed", "", 10**12)
