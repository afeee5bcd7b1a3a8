"""An agent loop with the OpenAI SDK: the model sees `exec` and `wait` instead of every tool.

A scripted server stands in for the model; leave out `base_url` and `api_key` to talk to a real one.
"""

import json
from typing import TYPE_CHECKING, cast

import anyio
from openai import AsyncOpenAI

from examples.own_tools import TOOLS
from examples.scripted_server import REMINDERS, scripted_server
from nacre import CodeMode

if TYPE_CHECKING:
    from openai.types.chat import (
        ChatCompletionAssistantMessageParam,
        ChatCompletionMessageParam,
        ChatCompletionToolUnionParam,
    )


async def answer(client: AsyncOpenAI, code_mode: CodeMode, question: str) -> str:
    """Run the loop until the model answers with text."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    tools = cast("list[ChatCompletionToolUnionParam]", code_mode.definitions("openai"))
    while True:
        completion = await client.chat.completions.create(
            model="scripted", messages=messages, tools=tools
        )
        message = completion.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        said = message.model_dump(exclude_none=True)
        messages.append(cast("ChatCompletionAssistantMessageParam", said))
        for call in message.tool_calls:
            if call.type != "function":
                continue
            result = await code_mode.call(
                call.function.name, call.function.arguments, call_id=call.id
            )
            shown = result.for_model()
            print(f"{call.function.name}: {shown['status']}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(shown)})


async def main() -> None:
    """Ask one question."""
    with scripted_server(REMINDERS) as address:
        client = AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        async with client, CodeMode(tools=TOOLS) as code_mode:
            print(await answer(client, code_mode, "Remind everybody whose orders are overdue."))


if __name__ == "__main__":
    anyio.run(main)
