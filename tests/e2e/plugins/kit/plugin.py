"""A plugin for end-to-end tests: tools that add, that ask, and that a test holds over a socket."""

import asyncio
import json

from nacre.plugins.api import AskApproval, BeforeToolCall, PluginApi


def register(api: PluginApi) -> None:
    port = int(str(api.config["port"]))

    async def kit_add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def kit_hold(note: str) -> str:
        """Give a note to the test, and return what the test answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4 << 20)
        try:
            writer.write(json.dumps({"note": note}).encode() + b"\n")
            answer = await reader.readline()
            return str(json.loads(answer))
        finally:
            # Also when the call is cancelled: that is what the test sees of it.
            writer.close()

    async def kit_pay(amount: int) -> str:
        """Pay; somebody has to agree."""
        return f"paid {amount}"

    async def kit_forbidden() -> str:
        """Denied by the policy of the tests."""
        return "this must never be returned"

    async def ask_before_paying(event: BeforeToolCall) -> AskApproval | None:
        if event.tool_name != "kit_pay":
            return None
        return AskApproval("money is about to move")

    for function in (kit_add, kit_hold, kit_pay, kit_forbidden):
        api.add_tool(function)
    api.add_hook("before_tool_call", ask_before_paying)
