"""An MCP server on standard input whose one tool answers when it is told to. Run as a script.

Its arguments are the tool's name and a folder with two pipes: a call opens `called`, which
somebody waits for, and then reads its result from `result`.
"""

import json
import sys
from pathlib import Path
from typing import Any


def called(folder: Path) -> str:
    (folder / "called").write_text("", encoding="utf-8")
    return (folder / "result").read_text(encoding="utf-8")


def answer(method: str, name: str, folder: Path) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "held", "version": "1"},
            }
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": called(folder)}]}
        case _:
            return None


def main(name: str, folder: Path) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        found = answer(request["method"], name, folder)
        error = {"code": -32601, "message": "unknown method"}
        outcome = {"error": error} if found is None else {"result": found}
        sys.stdout.write(f"{json.dumps({'jsonrpc': '2.0', 'id': request['id'], **outcome})}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
