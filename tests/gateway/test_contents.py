"""Messages that are sent twice, files that are attached, and values that are too long to show."""

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.errors import StorageError
from nacre.messages import ImagePart, UserMessage
from nacre.storage import Store
from nacre.testing import Call, Say, ScriptedProvider
from tests.gateway.worlds import CODE_MODE, World, open_gateway, open_world

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


def key(name: str) -> dict[str, str]:
    return {"idempotency-key": name}


# Idempotency keys.


async def test_a_message_that_is_sent_again_is_taken_once_also_after_a_restart(
    tmp_path: Path,
) -> None:
    async with ScriptedProvider([Say("one"), Say("two")]) as model:
        async with open_world(tmp_path, model) as world:
            body = {"text": "hello"}
            answers: list[dict[str, Any]] = []

            async def send() -> None:
                answer = await world.client.post("/api/runs", json=body, headers=key("k"))
                assert answer.status_code == 202, answer.text
                assert answer.headers["location"] == f"/api/runs/{answer.json()['runId']}"
                answers.append(answer.json())

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(send)
            await world.end_of(answers[0]["runId"])
            named = await world.start("hello", idempotencyKey="k")
            other = await world.start("hello", idempotencyKey="other")
            await world.end_of(other["runId"])
        async with open_world(tmp_path, model) as world:
            await send()
            used = await world.client.post("/api/runs", json={"text": "x"}, headers=key("k"))
    assert all(it == answers[0] for it in answers)
    assert named == answers[0]
    assert other["runId"] != answers[0]["runId"]
    assert len(model.requests) == 2
    assert (used.status_code, used.json()["error"]["code"]) == (409, "conflict")


async def test_keys_of_different_sessions_are_different(tmp_path: Path) -> None:
    places = [
        {"sessionKey": "a", "idempotencyKey": "k"},
        {"sessionKey": "b", "idempotencyKey": "k"},
        {"sessionKey": "a", "idempotencyKey": "k", "agentId": "other"},
        {"sessionKey": "a\nk", "idempotencyKey": "x"},
        {"sessionKey": "a", "idempotencyKey": "k\nx"},
    ]
    document = {"agents": {"list": [{"id": "main"}, {"id": "other"}]}}
    script = [Say(str(number)) for number in range(len(places))]
    async with open_gateway(tmp_path, script, document) as world:
        runs: set[str] = set()
        for place in places:
            started = await world.start("hello", **place)
            runs.add(started["runId"])
            await world.end_of(started["runId"])
        again = await world.start("hello", **places[0])
    assert len(runs) == len(places) and again["runId"] in runs


async def test_a_refused_message_can_be_sent_again_with_its_key(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [Say("one")]) as world:
        body = {"text": "hello", "sessionId": "nothing"}
        for _ in range(2):
            answer = await world.client.post("/api/runs", json=body, headers=key("k"))
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_an_unfinished_first_request_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    async with ScriptedProvider([Say("one"), Say("two")]) as model:
        async with open_world(tmp_path, model) as world:
            # As if the gateway was killed before it could store the response.
            monkeypatch.setattr(Store, "put_value", fail)
            first = await world.start("hello", idempotencyKey="k")
            command = await world.start("/status", idempotencyKey="c")
            again = await world.start("hello", idempotencyKey="k")
            await world.end_of(first["runId"])
            await world.end_of(command["runId"])
        async with open_world(tmp_path, model) as world:
            later = await world.start("hello", idempotencyKey="k")
            # A command without a session leaves nothing in the database.
            lost = await world.client.post("/api/runs", json={"text": "/status"}, headers=key("c"))
    assert again["runId"] == later["runId"] == first["runId"]
    assert later == {**first, "state": "completed"}
    assert lost.status_code == 409
    assert "read the session" in lost.json()["error"]["message"]
    assert len(model.requests) == 1


# Uploads.


