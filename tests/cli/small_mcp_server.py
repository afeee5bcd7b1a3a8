"""An MCP server on standard input, of few lines, so that many start quickly. Run as a script.

Its arguments are the names of its tools; `--hang` never answers, `--exit` ends at once, `--tell`
opens the pipe `started` where it runs, which somebody waits for.
"""

import json
import sys
from pathlib import Path
from typing import Any


def answer(method: str, names: list[str]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "small", "version": "1.2.3"},
        }
    if method == "tools/list":
        return {"tools": [tool(name) for name in names]}
    return None


def tool(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "title": name.title(),
        "description": f"Does {name}.\nIn two lines. \x1b[31m[red]",
        "inputSchema": {"type": "object", "properties": {"number": {"type": "integer"}}},
    }


def main(names: list[str]) -> None:
    if "--exit" in names:
        sys.exit("no such database")
    if "--tell" in names:
        Path("started").write_text("", encoding="utf-8")
    for line in sys.stdin:
        if "--hang" in names:
            continue
        request = json.loads(line)
        if "id" not in request:
            continue
        found = answer(request["method"], names)
        error = {"code": -32601, "message": "unknown method"}
        outcome = {"error": error} if found is None else {"result": found}
        sys.stdout.write(f"{json.dumps({'jsonrpc': '2.0', 'id': request['id'], **outcome})}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
