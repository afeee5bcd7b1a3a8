"""An MCP server over HTTP, on the SDK: `http_server.py PORT [--sse] [--token TOKEN] [--flood]`.

With `--flood`, it is made by hand. Its tool sends notifications and requests before the result.

Prints its port once it listens; 0 asks for any. Dies when its standard input ends.
"""

import argparse
import json
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

NAMES = ("echo", "large", "die", "authorization")


async def list_tools(
    context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in NAMES]
    return types.ListToolsResult(tools=tools)


async def call_tool(
    context: ServerRequestContext[Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    given = params.arguments or {}
    text = str(given.get("text", ""))
    match params.name:
        case "large":
            text = "A" * int(given["characters"])
        case "die":
            os._exit(1)
        case "authorization":
            request: Any = context.request
            text = request.headers.get("authorization", "")
        case _:
            pass
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def app_of(*, is_sse: bool) -> ASGIApp:
    server = Server("http", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    if not is_sse:
        return server.streamable_http_app(host="127.0.0.1")
    transport = SseServerTransport("/messages/")

    async def connect(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as streams:  # pyright: ignore[reportPrivateUsage]
            await server.run(*streams, server.create_initialization_options())
        return Response()

    routes = [Route("/sse", connect), Mount("/messages/", app=transport.handle_post_message)]
    return Starlette(routes=routes)


def flooding_app() -> ASGIApp:
    """Streamable HTTP at /mcp, and SSE at /sse with the same messages."""
    send, receive = anyio.create_memory_object_stream[str](100)

    async def post(request: Request) -> Response:
        return EventSourceResponse(answers_to(await request.json()), sep="\r\n")

    async def post_for_sse(request: Request) -> Response:
        async for text in answers_to(await request.json()):
            await send.send(text)
        return Response(status_code=202)

    async def connect(request: Request) -> Response:
        async def events() -> AsyncIterator[Any]:
            yield {"event": "endpoint", "data": "/messages"}
            async for text in receive:
                yield text

        return EventSourceResponse(events(), sep="\n")

    return Starlette(
        routes=[
            Route("/mcp", post, methods=["POST"]),
            Route("/messages", post_for_sse, methods=["POST"]),
            Route("/sse", connect),
        ]
    )


async def answers_to(message: dict[str, Any]) -> AsyncIterator[str]:
    def encode(**members: Any) -> str:
        return json.dumps({"jsonrpc": "2.0", **members})

    match message:
        case {"id": request_id, "method": "initialize"}:
            facts: dict[str, Any] = {
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "f", "version": "1"},
            }
            version = message["params"]["protocolVersion"]
            yield encode(id=request_id, result={"protocolVersion": version, **facts})
        case {"id": request_id, "method": "tools/list"}:
            tools = [{"name": "flood", "inputSchema": {"type": "object"}}]
            yield encode(id=request_id, result={"tools": tools})
        case {"id": request_id, "method": "tools/call", "params": params}:
            given = params["arguments"]
            token = params["_meta"]["progressToken"]
            for step in range(given.get("notifications", 0)):
                progress = {"progressToken": token, "progress": step, "message": "x" * (step % 9)}
                yield encode(method="notifications/progress", params=progress)
            for number in range(given.get("requests", 0)):
                yield encode(id=f"flood{number}", method="elicitation/create", params={})
            yield encode(id=request_id, result={"content": [{"type": "text", "text": "done"}]})
        case {"id": request_id, "method": _}:
            error = {"code": -32601, "message": "no such method"}
            yield encode(id=request_id, error=error)
        case _:
            pass


def guarded(app: ASGIApp, token: str | None) -> ASGIApp:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", []))
        wanted = f"Bearer {token}".encode()
        if scope["type"] == "http" and token and headers.get(b"authorization") != wanted:
            await PlainTextResponse("who are you?", status_code=401)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return serve


def die_with_the_test() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--sse", action="store_true")
    parser.add_argument("--token")
    parser.add_argument("--flood", action="store_true")
    options = parser.parse_args()
    threading.Thread(target=die_with_the_test, daemon=True).start()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", options.port))
    listener.listen()
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    app = flooding_app() if options.flood else app_of(is_sse=options.sse)
    app = guarded(app, options.token)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])


main()
