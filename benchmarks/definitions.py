"""The size of the definitions of `exec` and `wait` with 500 tools in the catalog."""

import json

from benchmarks.generated_tools import generated_tools
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre import Runtime

_TOOLS = 500


async def measure(_effort: Effort) -> list[Figure]:
    return [
        Figure(name="definitions_bytes", value=await _definition_bytes({"nameIndexBytes": 0})),
        Figure(name="definitions_index_bytes", value=await _definition_bytes({})),
        Figure(name="definitions_direct_bytes", value=await _definition_bytes({"enabled": False})),
    ]


async def _definition_bytes(config: dict[str, object]) -> int:
    """The bytes of the payload as compact JSON, in the format of chat completions."""
    async with Runtime(config) as runtime:
        shown = runtime.run(tools=generated_tools(_TOOLS)).definitions("openai")
    return len(json.dumps(shown, separators=(",", ":")).encode())
