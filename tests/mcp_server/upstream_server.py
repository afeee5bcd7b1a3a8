"""An MCP server on standard input, by hand, so that many start quickly. Run as a script.

`echo` gives its input back, `ask` asks a person, and `hang` takes for ever.
"""

import json
import subprocess
import sys
from typing import Any

Json = dict[str, Any]

INITIALIZED: Json = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "curious", "version": "1"},
}
TOOLS: Json = {
    "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "ask", "hang")]
}
FORM: Json = {
    "message": "Where?",
    "requestedSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def send(message: Json) -> None:
    sys.stdout.write(f"{json.dumps({'jsonrpc': '2.0', **message})}\n")
    sys.stdout.flush()


def call(request: Json) -> None:
    params = request["params"]
    match params["name"]:
        case "ask":
            # The answer has the same id.
            send({"id": request["id"], "method": "elicitation/create", "params": FORM})
        case "hang":
            token = params["_meta"]["progressToken"]
            progress = {"progressToken": token, "progress": 1, "total": 3, "message": "hanging"}
            send({"method": "notifications/progress", "params": progress})
        case _:
            give(request["id"], params.get("arguments", {}))


def give(request_id: object, value: Json) -> None:
    content = [{"type": "text", "text": str(value)}]
    send({"id": request_id, "result": {"content": content, "structuredContent": value}})


def main() -> None:
    for line in sys.stdin:
        message: Json = json.loads(line)
        match message.get("method"):
            case "initialize":
                send({"id": message["id"], "result": INITIALIZED})
            case "tools/list":
                send({"id": message["id"], "result": TOOLS})
            case "tools/call":
                call(message)
            case None:
                give(message["id"], message["result"])
            case _:
                if "id" in message:
                    error = {"code": -32601, "message": "unknown method"}
                    send({"id": message["id"], "error": error})


def start_stubborn_child() -> None:
    """One that outlives us, and everything but SIGKILL."""
    nothing = subprocess.DEVNULL
    command = ["sh", "-c", "trap '' TERM HUP INT; sleep 600"]
    subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)


if __name__ == "__main__":
    if "--stubborn" in sys.argv:
        start_stubborn_child()
    main()
