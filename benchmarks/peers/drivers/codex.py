"""The code-mode host of Codex: V8 in a process of its own, driven over its stdio protocol.

Each frame is JSON after its length in four bytes. The tools are sent with each program.
"""

import asyncio
import json
import os
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from glob import glob
from itertools import count
from typing import Any

from serve import JAVASCRIPT, Driver, add, generated_tool, main, slow

_SESSION = "bench"
_SEARCH = (
    "text(String(ALL_TOOLS.filter(({name, description}) => "
    "`${name} ${description}`.includes('invoice')).length))"
)


class _Host:
    """A connection to the host; programs run concurrently."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        tools: list[dict[str, Any]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        self._tools = tools
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._results: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tasks = tasks

    async def connect(self) -> None:
        versions = {"supportedVersions": [1], "requiredCapabilities": []}
        self._send({"type": "connection/hello", **versions, "optionalCapabilities": []})
        hello = await self._receive()
        if hello["type"] != "connection/ready":
            raise RuntimeError(f"the host refused the connection: {hello}")
        self.reader = self._tasks.create_task(self._read())
        await self._request({"method": "session/open", "sessionId": _SESSION})

    async def run(self, source: str) -> dict[str, Any]:
        """Run a program until it completes or yields."""
        request = {
            "tool_call_id": "call",
            "enabled_tools": self._tools,
            "source": source,
            "yield_time_ms": 60_000,
            "max_output_tokens": None,
        }
        number = next(self._ids)
        result = self._results[number] = asyncio.get_running_loop().create_future()
        message = {"method": "session/execute", "sessionId": _SESSION, "request": request}
        await self._request(message, number)
        return await result

    async def wait(self, cell_id: str) -> dict[str, Any]:
        request = {"cell_id": cell_id, "yield_time_ms": 60_000}
        message = {"method": "session/wait", "sessionId": _SESSION, "request": request}
        outcome: dict[str, Any] = (await self._request(message))["outcome"]
        return next(iter(outcome.values()))

    async def _request(self, request: dict[str, Any], number: int = 0) -> dict[str, Any]:
        number = number or next(self._ids)
        response = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send({"type": "operation/request", "id": number, "request": request})
        return await response

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            match message["type"]:
                case "operation/response":
                    _settle(self._waiting.pop(message["id"]), message["result"])
                case "execute/initialResponse":
                    _settle(self._results.pop(message["id"]), message["result"])
                case "delegate/request":
                    self._tasks.create_task(self._call(message))
                case _:
                    pass

    async def _call(self, message: dict[str, Any]) -> None:
        call = message["request"]["invocation"]
        given = call["input"]
        value = add(**given) if call["tool_name"]["name"] == "add" else await slow(**given)
        result = {"status": "ok", "value": {"type": "tool/result", "result": value}}
        self._send({"type": "delegate/response", "id": message["id"], "result": result})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        self._input.write(struct.pack("<I", len(body)) + body)

    async def _receive(self) -> dict[str, Any]:
        (size,) = struct.unpack("<I", await self._output.readexactly(4))
        return json.loads(await self._output.readexactly(size))


def _settle(future: asyncio.Future[dict[str, Any]], result: dict[str, Any]) -> None:
    if result["status"] == "ok":
        future.set_result(result["value"])
    else:
        future.set_exception(RuntimeError(result["message"]))


def _value(response: dict[str, Any]) -> Any:
    result = response["Result"]
    if result["error_text"]:
        raise RuntimeError(result["error_text"])
    return json.loads(result["content_items"][-1]["text"])


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "tool_name": {"name": name, "namespace": None},
        "description": description,
        "kind": "function",
        "input_schema": schema,
        "output_schema": None,
    }


@asynccontextmanager
async def _open(tool_count: int) -> AsyncGenerator[Driver]:
    found = glob(
        f"{os.environ['PEER_DIRECTORY']}/node_modules/@openai/*/**/codex-code-mode-host",
        recursive=True,
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(found[0], stdin=pipe, stdout=pipe)
    generated = (generated_tool(number) for number in range(tool_count - 2))
    tools = [
        _tool("add", "Add.", {}),
        _tool("slow", "Wait.", {}),
        *(_tool(*it) for it in generated),
    ]
    async with asyncio.TaskGroup() as tasks:
        host = _Host(process, tools, tasks)
        await host.connect()
        try:
            yield Driver(
                run=partial(_run, host),
                suspend=partial(_suspend, host),
                search=partial(_search, host),
            )
        finally:
            host.reader.cancel()
            process.kill()
            await process.wait()


async def _run(host: _Host, work: str) -> Any:
    start, _, result = JAVASCRIPT[work].rpartition("return ")
    return _value(await host.run(f"{start} text(String({result}))"))


async def _suspend(host: _Host) -> Any:
    response = await host.run("yield_control(); text(String(1 + 1))")
    return _value(await host.wait(response["Yielded"]["cell_id"]))


async def _search(host: _Host) -> Any:
    return _value(await host.run(_SEARCH))


if __name__ == "__main__":
    main(_open)
