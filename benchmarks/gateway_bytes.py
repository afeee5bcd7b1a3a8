"""The size of the first request to the provider in a turn with 300 tools."""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.gateway_model import Spoken, quick_model
from benchmarks.gateway_peer import Client, gateway, write_config
from benchmarks.generated_tools import generated_tools
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre.testing.script import Say

_TOOLS: Final = 300
_SURFACES: Final[dict[str, dict[str, Any]]] = {
    "direct": {},
    "search_code": {"toolSearch": {"enabled": True, "mode": "code"}},
    "search_tools": {"toolSearch": {"enabled": True, "mode": "tools"}},
    "code_mode": {"codeMode": {"enabled": True}},
}
_PLUGIN: Final = """
import json
from pathlib import Path

from nacre.plugins.api import PluginApi, Tool


def register(api: PluginApi) -> None:
    async def execute(input: object, call: object) -> object:
        return input

    text = Path(__file__).with_name("tools.json").read_text(encoding="utf-8")
    for tool in json.loads(text):
        api.add_tool(Tool(execute=execute, **tool))
"""


async def measure(_effort: Effort) -> list[Figure]:
    found = {name: await _first_request(tools) for name, tools in _SURFACES.items()}
    direct = found["direct"]
    saved = [
        Figure(name=f"gateway_bytes_saved_{name}", value=100 * (1 - found[name] / direct))
        for name in found
        if name != "direct"
    ]
    shown = [Figure(name=f"gateway_bytes_{name}", value=size) for name, size in found.items()]
    return [*saved, *shown]


async def _first_request(tools: dict[str, Any]) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with quick_model(_answer) as model:
            # Only the generated tools, so that the figures depend on their number alone.
            chosen = {**tools, "fs": {"enabled": False}, "deny": ["message"]}
            write_config(folder, model.url, chosen, plugin_code=_PLUGIN)
            _write_tools(folder / "bench" / "tools.json")
            async with gateway(folder) as peer:
                client = await Client.connect(peer)
                await client.chat("What is the weather like?", user="bytes")
                client.close()
    return model.asked[0].body_bytes


def _answer(_request: dict[str, Any]) -> list[Spoken]:
    return [Say("I do not know.")]


def _write_tools(file: Path) -> None:
    tools = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in generated_tools(_TOOLS)
    ]
    file.write_text(json.dumps(tools), encoding="utf-8")
