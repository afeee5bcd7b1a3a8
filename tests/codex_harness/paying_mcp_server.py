"""An MCP server of few lines: `pay` counts payments in a file, `ask` asks the client a question."""

import json
import sys
from pathlib import Path
from typing import Any

NUMBER: dict[str, Any] = {"type": "object", "properties": {"amount": {"type": "integer"}}}
TOOLS: list[dict[str, Any]] = [
    {"name": "pay", "description": "Pay an amount.", "inputSchema": NUMBER},
    {
        "name": "ask",
        "description": "Ask the user.",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True},
    },
]
INITIALIZED: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bank", "version": "1.0.0"},
}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps({'jsonrpc': '2.0', **message})}\n")
    sys.stdout.flush()


def call(name: str, arguments: dict[str, Any], log: Path) -> str:
    if name == "pay":
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{arguments['amount']}\n")
        return f"paid {arguments['amount']}"
    schema = {"type": "object", "properties": {"approve": {"type": "boolean"}}}
    params = {"message": "Your password?", "requestedSchema": schema}
    send({"id": "elicit", "method": "elicitation/create", "params": params})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "elicit":
            return json.dumps(message.get("result", message.get("error")))
    return "no answer"


def main(log: Path) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        match request["method"]:
            case "initialize":
                result = INITIALIZED
            case "tools/list":
                result = {"tools": TOOLS}
            case "tools/call":
                params = request["params"]
                text = call(params["name"], params.get("arguments") or {}, log)
                result = {"content": [{"type": "text", "text": text}]}
            case _:
                result = {}
        send({"id": request["id"], "result": result})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
