"""Every failure has one shape, names what is wrong, and shows no traceback."""

from pathlib import Path
from typing import Any

import pytest

from nacre.errors import (
    ApprovalError,
    ConfigError,
    MissingReferenceError,
    NacreError,
    ProviderError,
    RuntimeUnavailableError,
    SessionError,
    StorageError,
    ToolDefinitionError,
)
from nacre.gateway.errors import convert_error
from tests.gateway.worlds import open_gateway


async def test_what_is_not_there_and_what_cannot_be_done_is_named(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        nowhere = await world.client.get("/api/nowhere")
        wrong = await world.client.delete("/api/runs")
        compatible = await world.client.get("/v1/nowhere")
        slash = await world.client.post("/api/runs/", json={"text": "a"})
    assert (nowhere.status_code, nowhere.json()) == (
        404,
        {
            "error": {
                "code": "not_found",
                "message": "there is nothing at /api/nowhere; see /openapi.json",
            }
        },
    )
    assert slash.status_code == 404
    assert "/api/runs/" in slash.json()["error"]["message"]
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")
    assert "DELETE" in wrong.json()["error"]["message"]
    assert set(compatible.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"text": 5}, "body.text"),
        ({"text": "a", "sesionKey": "b"}, "body.sesionKey"),
        ({"text": "a", "queueMode": "later"}, "body.queueMode"),
        ({"text": "a", "settings": {"temperature": 9}}, "body.settings.temperature"),
        ({"text": "a", "clientTools": [{"name": ""}]}, "body.clientTools[0].name"),
        ({"text": "a", "images": ["file:///etc/passwd"]}, "body.images[0]"),
        ([], "body"),
    ],
)
async def test_what_is_wrong_with_a_request_is_named_by_its_path(
    tmp_path: Path, body: Any, path: str
) -> None:
    async with open_gateway(tmp_path) as world:
        answer = await world.client.post("/api/runs", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["path"]) == (422, "invalid_request", path)
    assert error["message"].startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ({"text": "a", "sesionKey": "b"}, "did you mean `sessionKey`?"),
        ({"text": "a", "settings": {"temprature": 1}}, "did you mean `temperature`?"),
        ({"text": "a", "clientTools": [{"nam": "b"}]}, "did you mean `name`?"),
        ({"text": "a", "settings": {"zzz": 1}}, "known: temperature, maxOutputTokens, topP, stop"),
    ],
)
async def test_an_unknown_member_is_told_with_the_one_that_was_meant(
    tmp_path: Path, body: Any, hint: str
) -> None:
    async with open_gateway(tmp_path) as world:
        answer = await world.client.post("/api/runs", json=body)
    assert f"is unknown; {hint}" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"text": NaN}',
        b"\xff\xfe",
        b'{"text": 1e999}',
        b"[" * 40_000,
        b'{"a":' * 1000 + b"1" + b"}" * 1000,
        b"9" * 5000,
    ],
)
async def test_what_is_not_json_is_refused(tmp_path: Path, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    async with open_gateway(tmp_path) as world:
        answer = await world.client.post("/api/runs", content=content, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["path"] == "body"


async def test_half_a_character_becomes_a_whole_one(tmp_path: Path) -> None:
    headers = {"content-type": "application/json"}
    async with open_gateway(tmp_path) as world:
        answer = await world.client.post(
            "/api/runs", content=b'{"sessionId": "\\ud800"}', headers=headers
        )
    assert answer.status_code in (400, 404)


async def test_a_form_is_told_what_to_send_instead(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        answer = await world.client.post("/api/runs", data={"text": "hi"})
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]["message"]


async def test_a_fault_of_ours_is_told_without_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> object:
        raise ZeroDivisionError("the secret of the house")

    async with open_gateway(tmp_path) as world:
        monkeypatch.setattr(world.system.plugins, "status", broken)
        answer = await world.client.get("/api/plugins")
        assert (await world.client.get("/api/agents")).status_code == 200
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "failed")
    assert "secret" not in answer.text
    assert "the secret of the house" in caplog.text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SessionError("a", code="not_found"), 404),
        (SessionError("a", code="busy"), 429),
        (SessionError("a", code="too_many"), 429),
        (SessionError("a", code="ended"), 409),
        (SessionError("a", code="invalid"), 400),
        (ConfigError("a", "b"), 500),
        (MissingReferenceError("a", "b"), 400),
        (ProviderError("a", retry_after_seconds=2.5), 502),
        (ToolDefinitionError("a"), 400),
        (ApprovalError("a"), 409),
        (StorageError("a"), 503),
        (RuntimeUnavailableError("a"), 503),
        (NacreError("a"), 500),
    ],
)
def test_every_kind_of_error_has_its_status(error: NacreError, status: int) -> None:
    answer = convert_error(error)
    assert answer.status_code == status
    assert str(answer)
    is_worth_another_try = status in (429, 502) or isinstance(error, StorageError)
    assert ("retry-after" in (answer.headers or {})) is is_worth_another_try
