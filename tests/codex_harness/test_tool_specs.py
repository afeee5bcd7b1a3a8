"""The app-server accepts the specs of Nacre's tools, whatever their schemas are."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nacre.codex_harness import AppServerClient, AppServers
from nacre.codex_harness.tool_specs import UnusableSchema, format_specs, make_spec
from nacre.errors import AppServerError
from nacre.json_types import JsonObject, JsonValue
from nacre.testing import RecordingTool
from tests.codex_harness.codex_setup import codex_config, skip_old_codex
from tests.codex_harness.test_dynamic_tools import UNUSABLE, nest
from tests.contract.requirements import requirement

USABLE: dict[str, JsonObject] = {
    "empty": {"type": "object"},
    "deep": nest(45),
    "tuple": {"type": "object", "properties": {"x": {"items": [{"type": "string"}]}}},
    "no-items": {"type": "object", "properties": {"x": {"items": []}}},
    "flags": {"type": "object", "properties": {"x": True, "y": {"items": False}}},
    "nulls": {"type": "object", "properties": None, "required": None},
    "odd": {"type": "object", "properties": {"x": {"type": "strange", "pattern": 5}}},
    "refs": {"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}, "$defs": {"a": 5}},
    "unions": {"type": "object", "oneOf": [{"type": "object"}, True], "allOf": [{}]},
    "more": {"type": "object", "additionalProperties": {"type": "integer"}},
    "data": {"type": "object", "properties": {"x": {"const": {"a": [1]}, "enum": [None, 1]}}},
}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AppServerClient]:
    async with (
        AppServers() as servers,
        servers.use(await codex_config(tmp_path), "main") as client,
    ):
        yield client


async def start_thread(client: AppServerClient, folder: Path, tools: list[JsonObject]) -> None:
    given: list[JsonValue] = [*tools]
    await client.request("thread/start", {"cwd": str(folder), "dynamicTools": given})


@requirement("codex:dynamic-tools-bad-schema")
async def test_the_app_server_takes_the_schemas_that_are_not_left_out(
    client: AppServerClient, tmp_path: Path
) -> None:
    specs = [
        make_spec(name, RecordingTool(name, parameters=schema).tool, is_deferred=True)
        for name, schema in USABLE.items()
    ]
    # Both wire forms.
    for version in (client.version, (0, 125, 0)):
        await start_thread(client, tmp_path, format_specs(specs, version=version))


@requirement("codex:dynamic-tools-bad-schema")
@skip_old_codex("refuses only some of these schemas")
async def test_the_app_server_refuses_the_schemas_that_are_left_out(
    client: AppServerClient, tmp_path: Path
) -> None:
    for name, schema in UNUSABLE.items():
        with pytest.raises(UnusableSchema):
            make_spec(name, RecordingTool(name, parameters=schema).tool, is_deferred=False)
        spec: dict[str, Any] = {"name": name, "description": "", "inputSchema": schema}
        with pytest.raises(AppServerError, match=f"not supported for {name}"):
            await start_thread(client, tmp_path, [spec])
