"""An MCP server on standard input whose tools can be called. Run as a script.

`echo` gives its input back, `fail` reports an error, `both` gives words and data, and `hang` opens
the pipe `started` where it runs, and never answers.
"""

import json
import sys
from pathlib import Path
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "either": {"type": ["string", "integer", "null"]},
    },
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "calling", "version": "1"},
        }
    if method == "tools/list":
        names = ("echo", "fail", "both", "hang")
        return {"tools": [{"name": name, "inputSchema": SCHEMA} for name in names]}
    if method == "tools/call":
        return called(params["name"], params.get("arguments", {}))
    return None


def called(name: str, given: dict[str, Any]) -> dict[str, Any] | None:
    if name == "fail":
        return {"content": [words("the disk is full")], "isError": True}
    if name == "both":
        return {"content": [words("3 files")], "structuredContent": {"files": 3}}
    if name == "hang":
        Path("started").write_text("", encoding="utf-8")
        sys.stdin.read()
    return {"content": [words(json.dumps(given))], "structuredContent": given}


def words(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        found = answer(request["method"], request.get("params", {}))
        error = {"code": -32601, "message": "unknown method"}
        outcome = {"error": error} if found is None else {"result": found}
        sys.stdout.write(f"{json.dumps({'jsonrpc': '2.0', 'id': request['id'], **outcome})}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
