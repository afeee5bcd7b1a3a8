"""An MCP server by hand, without the SDK: it can say what no sound server says.

`raw_server.py BEHAVIOUR`; the tools of `plain` each do one thing.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

Json = dict[str, Any]

write_lock = threading.Lock()


def send(message: Json) -> None:
    send_line(json.dumps({"jsonrpc": "2.0", **message}))


def send_line(line: str) -> None:
    with write_lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def answer(request: Json, result: Any) -> None:
    send({"id": request["id"], "result": result})


def refuse(request: Json, code: int, message: str, data: Any = None) -> None:
    send({"id": request["id"], "error": {"code": code, "message": message, "data": data}})


def text(content: str) -> Json:
    return {"content": [{"type": "text", "text": content}]}


def initialized(request: Json, **more: Any) -> None:
    answer(
        request,
        {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "raw", "version": "1.0"},
            "instructions": "A server for tests.",
            **more,
        },
    )


def tool(name: Any, **more: Any) -> Json:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


class Plain:
    """Sound in what it lists; what its tools do is another matter."""

    def __init__(self) -> None:
        self.extra: list[Json] = []
        self.cancelled: list[Any] = []
        self.client: Json = {}
        self.asked: dict[int, Json] = {}
        self.held: Json = {}

    def handle(self, message: Json) -> None:
        match message:
            case {"method": "initialize"}:
                self.client = message["params"]
                initialized(message)
            case {"method": "tools/list"}:
                names = [name[5:] for name in dir(self) if name.startswith("tool_")]
                answer(message, {"tools": [tool(name) for name in names] + self.extra})
            case {"method": "tools/call", "params": {"name": name}}:
                getattr(self, f"tool_{name}")(message, message["params"]["arguments"])
            case {"method": "notifications/cancelled"}:
                self.cancelled.append(message["params"]["requestId"])
            case {"id": asked_id} if asked_id in self.asked:
                outcome = message.get("result", message.get("error"))
                answer(self.asked.pop(asked_id), text(json.dumps(outcome)))
            case {"method": _, "id": _}:
                refuse(message, -32601, "Method not found")
            case _:
                pass

    def tool_echo(self, request: Json, given: Json) -> None:
        answer(request, {**text(json.dumps(given)), "structuredContent": given, "own": [1, None]})

    def tool_environment(self, request: Json, given: Json) -> None:
        answer(request, text(json.dumps({"env": dict(os.environ), "cwd": os.getcwd()})))

    def tool_client(self, request: Json, given: Json) -> None:
        answer(request, text(json.dumps(self.client)))

    def tool_error(self, request: Json, given: Json) -> None:
        refuse(request, -32602, "no such city", {"city": "Atlantis"})

    def tool_server_error(self, request: Json, given: Json) -> None:
        refuse(request, -32000, given["message"], {"token": os.environ.get("TOKEN")})

    def tool_leak(self, request: Json, given: Json) -> None:
        refuse(request, -32602, f"bad argument {sys.argv[-1]}", {"args": [sys.argv[-1]]})

    def tool_is_error(self, request: Json, given: Json) -> None:
        answer(request, {**text("it did not work"), "isError": True})

    def tool_hold(self, request: Json, given: Json) -> None:
        """Not answered before `release`."""
        self.held = request

    def tool_release(self, request: Json, given: Json) -> None:
        answer(self.held, text("released"))
        answer(request, text("done"))

    def tool_cancelled(self, request: Json, given: Json) -> None:
        answer(request, text(json.dumps(self.cancelled == [self.held["id"]])))

    def tool_progress(self, request: Json, given: Json) -> None:
        token = request["params"]["_meta"]["progressToken"]
        for step in range(given["steps"]):
            params = {"progressToken": token, "progress": step, "total": given["steps"]}
            send({"method": "notifications/progress", "params": {**params, "message": f"s{step}"}})
        answer(request, text("done"))

    def tool_requests(self, request: Json, given: Json) -> None:
        """Send many requests without reading the responses, then answer."""
        for number in range(given["count"]):
            send({"id": f"flood{number}", "method": "ping"})
        answer(request, text("done"))

    def tool_exit(self, request: Json, given: Json) -> None:
        sys.stderr.write("about to go\n")
        sys.stderr.flush()
        os._exit(given["status"])

    def tool_large(self, request: Json, given: Json) -> None:
        image = {"type": "image", "mimeType": "image/png", "data": "A" * given["characters"]}
        answer(request, {"content": [{"type": "text", "text": "here it is"}, image]})

    def tool_parts(self, request: Json, given: Json) -> None:
        """`of` over and over, as JSON or as the text of it."""
        listed = ",".join([given["of"]] * given["count"])
        value = json.dumps(listed) if given["is_text"] else f"[{listed}]"
        send_line(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"a":{value}}}}}')

    def tool_odd_id(self, request: Json, given: Json) -> None:
        for odd_id in ("true", "false", "null", "1e999", "9" * 400, "[]", "{}", '"x"', "1.5"):
            send_line(f'{{"jsonrpc":"2.0","id":{odd_id}}}')
            send_line(f'{{"jsonrpc":"2.0","id":{odd_id},"result":{{}}}}')
        answer(request, text("done"))

    def tool_huge_progress(self, request: Json, given: Json) -> None:
        token = request["params"]["_meta"]["progressToken"]
        for progress in (10**400, -(10**400), 1):
            params = {"progressToken": token, "progress": progress, "total": 10**400}
            send({"method": "notifications/progress", "params": params})
        answer(request, text("done"))

    def tool_flood_errors(self, request: Json, given: Json) -> None:
        for number in range(given["lines"]):
            sys.stderr.write(f"line {number} {'x' * 500}\n")
        sys.stderr.write(f"the secret is {os.environ.get('TOKEN')}\n")
        sys.stderr.flush()
        answer(request, text("done"))

    def tool_chatter(self, request: Json, given: Json) -> None:
        send_line("Listening on standard input!")
        send_line('[1, 2, {"not": "a message"}]')
        answer(request, text("done"))

    def tool_not_json(self, request: Json, given: Json) -> None:
        send_line(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"n":NaN}}}}')

    def tool_no_object(self, request: Json, given: Json) -> None:
        answer(request, "just text")

    def tool_half_pair(self, request: Json, given: Json) -> None:
        send_line(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"half":"\\ud800"}}}}')

    def tool_deep(self, request: Json, given: Json) -> None:
        depth = given["depth"]
        line = (
            f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"a":{"[" * depth}{"]" * depth}}}}}'
        )
        send_line(line)

    def tool_grow(self, request: Json, given: Json) -> None:
        self.extra.append(tool(f"grown{len(self.extra)}"))
        send({"method": "notifications/tools/list_changed"})
        answer(request, text("grown"))

    def tool_ask(self, request: Json, given: Json) -> None:
        """Ask the client, and answer with what it said."""
        asked_id = 1000 + len(self.asked)
        self.asked[asked_id] = request
        send({"id": asked_id, "method": given["method"], "params": given.get("params", {})})

    def tool_family(self, request: Json, given: Json) -> None:
        """Has a child that outlives its parent if nobody ends it."""
        child = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL)
        answer(request, text(str(child.pid)))


class Silent(Plain):
    """Does not answer anything."""

    def handle(self, message: Json) -> None:
        pass


class Stubborn(Plain):
    """Neither the end of its input nor SIGTERM makes it go."""

    def __init__(self) -> None:
        super().__init__()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


class Many(Plain):
    """5,000 tools in pages of 100."""

    def handle(self, message: Json) -> None:
        if message.get("method") != "tools/list":
            return super().handle(message)
        start = int(message.get("params", {}).get("cursor", "0"))
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        page = [
            {"name": f"tool{number}", "description": "One of many", "inputSchema": schema}
            for number in range(start, start + 100)
        ]
        more = {"nextCursor": str(start + 100)} if start + 100 < 5000 else {}
        answer(message, {"tools": page, **more})
        return None


class Circle(Plain):
    """The second page leads back to itself."""

    def handle(self, message: Json) -> None:
        if message.get("method") != "tools/list":
            return super().handle(message)
        name = "second" if message.get("params", {}).get("cursor") else "first"
        answer(message, {"tools": [tool(name)], "nextCursor": "again"})
        return None


class Endless(Plain):
    """Always another page."""

    def handle(self, message: Json) -> None:
        if message.get("method") != "tools/list":
            return super().handle(message)
        page = int(message.get("params", {}).get("cursor", "0"))
        answer(message, {"tools": [tool(f"t{page}")], "nextCursor": str(page + 1)})
        return None


class Crooked(Plain):
    """Lists what no server may list."""

    def handle(self, message: Json) -> None:
        if message.get("method") != "tools/list":
            return super().handle(message)
        huge = {"type": "object", "description": "x" * 300_000}
        answer(
            message,
            {
                "tools": [
                    tool("sound"),
                    {"name": "no_schema"},
                    tool("text_schema", inputSchema="object"),
                    tool("array_schema", inputSchema={"type": "array"}),
                    tool("huge_schema", inputSchema=huge),
                    tool("bad_output", outputSchema=[1]),
                    tool("sound", description="another one"),
                    tool("$resources.read"),
                    tool("with space"),
                    tool(7),
                    "no tool",
                    tool("__proto__"),
                    tool("liar", outputSchema={"type": "object", "required": ["never"]}),
                ]
            },
        )
        return None

    def tool_liar(self, request: Json, given: Json) -> None:
        answer(request, {"content": "no list", "structuredContent": [1, 2]})

    def tool_no_schema(self, request: Json, given: Json) -> None:
        answer(request, text(json.dumps(given)))


class Refusing(Plain):
    """Refuses hands, or its list, with the code that the SDK has for a lost connection."""

    def __init__(self) -> None:
        super().__init__()
        sys.stderr.write("just a warning\n")
        sys.stderr.flush()

    def handle(self, message: Json) -> None:
        if message.get("method") in (sys.argv[2], "server/discover"):
            return refuse(message, -32000, f"no licence for {sys.argv[-1]}")
        return super().handle(message)


class OldVersion(Plain):
    """Speaks a version that nobody knows, and goes on running."""

    def handle(self, message: Json) -> None:
        if message.get("method") == "initialize":
            sys.stderr.write("just a warning\n")
            sys.stderr.flush()
            return initialized(message, protocolVersion="1999-01-01")
        return super().handle(message)


class Modern(Plain):
    """Knows nothing of `initialize`; every request has to say who asks."""

    def handle(self, message: Json) -> None:
        meta = message.get("params", {}).get("_meta", {})
        version = meta.get("io.modelcontextprotocol/protocolVersion")
        if message.get("method") == "initialize":
            supported = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
            return refuse(message, -32022, "Unsupported protocol version", supported)
        if "id" in message and version != "2026-07-28":
            return refuse(message, -32602, f"no version in {sorted(meta)}")
        if message.get("method") == "server/discover":
            info = {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "2"}}
            found: Json = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            return answer(message, {**found, "_meta": info, "resultType": "complete"})
        if message.get("method") == "subscriptions/listen":
            self.held = message
            return None
        return super().handle(message)

    def tool_confirm(self, request: Json, given: Json) -> None:
        params = request["params"]
        if params.get("requestState") == "opaque":
            return answer(request, text(json.dumps(params["inputResponses"])))
        question = {"message": "sure?", "requestedSchema": {"type": "object"}}
        asked = {"q": {"method": "elicitation/create", "params": question}}
        result = {"resultType": "input_required", "requestState": "opaque", "inputRequests": asked}
        return answer(request, result)


BEHAVIOURS: dict[str, type[Plain]] = {
    "plain": Plain,
    "silent": Silent,
    "stubborn": Stubborn,
    "many": Many,
    "circle": Circle,
    "endless": Endless,
    "crooked": Crooked,
    "modern": Modern,
    "refusing": Refusing,
    "old": OldVersion,
}


def main() -> None:
    server = BEHAVIOURS[sys.argv[1]]()
    for line in sys.stdin:
        server.handle(json.loads(line))
    if sys.argv[1] in ("stubborn", "silent"):
        time.sleep(1000)


main()
