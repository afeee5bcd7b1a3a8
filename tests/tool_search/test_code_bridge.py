"""Payloads that no sound guest sends."""

from typing import Any

import anyio
import pytest

from nacre.errors import HostRequestError
from nacre.ids import CellId
from nacre.sandbox import HostRequest
from nacre.telemetry import Span
from nacre.tool_search.catalog import CatalogAccess, RunTools
from nacre.tool_search.programs import CodeBridge, ProgramClock
from nacre.tools import Tool
from tests.code_mode.tools import HeldTool, echo_tool
from tests.tool_search.runs import run_with


async def bridge(*tools: Tool) -> CodeBridge:
    run = await run_with(tools=tools or [echo_tool()], config={"mode": "tools"})
    run_tools: RunTools = run._tools  # pyright: ignore[reportPrivateUsage]
    return CodeBridge(CatalogAccess(run_tools), clock=ProgramClock(5), call_id="c", span=Span())


def request(payload: Any) -> HostRequest:
    return HostRequest(id=1, method="namespace", payload=payload, cell_id=CellId("r"))


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        {},
        {"namespace": "openclaw"},
        {"namespace": "openclaw", "path": "tools.search", "args": ["echo"]},
        {"namespace": "openclaw", "path": ["tools"], "args": ["echo"]},
        {"namespace": "openclaw", "path": ["tools", "search", "x"], "args": ["echo"]},
        {"namespace": "openclaw", "path": ["tools", ["search"]], "args": ["echo"]},
        {"namespace": "openclaw", "path": ["tools", "__proto__"], "args": ["echo"]},
        {"namespace": "other", "path": ["tools", "search"], "args": ["echo"]},
    ],
)
async def test_a_path_that_there_is_not_is_refused(payload: Any) -> None:
    with pytest.raises(HostRequestError, match=r"openclaw\.tools has search, describe and call"):
        await (await bridge())(request(payload))


@pytest.mark.parametrize("args", [None, {}, "echo", [], [None], [["echo"]], [{"id": "echo"}]])
@pytest.mark.parametrize("function", ["search", "describe", "call"])
async def test_arguments_that_are_none_are_refused(function: str, args: Any) -> None:
    payload = {"namespace": "openclaw", "path": ["tools", function], "args": args}
    with pytest.raises(HostRequestError, match=f"openclaw.tools.{function}: a ") as refusal:
        await (await bridge())(request(payload))
    assert refusal.value.name == "TypeError"


async def test_a_call_that_is_cancelled_stays_unfinished_and_is_shown_in_few_words() -> None:
    held = HeldTool("held")
    opened = await bridge(held.tool)

    async def call(tool_id: str) -> None:
        payload = {"namespace": "openclaw", "path": ["tools", "call"], "args": [tool_id]}
        await opened(request(payload))

    with pytest.raises(HostRequestError):
        await call("x" * 500)
    assert opened.unfinished == []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "held")
            await held.wait_for_calls()
            tasks.cancel_scope.cancel()
    assert opened.unfinished == ["held"]
