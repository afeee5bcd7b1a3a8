"""An agent loop with the Anthropic SDK: the model sees `exec` and `wait` instead of every tool.

A scripted server stands in for the model; leave out `base_url` and `api_key` to talk to a real one.
"""

import json
from typing import TYPE_CHECKING, cast

import anyio
from anthropic import AsyncAnthropic

from examples.own_tools import TOOLS
from examples.scripted_server import REMINDERS, scripted_server
from nacre import CodeMode

if TYPE_CHECKING:
    from anthropic.types import MessageParam, ToolResultBlockParam, ToolUnionParam, ToolUseBlock


async def answer(client: AsyncAnthropic, code_mode: CodeMode, question: str) -> str:
    """Run the loop until the model answers with text."""
    messages: list[MessageParam] = [{"role": "user", "content": question}]
    tools = cast("list[ToolUnionParam]", code_mode.definitions("anthropic"))
    while True:
        message = await client.messages.create(
            model="scripted", max_tokens=4096, messages=messages, tools=tools
        )
        calls = [part for part in message.content if part.type == "tool_use"]
        if not calls:
            return "".join(part.text for part in message.content if part.type == "text")
        messages.append({"role": "assistant", "content": message.content})
        results = [await _result_of(call, code_mode) for call in calls]
        messages.append({"role": "user", "content": results})


async def _result_of(call: "ToolUseBlock", code_mode: CodeMode) -> "ToolResultBlockParam":
    result = await code_mode.call(call.name, call.input, call_id=call.id)
    shown = result.for_model()
    print(f"{call.name}: {shown['status']}")
    return {"type": "tool_result", "tool_use_id": call.id, "content": json.dumps(shown)}


async def main() -> None:
    """Ask one question."""
    with scripted_server(REMINDERS) as address:
        client = AsyncAnthropic(base_url=address, api_key="none", max_retries=0)
        async with client, CodeMode(tools=TOOLS) as code_mode:
            print(await answer(client, code_mode, "Remind everybody whose orders are overdue."))


if __name__ == "__main__":
    anyio.run(main)
