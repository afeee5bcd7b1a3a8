"""The config file over HTTP: shown without secrets, and changed without losing anything."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from nacre.config import ConfigFile
from tests.gateway.worlds import TOKEN, World, open_gateway

SECRET = "sk-live-0123456789abcdefghijklmnopqrstuvwxyz"
TEXT = f"""// My agents. The old key was {SECRET}
{{
  models: {{
    providers: {{
      reef: {{ baseUrl: "https://reef.example/v1", apiKey: "{SECRET}" }}, // the paid one
      lake: {{ baseUrl: "https://lake.example/v1", apiKey: "${{LAKE_KEY}}" }},
    }},
  }},
  gateway: {{
    auth: {{
      tokens: {{
        ci: {{ token: "ci-0123456789abcdef", /* nightly */ scopes: ['read'] }},
      }},
    }},
  }},
  tools: {{ codeMode: true }}, /* fast */
}}
"""
READER = {"authorization": "Bearer reader-0123456789abcdef"}
NAMED_TOKENS = {
    "auth": {
        "token": TOKEN,
        "tokens": {"reader": {"token": "reader-0123456789abcdef", "scopes": ["read", "run"]}},
    }
}


@asynccontextmanager
async def open_with_file(folder: Path, text: str | None = TEXT) -> AsyncGenerator[World]:
    path = folder / "nacre.json5"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    async with open_gateway(folder, [], {"gateway": NAMED_TOKENS}) as world:
        world.app.state.gateway.config_file = ConfigFile(path=path, origin="option")
        yield world


def written(folder: Path) -> str:
    return (folder / "nacre.json5").read_text(encoding="utf-8")


async def put(world: World, **body: object) -> httpx2.Response:
    return await world.client.put("/api/config", json=body)


def error_of(answer: httpx2.Response) -> dict[str, Any]:
    return {"status": answer.status_code, **answer.json()["error"]}


async def test_the_text_and_the_values_are_shown_without_secrets(tmp_path: Path) -> None:
    async with open_with_file(tmp_path) as world:
        shown = await world.get("/api/config")
        schema = await world.get(shown["schemaUrl"])
        refused = await world.client.get("/api/config", headers=READER)
    assert SECRET not in json.dumps(shown) and "ci-0123456789abcdef" not in json.dumps(shown)
    assert shown["values"]["gateway"]["auth"]["tokens"]["ci"] == {
        "token": "***",
        "scopes": ["read"],
    }
    assert 'apiKey: "***" }, // the paid one' in shown["text"]
    assert "// My agents. The old key was" in shown["text"] and "/* fast */" in shown["text"]
    providers = shown["values"]["models"]["providers"]
    assert (providers["reef"]["apiKey"], providers["lake"]["apiKey"]) == ("***", "${LAKE_KEY}")
    assert [it["path"] for it in shown["problems"]] == ["models.providers.lake.apiKey"]
    assert "models" in schema["properties"]
    assert error_of(refused)["code"] == "missing_scope"


async def test_a_changed_text_keeps_secrets_and_comments(tmp_path: Path) -> None:
    async with open_with_file(tmp_path) as world:
        shown = await world.get("/api/config")
        text = shown["text"].replace("codeMode: true", "codeMode: false")
        saved = await put(world, baseHash=shown["hash"], text=text)
        assert saved.status_code == 200, saved.text
        again = await put(world, baseHash=saved.json()["hash"], text=saved.json()["text"])
    assert again.status_code == 200
    assert written(tmp_path) == TEXT.replace("codeMode: true", "codeMode: false")


async def test_single_settings_are_set_and_removed(tmp_path: Path) -> None:
    async with open_with_file(tmp_path) as world:
        base = (await world.get("/api/config"))["hash"]
        changes = [
            {"path": "tools.codeMode.timeoutMs", "value": 5000},
            {"path": "models.providers.lake", "value": None},
            {"path": "models.providers.reef", "value": {
                "baseUrl": "https://reef.example/v2", "apiKey": "***"}},
        ]  # fmt: skip
        saved = await put(world, baseHash=base, changes=changes)
        assert saved.status_code == 200, saved.text
        values = saved.json()["values"]
    assert values["tools"]["codeMode"] == {"enabled": True, "timeoutMs": 5000}
    assert list(values["models"]["providers"]) == ["reef"]
    text = written(tmp_path)
    assert text.count(SECRET) == 2 and "reef.example/v2" in text and "***" not in text
    assert "/* fast */" in text and "LAKE_KEY" not in text


async def test_a_file_that_somebody_else_changed_is_not_overwritten(tmp_path: Path) -> None:
    async with open_with_file(tmp_path) as world:
        shown = await world.get("/api/config")
        theirs = TEXT.replace("fast", "slow")
        (tmp_path / "nacre.json5").write_text(theirs, encoding="utf-8")
        refused = await put(world, baseHash=shown["hash"], text=shown["text"])
    assert (refused.status_code, error_of(refused)["code"]) == (409, "conflict")
    assert written(tmp_path) == theirs


async def test_nothing_invalid_and_no_hidden_value_of_another_place_is_written(
    tmp_path: Path,
) -> None:
    async with open_with_file(tmp_path) as world:
        base = (await world.get("/api/config"))["hash"]
        refusals = [
            await put(world, baseHash=base, changes=[{"path": "gateway.port", "value": "many"}]),
            await put(world, baseHash=base, text="{ nothing: "),
            await put(world, baseHash=base, text=""),
            await put(world, baseHash=base, changes=[
                {"path": "models.providers.lake.apiKey", "value": "***"}]),
            await put(world, baseHash=base, changes=[{"path": "[0]", "value": 1}]),
            await put(world, baseHash=base, changes=[{"path": "a..b", "value": 1}]),
            await put(world, baseHash=base),
            await put(world, baseHash=base, text="{}", changes=[]),
        ]  # fmt: skip
        forbidden = await world.client.put("/api/config", json={}, headers=READER)
    errors = list(map(error_of, refusals))
    assert [error["status"] for error in errors] == [422] * len(errors)
    assert errors[0]["path"] == "gateway.port"
    assert "stands for a secret" in errors[3]["message"]
    assert errors[3]["path"] == "models.providers.lake.apiKey"
    assert error_of(forbidden)["code"] == "missing_scope"
    assert written(tmp_path) == TEXT


async def test_a_secret_never_moves_to_another_item_of_a_list(tmp_path: Path) -> None:
    text = (
        """{ mcp: { servers: { a: { command: "x", args: ["--token", "one-secret-value"] } } } }"""
    )
    async with open_with_file(tmp_path, text) as world:
        shown = await world.get("/api/config")
        assert "one-secret-value" not in shown["text"]
        longer = shown["text"].replace('["--token"', '["-v", "--token"')
        refused = await put(world, baseHash=shown["hash"], text=longer)
        same = shown["text"].replace('command: "x"', 'command: "y"')
        saved = await put(world, baseHash=shown["hash"], text=same)
    assert error_of(refused)["status"] == 422
    assert saved.status_code == 200
    assert written(tmp_path) == text.replace('command: "x"', 'command: "y"')


async def test_a_file_that_is_missing_or_broken_can_be_written(tmp_path: Path) -> None:
    async with open_with_file(tmp_path, None) as world:
        shown = await world.get("/api/config")
        assert shown["values"] == {"tools": {"codeMode": True}}
        changes = [{"path": "gateway.port", "value": 1234}]
        saved = await put(world, baseHash=shown["hash"], changes=changes)
        assert saved.json()["values"]["gateway"] == {"port": 1234}

        (tmp_path / "nacre.json5").write_text("{ broken: ", encoding="utf-8")
        broken = await world.get("/api/config")
        assert broken["text"] == "" and len(broken["problems"]) == 1
        repaired = await put(world, baseHash=broken["hash"], text="{}")
        assert repaired.json()["problems"] == []
        world.app.state.gateway.config_file = None
        assert (await world.client.get("/api/config")).status_code == 404
