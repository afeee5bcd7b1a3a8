"""A process with a durable turn that is killed at a failpoint; see test_killed_turns.py.

Arguments: the URL of the store, a folder, the keys, a failpoint, and a command: `start` or
`continue`. A failpoint names a commit, such as `suspend:before:1`; see
`tests.code_mode.durable_process`. Whenever the program is suspended, the process answers what it
waits for. It prints the id of each approval and client call, and at the end the state of the run
and the result of its program.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from nacre.agent import AgentRun, ClientTool
from nacre.messages import ToolMessage
from nacre.sandbox import parse_key_ring
from nacre.storage import CellStore, open_store
from nacre.tools import AllowOnce, Tool, ToolCall
from tests.agent.agent_setup import AgentSetup, open_agent
from tests.agent.fake_models import call, say
from tests.code_mode.durable_process import install_failpoint

if TYPE_CHECKING:
    from collections.abc import Callable

DURABLE: Final = {"tools": {"codeMode": {"enabled": True, "durable": True}}}
CODE: Final = """
const told = [];
told.push(await tools.pay({}).catch((error) => error.code));
told.push(await tools.ask({}).catch((error) => error.code));
return told;
"""


def make_tool(effects: Path) -> Tool:
    async def pay(_given: dict[str, Any], _call: ToolCall) -> str:
        with effects.open("a", encoding="utf-8") as file:
            file.write("paid\n")
        return "paid"

    return Tool(name="pay", execute=pay, needs_approval="money")


def watch_suspensions(answer: Callable[[], object]) -> None:
    """Call `answer` after each commit of `CellStore.suspend`."""
    suspend = CellStore.suspend

    async def suspend_and_answer(self: CellStore, *given: Any, **options: Any) -> bool:
        is_stored = await suspend(self, *given, **options)
        answer()
        return is_stored

    CellStore.suspend = suspend_and_answer


def answer_run(run: AgentRun, setup: AgentSetup) -> None:
    # At each moment, also before readers see them.
    for request in run.open_approvals:
        say_line({"approval": request.id})
        setup.approvals.answer(request.id, AllowOnce())
    for pending in run.pending_client_calls:
        say_line({"client": pending.call_id})
        run.deliver(pending.call_id, "because")


async def report_end(run: AgentRun) -> None:
    result = await run.wait()
    results = [it.content for it in result.messages if isinstance(it, ToolMessage)]
    say_line({"state": run.state, "result": results[-1] if results else ""})


def say_line(data: object) -> None:
    os.write(1, (json.dumps(data) + "\n").encode())


async def main() -> None:
    url, folder, keys, failpoint, command = sys.argv[1:]
    install_failpoint(failpoint)
    async with (
        open_store(url) as store,
        open_agent(
            store=store,
            folder=Path(folder),
            document=DURABLE,
            tools=[make_tool(Path(folder) / "effects")],
            keys=parse_key_ring(keys, source="the test"),
        ) as setup,
    ):
        watch_suspensions(lambda: [answer_run(run, setup) for run in setup.service.runs()])
        if command == "start":
            setup.model.will(call("exec", {"code": CODE}), say("done"))
            await report_end(await setup.start(client_tools=[ClientTool(name="ask")]))
        else:
            setup.model.will(say("done"))
            for run in await setup.service.continue_turns():
                await report_end(run)
            turns = [
                {"status": turn.status, "error": turn.error}
                for session in await store.sessions()
                for turn in await store.turns(session.id)
            ]
            say_line({"turns": turns, "cells": await count_cells(setup)})
        os.kill(os.getpid(), signal.SIGKILL)


async def count_cells(setup: AgentSetup) -> int:
    sessions = await setup.store.sessions()
    turns = [turn for it in sessions for turn in await setup.store.turns(it.id)]
    return sum([len(await setup.store.cells.of_run(turn.run_id)) for turn in turns])


if __name__ == "__main__":
    anyio.run(main)
