"""A process with one durable run that is killed at a failpoint; see test_killed_cells.py.

Arguments: the URL of the store, the keys, a file of effects, a failpoint such as `suspend:before:1`
(the first commit of `CellStore.suspend`) or `statement:7` (the seventh boundary of a statement that
concerns cells, commits included), a command (`exec` or `wait`), and the program or the id of the
cell. It prints the result as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import Pool

from nacre import RunContext, Runtime
from nacre.sandbox import parse_key_ring
from nacre.storage import CellStore, open_store
from nacre.storage.leases import Leases
from nacre.tools import Tool, ToolCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CONTEXT: Final = RunContext(run_id="r1", session_id="s1", agent_id="main", sender="ann")
_TABLES: Final = ("nacre_cells", "nacre_cell_calls", "nacre_turn_states", "nacre_images")
SETTINGS: Final = {"durable": True, "timeoutMs": 1_000}


def install_failpoint(failpoint: str) -> None:
    """Make the process kill itself before or after a commit, or at the boundary of a statement."""
    if not failpoint:
        return
    if failpoint.startswith("statement:"):
        _install_statement_failpoint(int(failpoint.partition(":")[2]))
        return
    name, moment, count = failpoint.split(":")
    owner = CellStore if hasattr(CellStore, name) else Leases
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)
    calls = Counter[str]()

    async def commit(self: CellStore | Leases, *arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        is_hit = calls[name] == int(count)
        if is_hit and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = await original(self, *arguments, **options)
        if is_hit:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, commit)


def _install_statement_failpoint(count: int) -> None:
    """Before each statement that concerns cells or turns that wait, and before and after its
    commit. A kill after a statement is one before the next."""
    passed = 0
    is_concerned = False

    def pass_boundary() -> None:
        nonlocal passed
        passed += 1
        if passed == count:
            os.kill(os.getpid(), signal.SIGKILL)

    def before_statement(
        _connection: object, _cursor: object, statement: str, *_more: object
    ) -> None:
        nonlocal is_concerned
        if any(table in statement for table in _TABLES):
            is_concerned = True
            pass_boundary()

    def before_commit(_connection: object) -> None:
        if is_concerned:
            pass_boundary()

    def after_commit(_connection: object, _record: object) -> None:
        nonlocal is_concerned
        if is_concerned:
            is_concerned = False
            pass_boundary()

    event.listen(Engine, "before_cursor_execute", before_statement)
    event.listen(Engine, "commit", before_commit)
    # A connection returns to the pool when its transaction has ended.
    event.listen(Pool, "checkin", after_commit)


def make_tools(effects: Path, *, is_answered: bool) -> list[Tool]:
    """`charge` has an effect; `hold` and `fetch` end only if `is_answered`."""

    def note(name: str, call: ToolCall) -> None:
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{name} {call.idempotency_key}\n")

    async def charge(_given: dict[str, Any], call: ToolCall) -> str:
        note("charge", call)
        return "charged"

    async def wait_for_answer(given: dict[str, Any], call: ToolCall) -> object:
        note(str(given["name"]), call)
        if not is_answered:
            await anyio.sleep_forever()
        return given

    return [
        Tool(name="charge", execute=charge),
        Tool(name="hold", execute=wait_for_answer),
        Tool(name="fetch", execute=wait_for_answer, is_idempotent=True),
    ]


async def main() -> None:
    url, keys, effects, failpoint, command, given = sys.argv[1:]
    install_failpoint(failpoint)
    async with open_store(url) as store:
        ring = parse_key_ring(keys, source="the test")
        async with Runtime(
            SETTINGS, workers=1, snapshot_keys=ring, cell_store=store.cells
        ) as runtime:
            tools = make_tools(Path(effects), is_answered=command == "wait")
            run = runtime.run(tools=tools, context=CONTEXT)
            result = await (run.exec(given) if command == "exec" else run.wait(given))
            # The next process finds the cell, as it would after a kill.
            os.write(1, (json.dumps(result.for_model()) + "\n").encode())
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    anyio.run(main)
