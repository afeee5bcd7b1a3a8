"""A process whose tool reports an effect and never returns; test_transcript.py kills it."""

import os
import sys
from pathlib import Path
from typing import Any

import anyio

from nacre.storage import open_store
from nacre.tools import Tool, ToolCall
from tests.agent.agent_setup import CODE_MODE, open_agent
from tests.agent.fake_models import call


async def take_effect(given: dict[str, Any], call: ToolCall) -> object:
    os.write(1, b"effect")
    await anyio.sleep_forever()


async def main(url: str, folder: Path) -> None:
    tool = Tool(name="effect", execute=take_effect)
    async with (
        open_store(url) as store,
        open_agent(store=store, folder=folder, document=CODE_MODE, tools=[tool]) as setup,
    ):
        setup.model.will(call("exec", {"code": "return await tools.effect({})"}))
        await setup.turn()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Path(sys.argv[2]))
