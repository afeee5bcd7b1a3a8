"""The loop of a driver in Python: one JSON line per request, one per response.

It uses only the standard library, because each driver runs in the environment of its peer.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

SUM: Final = 12499997500000
AT_ONCE: Final = 32
CALLS: Final = 100
PARALLEL_CALLS: Final = 16
SLOW_SECONDS: Final = 0.01
QUERY: Final = "create an invoice for a customer"

EXPECTED: Final[dict[str, Any]] = {
    "trivial": 2,
    "one_call": 3,
    "sequence": CALLS,
    "parallel": PARALLEL_CALLS,
    "loop": SUM,
}
JAVASCRIPT: Final = {
    "trivial": "return 1+1",
    "one_call": "return await tools.add({a: 1, b: 2})",
    "sequence": "let s = 0; for (let i = 0; i < 100; i++) { s = await tools.add({a: s, b: 1}) } "
    "return s",
    "parallel": "const all = await Promise.all(Array.from({length: 16}, "
    "(_, n) => tools.slow({n}))); return all.length",
    "loop": "let s = 0; for (let i = 0; i < 5000000; i++) { s += i } return s",
}
# For Monty, a subset of Python; `{add}` and `{slow}` are calls in the form of the peer.
PYTHON: Final = {
    "trivial": "1 + 1",
    "one_call": "{add}",
    "sequence": "s = 0\nfor i in range(100):\n    s = {add_s}\ns",
    "parallel": "import asyncio\nlen(await asyncio.gather(*[{slow} for n in range(16)]))",
    "loop": "s = 0\nfor i in range(5000000):\n    s += i\ns",
}
Program = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Driver:
    """What a peer can do: `run` runs one of the programs and returns its value."""

    run: Callable[[str], Awaitable[Any]]
    search: Program | None = None
    """Search the catalog; returns the number of tools found."""
    suspend: Program | None = None
    """Run a program that suspends itself, and resume it; returns its value, 2."""
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Why works cannot be done."""


Open = Callable[[int], AbstractAsyncContextManager[Driver]]
"""Opens the peer with a number of tools: `add`, `slow`, and generated ones."""


def add(a: int, b: int) -> int:
    return a + b


async def slow(n: int) -> int:
    await asyncio.sleep(SLOW_SECONDS)
    return n


def generated_tool(number: int) -> tuple[str, str, dict[str, Any]]:
    """The name, description and schema of a generated tool."""
    verbs = ("create", "list", "delete", "update", "send", "export", "archive", "find")
    things = ("invoice", "customer", "ticket", "branch", "event", "payment", "report", "file")
    verb, thing = verbs[number % 8], things[number // 8 % 8]
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": f"The id of the {thing}."},
            "limit": {"type": "integer", "description": "The largest number of results."},
        },
        "required": ["id"],
    }
    text = f"Use it to {verb} one {thing} of workspace {number // 64} by its id."
    return f"{verb}_{thing}_{number // 64}", text, schema


def main(open_peer: Open) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=int, default=2)
    parser.add_argument("--cold", action="store_true", help="run one program and end")
    options = parser.parse_args()
    asyncio.run(_serve(open_peer, options.tools, is_cold=options.cold))


async def _serve(open_peer: Open, tool_count: int, *, is_cold: bool) -> None:
    async with open_peer(tool_count) as driver:
        if is_cold:
            await _check(driver, "trivial")
            _say({"ready": True})
            return
        _say({"ready": True})
        async for request in _requests():
            try:
                _say(await _answer(driver, request["work"], request["times"]))
            except Exception as error:
                _say({"error": f"{type(error).__name__}: {error}"[:500]})


async def _requests() -> AsyncIterator[dict[str, Any]]:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        yield json.loads(line)


async def _answer(driver: Driver, work: str, times: int) -> dict[str, Any]:
    if work in driver.reasons:
        return {"skip": driver.reasons[work]}
    walls: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        await _check(driver, work)
        walls.append((time.perf_counter() - started) * 1000)
    return {"walls": walls}


async def _check(driver: Driver, work: str) -> None:
    if work == "many":
        values = await asyncio.gather(*(driver.run("trivial") for _ in range(AT_ONCE)))
        value, expected = values, [EXPECTED["trivial"]] * AT_ONCE
    elif work == "search":
        assert driver.search is not None
        value = expected = await driver.search()
        if not value:
            raise RuntimeError("the search found nothing")
    elif work == "suspend":
        assert driver.suspend is not None
        value, expected = await driver.suspend(), 2
    else:
        value, expected = await driver.run(work), EXPECTED[work]
    if value != expected:
        raise RuntimeError(f"{work} returned {value!r}, not {expected!r}")


def _say(message: dict[str, Any]) -> None:
    sys.__stdout__.write(json.dumps(message) + "\n")  # pyright: ignore[reportOptionalMemberAccess]
    sys.__stdout__.flush()  # pyright: ignore[reportOptionalMemberAccess]
