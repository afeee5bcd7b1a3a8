"""Sessions over HTTP: searched, renamed, forked, exported and deleted."""

from pathlib import Path

import anyio
import pytest

from nacre.testing import Call, Say, Stall
from tests.gateway.worlds import CODE_MODE, PATIENCE_SECONDS, TOKEN, World, error_of, open_gateway

READER = {"authorization": "Bearer reader-0123456789abcdef"}
READER_ONLY = {"auth": {"token": TOKEN, "tokens": {"reader": {
    "token": "reader-0123456789abcdef", "scopes": ["read", "run"]}}}}  # fmt: skip


async def search(world: World, query: str, **more: object) -> list[tuple[str, str]]:
    found = await world.get("/api/search", params={"q": query, **more})
    return [(hit["role"], hit["sessionId"]) for hit in found["hits"]]


async def test_messages_are_found_with_their_match_marked_in_pages(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, lambda _request: Say("In the coral garden.")) as world:
        first = await world.finished("Where do pearls grow?")
        second = await world.finished("And the other Pearls?", title="Second")
        found = await world.get("/api/search", params={"q": "pearl", "limit": 2})
        rest = await world.get("/api/search", params={"q": "pearl", "before": found["nextCursor"]})
        assert len(found["hits"]) == 2 and rest["nextCursor"] is None
        hits = [*found["hits"], *rest["hits"]]
        assert {(hit["role"], hit["sessionId"]) for hit in hits} == {
            ("user", second["sessionId"]),
            ("title", first["sessionId"]),
            ("user", first["sessionId"]),
        }
        asked = next(hit for hit in hits if hit["runId"] == first["runId"])
        assert asked["snippet"] == [
            {"text": "Where do ", "isMatch": False},
            {"text": "pearls", "isMatch": True},
            {"text": " grow?", "isMatch": False},
        ]
        assert await search(world, "coral", agentId="nobody") == []
        assert len(await search(world, "coral", agentId="main")) == 2


async def test_any_text_can_be_searched(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, lambda _request: Say("In the coral garden.")) as world:
        for query in ('"', "' OR 1=1 --", "coral\0garden", "NEAR(", "* AND", "😀", "x" * 2000, ""):
            answer = await world.client.get("/api/search", params={"q": query})
            assert (answer.status_code, answer.json()["hits"]) == (200, []), query
        too_long = await world.client.get("/api/search", params={"q": "x" * 2001})
        wrong_cursor = await world.client.get("/api/search", params={"q": "x", "before": "';"})
    assert error_of(too_long) == error_of(wrong_cursor) == (422, "invalid_request")


async def test_a_session_is_renamed_and_found_by_its_new_title(tmp_path: Path) -> None:
    document = {"gateway": READER_ONLY}
    async with open_gateway(tmp_path, lambda _request: Say("hi"), document) as world:
        path = f"/api/sessions/{(await world.finished('hello'))['sessionId']}"
        renamed = await world.client.patch(path, json={"title": "  A new\n name "})
        assert renamed.json()["session"]["title"] == "A new name"
        assert (await world.get(path))["session"]["title"] == "A new name"
        assert [role for role, _ in await search(world, "new name")] == ["title"]
        missing = await world.client.patch("/api/sessions/none", json={"title": "x"})
        unknown = await world.client.patch(path, json={"titel": "x"})
        refused = await world.client.patch(path, json={"title": "x"}, headers=READER)
    assert error_of(missing) == (404, "not_found")
    assert "did you mean `title`?" in unknown.json()["error"]["message"]
    assert error_of(refused) == (403, "missing_scope")