async def upload(world: World, data: bytes, name: str) -> dict[str, Any]:
    answer = await world.client.post("/api/uploads", content=data, params={"name": name})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_attached_files_reach_the_model_as_images_texts_and_files(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [Say("seen")]) as world:
        image = await upload(world, PNG, "../../a picture.png")
        text = await upload(world, "café".encode(), "notes.txt")
        # Longer than the name of a file may be, in bytes.
        other = await upload(world, b"%PDF-1.7 \x00\x01", f"{'論文' * 60}.pdf")
        shown = await world.client.get(f"/api/media/{image['mediaId']}")
        ids = [it["mediaId"] for it in (image, text, other)]
        run = await world.finished("look", attachments=ids)
        session = await world.get(f"/api/sessions/{run['sessionId']}")
    assert image == {**image, "name": "a picture.png", "type": "image/png", "bytes": len(PNG)}
    assert (shown.content, shown.headers["content-type"]) == (PNG, "image/png")
    asked = json.dumps(world.model.requests[0].body)
    assert base64.b64encode(PNG).decode() in asked
    message = session["messages"][0]
    assert "The attached file notes.txt:\n\ncafé" in message["text"]
    assert message["images"] == [{"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}]
    [path] = [*(tmp_path / "uploads").iterdir()]
    assert f"uploads/{path.name}" in message["text"]
    assert path.read_bytes() == b"%PDF-1.7 \x00\x01" and path.suffix == ".pdf"


async def test_a_link_in_the_workspace_does_not_lead_an_upload_elsewhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    workspace = tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    (workspace / "uploads").symlink_to(outside)
    agents = {"agents": {"defaults": {"model": "scripted/model", "workspace": str(workspace)}}}
    async with open_gateway(tmp_path, [Say("seen")], agents) as world:
        other = await upload(world, b"\x00", "x.bin")
        run = await world.finished(attachments=[other["mediaId"]])
        session = await world.get(f"/api/sessions/{run['sessionId']}")
    assert "could not be put into the workspace" in session["messages"][0]["text"]
    assert list(outside.iterdir()) == []


async def test_a_folder_that_becomes_a_link_does_not_lead_an_upload_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, uploads = tmp_path / "outside", tmp_path / "uploads"
    outside.mkdir()
    uploads.mkdir()
    open_file = os.open

    def swap_and_open(path: Any, flags: int, *more: Any, **named: Any) -> int:
        # At the last moment before the file is made, as a command of the agent could do it.
        if flags & os.O_CREAT and not uploads.is_symlink():
            uploads.rename(tmp_path / "moved")
            uploads.symlink_to(outside)
        return open_file(path, flags, *more, **named)

    async with open_gateway(tmp_path, [Say("seen")]) as world:
        other = await upload(world, b"\x00", "x.bin")
        monkeypatch.setattr(os, "open", swap_and_open)
        await world.finished(attachments=[other["mediaId"]])
    assert uploads.is_symlink()
    assert list(outside.iterdir()) == []


async def test_bad_uploads_and_attachments_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = {"gateway": {"maxBodyBytes": 1024}}
    async with open_gateway(tmp_path, document=limited) as world:
        empty = await world.client.post("/api/uploads", content=b"")
        large = await world.client.post("/api/uploads", content=bytes(1025))
        body: dict[str, Any] = {"text": "x", "attachments": ["upload_x"]}
        unknown = await world.client.post("/api/runs", json=body)
        old = await upload(world, b"text", "a.txt")
        monkeypatch.setattr("nacre.storage.media_store._MAX_UPLOADS_BYTES", 10)
        full = await world.client.post("/api/uploads", content=b"a second text")
        monkeypatch.setattr("nacre.storage.media_store.now", lambda: time.time() + 24 * 3600 + 1)
        body = {"attachments": [old["mediaId"]]}
        expired = await world.client.post("/api/runs", json=body)
    assert (empty.status_code, large.status_code) == (400, 413)
    assert (unknown.status_code, unknown.json()["error"]["path"]) == (404, "body.attachments[0]")
    assert expired.status_code == 404
    assert (full.status_code, full.json()["error"]["code"]) == (413, "uploads_full")
    assert world.model.requests == []


# Long values.


async def test_long_texts_are_cut_in_a_session_and_read_in_parts(tmp_path: Path) -> None:
    long = "ä" * 20_000
    code = f"/* {'x' * 20_000} */ return '{'y' * 30_000}'"
    script = [Call("exec", {"code": code}, call_id="c1"), Say(long)]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run = await world.finished(long)
        session = await world.get(f"/api/sessions/{run['sessionId']}")
        user, called, result, answer = session["messages"]
        base = f"/api/sessions/{run['sessionId']}/messages"
        whole = await world.get(f"{base}/{answer['sequence']}")
        part = await world.get(
            f"{base}/{answer['sequence']}", params={"offset": 5_000, "limit": 10}
        )
        given = await world.get(
            f"{base}/{called['sequence']}", params={"part": "arguments", "callId": "c1"}
        )
        content = await world.get(f"{base}/{result['sequence']}")
        call = f"/api/runs/{run['runId']}/calls"
        read = await world.get(f"{call}/c1")
        read_input = await world.get(f"{call}/c1", params={"part": "input", "offset": 10})
        missing = [
            f"{base}/99",
            f"{base}/{user['sequence']}?part=thinking",
            f"{base}/{called['sequence']}?part=arguments&callId=no",
            f"{base}/{user['sequence']}/images/0",
            f"{call}/no",
            "/api/runs/no/calls/c1",
            "/api/sessions/no/messages/0",
        ]
        statuses = [(await world.client.get(path)).status_code for path in missing]
    for message, name in ((user, "text"), (answer, "text")):
        assert message[name] == "ä" * 8_192
        assert message["contentCut"] == {"isCut": True, "bytes": 40_000}
    assert len(session["turns"][0]["prompt"]) == 8_192
    assert whole == {"text": long, "offset": 0, "total": 20_000, "nextOffset": None}
    assert part == {"text": "ä" * 10, "offset": 5_000, "total": 20_000, "nextOffset": 5_010}
    assert json.loads(given["text"]) == {"code": code}
    assert called["toolCalls"][0]["argumentsCut"]["bytes"] == len(given["text"].encode())
    assert result["contentCut"]["bytes"] == len(content["text"].encode())
    assert content["text"].startswith(result["content"])
    assert read["text"] == content["text"]
    assert given["text"][10:] == read_input["text"]
    assert statuses == [404] * len(missing)


async def test_a_nested_result_is_as_long_as_the_trajectory_has_it(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("z" * 50_000)
    code = "const found = await tools.read({path: 'long.txt'}); return found.text.length"
    script = [Call("exec", {"code": code}, call_id="c1"), Say("done")]
    async with ScriptedProvider(script) as model:
        async with open_world(tmp_path, model, CODE_MODE) as world:
            run = await world.finished()
            session = await world.get(f"/api/sessions/{run['sessionId']}")
            [outer] = session["turns"][0]["calls"]
            [nested] = outer["children"]
            path = f"/api/runs/{run['runId']}/calls/{nested['toolCallId']}"
            live = [await world.get(path, params={"part": it}) for it in ("result", "input")]
        async with open_world(tmp_path, model, CODE_MODE) as world:
            stored = [await world.get(path, params={"part": it}) for it in ("result", "input")]
    assert live == stored
    assert json.loads(live[0]["text"]) == nested["result"]
    assert json.loads(live[1]["text"]) == nested["input"] == {"path": "long.txt"}


async def test_a_large_image_of_a_message_has_an_address_of_its_own(tmp_path: Path) -> None:
    picture = PNG + bytes(20_000)
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    async with open_gateway(tmp_path, [Say("seen")]) as world:
        run = await world.finished("look", images=[url, "https://example.org/a.png"])
        session = await world.get(f"/api/sessions/{run['sessionId']}")
        [large, other] = session["messages"][0]["images"]
        shown = await world.client.get(large["url"])
        base = large["url"].rpartition("/")[0]
        missing = [(await world.client.get(f"{base}/{it}")).status_code for it in (1, 2)]
        stored = await world.system.store.message(run["sessionId"], 0)
    assert (shown.status_code, shown.content) == (200, picture)
    assert shown.headers["content-type"] == "image/png"
    assert "sandbox" in shown.headers["content-security-policy"]
    assert other["url"] == "https://example.org/a.png"
    assert missing == [404, 404]
    # The message itself is unchanged.
    assert stored is not None
    assert isinstance(stored.message, UserMessage)
    assert ImagePart(url=url) in stored.message.parts


# The size of the definitions of tools.


async def test_a_turn_says_how_many_bytes_of_tools_were_sent_and_saved(tmp_path: Path) -> None:
    script = [Call("exec", {"code": "return 1"}), Say("done")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run = await world.finished()
        session = await world.get(f"/api/sessions/{run['sessionId']}")
        events = await world.events(f"/api/runs/{run['runId']}/events")
        direct = await direct_bytes(tmp_path)
    [turn] = session["turns"]
    sizes = turn["toolBytes"]
    sent = [json.loads(it.text)["data"] for it in events if it.kind == "model.started"]
    assert len(sent) == 2
    assert sizes["sent"] == sum(it["toolBytes"] for it in sent)
    assert sizes["direct"] == 2 * direct
    assert (sizes["sentTokens"], sizes["directTokens"]) == (
        sizes["sent"] // 4,
        sizes["direct"] // 4,
    )
    assert json.loads(events[-1].text)["data"]["toolBytes"] == sizes
    assert run["result"]["toolBytes"] == sizes


async def direct_bytes(folder: Path) -> int:
    """What a request without code mode carries, as the provider counts it."""
    async with open_gateway(folder, [Say("hi")]) as world:
        run = await world.finished()
        events = await world.events(f"/api/runs/{run['runId']}/events")
        [started] = [json.loads(it.text) for it in events if it.kind == "model.started"]
        session = await world.get(f"/api/sessions/{run['sessionId']}")
    sizes = session["turns"][0]["toolBytes"]
    assert sizes["sent"] == sizes["direct"] == started["data"]["toolBytes"]
    # Without the brackets and commas of the list.
    return sizes["sent"] - 1 - len(started["data"]["toolNames"])
