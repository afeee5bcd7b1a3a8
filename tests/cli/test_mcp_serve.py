"""`nacre mcp` as a process: what a client that starts it sees, and how it ends."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from nacre.cli.configured_servers import configured_servers
from nacre.cli.mcp_serve import list_shown_tools, serve_options
from tests.cli.nacre_process import (
    PATIENCE_SECONDS,
    ended_with_the_block,
    pipe_of,
    run_nacre,
    start_nacre,
)
from tests.cli.surroundings import Surroundings, small_server
from tests.forked_python import FORKED_PYTHON


def talk(*arguments: str | Path) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Ask for the tools, as a client does, and leave; what the process did, and its tools."""
    client = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    messages = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    process = subprocess.Popen(
        [FORKED_PYTHON, "-m", "nacre.cli.main", "mcp", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with ended_with_the_block(process):
        lines = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
        wire = pipe_of(process.stdin)
        wire.write(b"\n".join((*lines, b"")))
        wire.flush()
        answers = [json.loads(pipe_of(process.stdout).readline()) for _ in range(2)]
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    done = subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())
    return done, answers[1]["result"]["tools"]


def names_of(tools: list[dict[str, Any]]) -> list[str]:
    return [tool["name"] for tool in tools]


def test_client_sees_two_tools_in_front_of_the_configured_servers(
    surroundings: Surroundings,
) -> None:
    surroundings.configure({"my-server": small_server("a")})

    done, tools = talk()

    assert names_of(tools) == ["exec", "wait"]
    assert "myServer" in tools[0]["description"]
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_clients_file_is_served_as_it_is(surroundings: Surroundings) -> None:
    file = surroundings.project / "claude_desktop_config.json"
    document = {
        "mcpServers": {
            "theirs": small_server("a"),
            "nacre": {"command": "nacre", "args": ["mcp", "--servers", str(file)]},
        }
    }
    file.write_text(json.dumps(document), encoding="utf-8")

    done, tools = talk("--servers", file)

    assert names_of(tools) == ["exec", "wait"]
    assert "MCP servers: theirs." in tools[0]["description"]
    assert "nacre is left out: it starts `nacre mcp` itself" in done.stderr


def test_broken_entry_costs_that_server_alone(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a"), "two": {"command": "${NOT_SET_HERE}"}})

    done, tools = talk()

    assert names_of(tools) == ["exec", "wait"]
    assert "nacre: the server two cannot be used: `mcp.servers.two.command` uses" in done.stderr


def test_settings_of_code_mode_hold_and_cannot_switch_it_off(surroundings: Surroundings) -> None:
    code_mode = {"enabled": False, "languages": ["javascript"]}
    surroundings.configure({"one": small_server("a")}, tools={"codeMode": code_mode})

    _, tools = talk()

    assert names_of(tools) == ["exec", "wait"]
    assert tools[0]["inputSchema"]["properties"]["language"]["enum"] == ["javascript"]


def test_tools_of_ones_own_are_served_without_any_server(surroundings: Surroundings) -> None:
    module = surroundings.project / "own.py"
    module.write_text("async def add(a: int, b: int) -> int:\n    return a + b\n", encoding="utf-8")

    done, tools = talk("--tools", "own:add")

    assert names_of(tools) == ["exec", "wait"]
    assert "add" in tools[0]["description"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--port", "1"], "--port needs --http"),
        (["--no-token"], "--no-token needs --http"),
        (["--http", "--no-token", "--token-file", "x"], "got both --token-file and --no-token"),
        (
            ["--http", "--no-token", "--host", "0.0.0.0"],
            "--no-token` is only allowed on a loopback address",
        ),
        (["--http", "--token-file", "gone"], "--token-file` cannot be read"),
        (["--tools", "gone:add"], "--tools gone:add: No module named 'gone'"),
        (["--servers", "gone.json"], "gone.json"),
    ],
)
def test_what_cannot_be_served_is_bad_usage(
    surroundings: Surroundings, arguments: list[str], problem: str
) -> None:
    surroundings.configure({"one": small_server("a")})

    done = run_nacre("mcp", "serve", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_wrong_setting_is_bad_usage(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a")}, tools={"codeMode": {"timeoutMs": "soon"}})

    done = run_nacre("mcp")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nacre: `tools.codeMode.timeoutMs` ")


def test_http_says_where_it_serves_and_ends_with_a_signal(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a")})
    with start_nacre("mcp", "serve", "--http", "--port", "0") as process:
        place = pipe_of(process.stderr).readline().decode()
        token = pipe_of(process.stderr).readline().decode()
        # Answered as soon as it serves; what it says comes before.
        with pytest.raises(HTTPError, match="401") as refused:
            urlopen(place.split()[-1], timeout=PATIENCE_SECONDS)
        refused.value.close()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE_SECONDS)

    assert place.startswith("serving MCP at http://127.0.0.1:")
    assert "Authorization: Bearer " in token
    assert process.returncode == 143


@pytest.mark.parametrize(("mode", "is_named"), [("off", True), ("non-main", False), ("all", False)])
def test_rules_for_sandboxed_sessions_apply_to_clients(
    surroundings: Surroundings, mode: str, is_named: bool
) -> None:
    surroundings.configure(
        {"papers": small_server("a")},
        agents={"defaults": {"sandbox": {"mode": mode}}},
        tools={"sandbox": {"tools": {"deny": ["papers"]}}},
    )
    options = serve_options(configured_servers(None, ()), tools=())
    assert ("papers" in str(list_shown_tools(options))) is is_named
