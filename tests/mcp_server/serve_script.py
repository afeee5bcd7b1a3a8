"""`nacre mcp` as a process for tests, without the command line: `serve_script.py stdio|http`."""

import sys
from pathlib import Path
from typing import Any

from nacre import Tool, ToolCall
from nacre.config.mcp_entry import McpServerConfig
from nacre.mcp_server import ServeOptions, serve_http, serve_stdio

UPSTREAM = str(Path(__file__).with_name("upstream_server.py"))


async def _shout(given: dict[str, Any], call: ToolCall) -> object:
    # What a tool prints must not reach the wire.
    sys.stdout.write("printed by a tool\n")
    sys.stdout.flush()
    return "shouted"


def options() -> ServeOptions:
    upstream = McpServerConfig(
        name="curious",
        transport="stdio",
        command=sys.executable,
        args=(UPSTREAM, *(("--stubborn",) if "--stubborn" in sys.argv else ())),
    )
    guarded = McpServerConfig(
        name="guarded",
        transport="stdio",
        command=sys.executable,
        args=(UPSTREAM,),
        require_approval=("echo",),
    )
    missing = McpServerConfig(name="missing", transport="stdio", command="/no/such/command")
    return ServeOptions(
        servers=[upstream, guarded, missing],
        tools=[Tool(name="shout", execute=_shout)],
        workers=1,
    )


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        sys.exit(serve_stdio(options()))
    sys.exit(serve_http(options(), port=0, is_token_required="--no-token" not in sys.argv))