async def test_a_fork_continues_from_a_turn_without_the_later_ones(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, lambda _request: Say("hi"), CODE_MODE) as world:
        runs = [await world.finished(f"number {n}", sessionKey="k") for n in range(3)]
        other = await world.finished("another session")
        path = f"/api/sessions/{runs[0]['sessionId']}/fork"
        forked = await world.client.post(path, json={"runId": runs[1]["runId"]})
        assert forked.status_code == 201
        new_id = forked.json()["session"]["id"]
        await world.finished("and now", sessionId=new_id)
        request = world.model.requests[-1]
        foreign = await world.client.post(path, json={"runId": other["runId"]})
        whole = await world.client.post(path)
        session = await world.get(f"/api/sessions/{new_id}")
    prompts = [turn["prompt"] for turn in session["turns"]]
    assert prompts == ["number 0", "number 1", "and now"]
    assert "number 1" in str(request.body) and "number 2" not in str(request.body)
    assert error_of(foreign) == (404, "not_found")
    assert whole.json()["session"]["turnCount"] == 3


async def test_an_exported_session_has_messages_calls_and_safe_fences(tmp_path: Path) -> None:
    cell = "return 'a ```` fence'"
    script = [Call("exec", {"code": cell}), Say("Look:\n\n```js\n1\n```")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run = await world.finished("make a fence")
        path = f"/api/sessions/{run['sessionId']}/export"
        markdown = await world.client.get(path)
        lines = await world.client.get(path, params={"format": "jsonl"})
        missing = await world.client.get("/api/sessions/none/export")
    assert markdown.headers["content-type"] == "text/markdown; charset=utf-8"
    assert markdown.headers["content-disposition"].startswith('attachment; filename="session_')
    text = markdown.text
    assert text.startswith("# make a fence\n")
    assert "## User\n\nmake a fence" in text and "Call of `exec`" in text
    assert "\n`````\n" in text and "Look:\n\n```js" in text
    assert '"kind":"call.started"' in lines.text
    assert error_of(missing) == (404, "not_found")


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("Look:\n\n```js\nlet a = 1", "let a = 1\n```"),
        ("~~~~\n~~~\n```", "```\n~~~~"),
        ("````\n```\n``` js", "``` js\n````"),
        ("1. one\n   ```\n   code", "code"),
        ("- one\n\n```\ncode", "code\n```"),
        ("```\nclosed\n`````", "`````"),
        ("```code``` within a line", "within a line"),
    ],
)
async def test_an_open_fence_of_a_text_does_not_swallow_the_rest_of_an_export(
    tmp_path: Path, text: str, end: str
) -> None:
    async with open_gateway(tmp_path, [Say(text)]) as world:
        run = await world.finished(text)
        markdown = await world.client.get(f"/api/sessions/{run['sessionId']}/export")
    assert f"{end}\n\n## Assistant" in markdown.text
    assert markdown.text.endswith(f"{end}\n")


async def test_a_session_is_deleted_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    script = [Call("exec", {"code": "return tools.list({})"}), Say("done")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run = await world.finished("look around")
        path = f"/api/sessions/{run['sessionId']}"
        deleted = await world.client.delete(path)
        assert deleted.json() == {"sessionId": run["sessionId"]}
        gone = [path, f"/api/runs/{run['runId']}", f"{path}/trajectory", f"{path}/export"]
        for address in gone:
            assert (await world.client.get(address)).status_code == 404, address
        assert await search(world, "look") == []
        assert (await world.client.delete(path)).status_code == 404


async def test_a_session_with_a_live_run_is_deleted_only_after_an_abort(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, lambda _request: Stall()) as world:
        started = await world.start("wait for it")
        run = world.run(started["runId"])
        path = f"/api/sessions/{started['sessionId']}"
        queued = await world.start("later", sessionId=started["sessionId"], queueMode="followup")
        busy = await world.client.delete(path)
        fork = await world.client.post(f"{path}/fork", json={"runId": "run_none"})
        with anyio.fail_after(PATIENCE_SECONDS):
            deleted = await world.client.delete(path, params={"abort": True})
        assert deleted.status_code == 200
        assert run.state == "aborted"
        assert queued["runId"] != started["runId"]
        assert (await world.client.get(path)).status_code == 404
        assert (await world.get("/api/runs"))["runs"] == []
    assert error_of(busy) == (409, "conflict")
    assert error_of(fork) == (404, "not_found")
