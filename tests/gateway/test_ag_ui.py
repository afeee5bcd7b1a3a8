"""AG-UI: the stream is read with the types of the protocol's own library."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import anyio
import httpx2
from ag_ui.core import Event
from pydantic import TypeAdapter

from nacre.testing import Call, Say, Think
from tests.gateway.worlds import CODE_MODE, PATIENCE_SECONDS, TOKEN, World, open_gateway

EVENT: TypeAdapter[Any] = TypeAdapter(Event)


PNG = b"\x89PNG\r\n\x1a\n pearl"


def data_source(data: bytes, media_type: str) -> dict[str, str]:
    return {"type": "data", "value": b64encode(data).decode(), "mimeType": media_type}


def user(text: str) -> dict[str, str]:
    return {"id": "m", "role": "user", "content": text}


async def send(world: World, *messages: dict[str, Any], **more: object) -> httpx2.Response:
    body = {"threadId": "reef", "runId": "r1", "messages": list(messages), **more}
    with anyio.fail_after(PATIENCE_SECONDS):
        return await world.client.post("/api/ag-ui", json=body)


async def events(world: World, *messages: dict[str, Any], **more: object) -> list[Any]:
    answer = await send(world, *messages, **more)
    assert answer.status_code == 200, answer.text
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    return [EVENT.validate_json(line.removeprefix("data: ")) for line in lines]


def kinds(found: list[Any]) -> list[str]:
    return [str(event.type.value) for event in found]


async def test_a_run_streams_messages_reasoning_and_nested_calls(tmp_path: Path) -> None:
    script = [
        Call("exec", {"code": "return (await tools.list({})).entries.length"}),
        [Think("Hm."), Say("Three pearls.")],
        Say("Still three."),
    ]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        found = await events(world, user("count"))
        again = await events(world, user("count"), user("sure?"))
        [session] = (await world.get("/api/sessions"))["sessions"]
    assert kinds(found)[0] == "RUN_STARTED" and kinds(found)[-1] == "RUN_FINISHED"
    text = "".join(it.delta for it in found if it.type.value == "TEXT_MESSAGE_CONTENT")
    assert text == "Three pearls."
    starts = [it for it in found if it.type.value == "TOOL_CALL_START"]
    assert [it.tool_call_name for it in starts] == ["exec", "list"]
    assert starts[1].metadata == {"parentToolCallId": starts[0].tool_call_id}
    results = {it.tool_call_id for it in found if it.type.value == "TOOL_CALL_RESULT"}
    assert results == {it.tool_call_id for it in starts}
    for kind in ("TEXT_MESSAGE", "TOOL_CALL", "REASONING_MESSAGE"):
        assert kinds(found).count(f"{kind}_START") == kinds(found).count(f"{kind}_END") > 0
    assert found[-1].outcome.type == "success" and found[-1].result == {"text": "Three pearls."}
    assert again[-1].result == {"text": "Still three."}
    assert session["turnCount"] == 2 and session["key"] == "ag-ui:reef"


async def test_an_approval_is_an_interrupt_that_the_next_run_answers(tmp_path: Path) -> None:
    script = [Call("write", {"path": "a.txt", "content": "x"}), Say("Written.")]
    async with open_gateway(tmp_path, script, {"tools": {"fs": {"ask": "always"}}}) as world:
        asked = await events(world, user("write"))
        assert not (tmp_path / "a.txt").exists()
        [interrupt] = asked[-1].outcome.interrupts
        whole = await world.get(interrupt.metadata["inputUrl"])
        wrong = {"interruptId": "none", "status": "resolved", "payload": True}
        unknown = await send(world, resume=[wrong])
        odd = {"interruptId": interrupt.id, "status": "resolved", "payload": "maybe"}
        unclear = await send(world, resume=[odd])
        entry = {**odd, "payload": {"answer": "allow-once"}}
        half = await send(world, resume=[entry, wrong])
        done = await events(world, resume=[entry])
        late = await send(world, resume=[entry])
    assert (asked[-1].type.value, asked[-1].outcome.type) == ("RUN_FINISHED", "interrupt")
    assert interrupt.reason == "approval" and interrupt.tool_call_id
    assert whole["approvalId"] == interrupt.id and whole["input"]["path"]
    assert [it.status_code for it in (unknown, unclear, half, late)] == [409, 422, 409, 409]
    assert done[-1].result == {"text": "Written."}
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "x"


async def test_a_token_that_cannot_approve_cannot_resume_an_interrupt(tmp_path: Path) -> None:
    token = "0123456789abcdef-runs"
    tokens = {"ci": {"token": token, "scopes": ["read", "run"]}}
    document = {
        "tools": {"fs": {"ask": "always"}},
        "gateway": {"auth": {"token": TOKEN, "tokens": tokens}},
    }
    script = [Call("write", {"path": "a.txt", "content": "x"}), Say("Not written.")]
    async with open_gateway(tmp_path, script, document) as world:
        owner = world.client.headers["authorization"]
        world.client.headers["authorization"] = f"Bearer {token}"
        asked = await events(world, user("write"))
        [interrupt] = asked[-1].outcome.interrupts
        entry = {"interruptId": interrupt.id, "status": "resolved", "payload": True}
        refused = await send(world, resume=[entry])
        world.client.headers["authorization"] = owner
        done = await events(world, resume=[{**entry, "payload": False}])
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "missing_scope"
    assert done[-1].result == {"text": "Not written."}
    assert not (tmp_path / "a.txt").exists()


async def test_a_tool_of_the_front_end_is_answered_by_a_tool_message(tmp_path: Path) -> None:
    tool = {"name": "color", "description": "Pick", "parameters": {"type": "object"}}
    async with open_gateway(tmp_path, [Call("color", {}), Say("Blue it is.")]) as world:
        asked = await events(world, user("pick"), tools=[tool])
        [call_id] = asked[-1].outcome.pending_tool_call_ids
        answer = {"id": "t", "role": "tool", "toolCallId": call_id, "content": "blue"}
        done = await events(world, user("pick"), answer, tools=[tool])
    assert asked[-1].outcome.type == "success"
    assert [it.tool_call_id for it in asked if it.type.value == "TOOL_CALL_START"] == [call_id]
    assert done[-1].result == {"text": "Blue it is."}


async def test_files_of_a_message_reach_the_model(tmp_path: Path) -> None:
    content = [
        {"type": "text", "text": "Compare these."},
        {"type": "image", "source": data_source(PNG, "image/png")},
        {"type": "image", "source": {"type": "url", "value": "https://pearls.example/a.png"}},
        {"type": "document", "source": data_source(b"a note", "text/plain")},
        {
            "type": "document",
            "source": data_source(b"%PDF-1.7 \0", "application/pdf"),
            "metadata": {"filename": "paper.pdf"},
        },
    ]
    async with open_gateway(tmp_path, [Say("They are equal."), Say("A picture.")]) as world:
        await events(world, {**user(""), "content": content})
        await events(world, {**user(""), "content": content[1:2]})
        first, second = (str(request.body["messages"]) for request in world.model.requests)
    encoded = b64encode(PNG).decode()
    assert "Compare these." in first and first.count(encoded) == 1
    assert f"data:image/png;base64,{encoded}" in first and "https://pearls.example/a.png" in first
    assert "a note" in first
    [file] = (tmp_path / "uploads").iterdir()
    assert file.name.endswith("paper.pdf") and f"uploads/{file.name}" in first
    assert second.count(encoded) == 2


async def test_files_of_a_reply_are_parts_of_the_result_that_sends_them(tmp_path: Path) -> None:
    (tmp_path / "pearl.png").write_bytes(PNG)
    (tmp_path / "notes.txt").write_bytes(b"notes")
    given: dict[str, Any] = {"text": "look", "attachments": ["pearl.png", "notes.txt"]}
    async with open_gateway(tmp_path, [Call("message", given), Say("Sent.")]) as world:
        found = await events(world, user("draw"))
        [result] = [it for it in found if it.type.value == "TOOL_CALL_RESULT"]
        text, image, document = result.content
        shown = await world.client.get(image.source.value)
    assert (text.type, image.type, document.type) == ("text", "image", "document")
    assert image.source.mime_type == "image/png" and shown.content == PNG
    assert document.metadata == {"filename": "notes.txt"}
    assert [it["name"] for it in found[-1].result["media"]] == ["pearl.png", "notes.txt"]


async def test_parts_of_a_tool_message_reach_the_model_as_text_without_the_data_of_images(
    tmp_path: Path,
) -> None:
    tool = {"name": "camera", "description": "Look", "parameters": {"type": "object"}}
    async with open_gateway(tmp_path, [Call("camera", {}), Say("A pearl.")]) as world:
        asked = await events(world, user("look"), tools=[tool])
        [call_id] = asked[-1].outcome.pending_tool_call_ids
        parts = [
            {"type": "text", "text": "taken at dawn"},
            {"type": "image", "source": data_source(PNG, "image/png")},
        ]
        answer = {"id": "t", "role": "tool", "toolCallId": call_id, "content": parts}
        await events(world, user("look"), answer, tools=[tool])
        request = world.model.requests[-1]
    [result] = request.tool_results
    assert result == "taken at dawn\n[image image/png, 14 bytes]"


async def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    sources = [
        {"type": "data", "value": "%%%", "mimeType": "image/png"},
        {"type": "data", "value": "", "mimeType": "image/png"},
        {"type": "url", "value": "http://pearls.example/a.png"},
        {"type": "file", "value": "file-1", "provider": "openai"},
    ]
    async with open_gateway(tmp_path, []) as world:
        for source in sources:
            content = [{"type": "text", "text": "see"}, {"type": "image", "source": source}]
            answer = await send(world, {**user(""), "content": content})
            assert answer.status_code == 422
            path = answer.json()["error"]["path"]
            assert path.startswith("body.messages[0].content[1].source")
        blank = await send(world, {**user(""), "content": [{"type": "text", "text": " "}]})
        assert blank.json()["error"]["path"] == "body.messages[0].content"
        assert world.model.requests == []


async def test_bad_input_has_a_clear_error(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, []) as world:
        nothing = await send(world)
        malformed = await world.client.post("/api/ag-ui", json={"threadId": 1})
        failed = await events(world, user("hello"))
    assert (nothing.status_code, malformed.status_code) == (422, 422)
    assert failed[-1].type.value == "RUN_ERROR" and failed[-1].message
