"""Third-party clients of `nacre mcp`: the Inspector, FastMCP and the conformance tests."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcp_server.processes import SCRIPT, http_server
from tests.mcp_server.third_party_clients import run_conformance, run_inspector, run_python

BASELINE = Path(__file__).with_name("conformance_baseline.yml")
CODE = "return (await MCP.curious.echo({n: 1})).structuredContent"

FASTMCP_PROGRAM = """
import asyncio, json, sys
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

async def main():
    async with Client(StdioTransport(sys.argv[1], [sys.argv[2], "stdio"])) as client:
        names = [tool.name for tool in await client.list_tools()]
        result = await client.call_tool("exec", {"code": sys.argv[3]})
        print(json.dumps({"names": names, "result": result.structured_content}))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a server that needs no token."""
    with http_server("--no-token") as (_, url, _token):
        yield url


def test_the_inspector_lists_and_calls_over_stdio() -> None:
    listed = run_inspector(sys.executable, SCRIPT, "stdio", "--method", "tools/list")
    assert listed.returncode == 0, listed.stderr
    assert [tool["name"] for tool in json.loads(listed.stdout)["tools"]] == ["exec", "wait"]
    call = ("--method", "tools/call", "--tool-name", "exec", "--tool-arg", f"code={CODE}")
    called = run_inspector(sys.executable, SCRIPT, "stdio", *call)
    assert called.returncode == 0, called.stderr
    assert json.loads(called.stdout)["structuredContent"]["value"] == {"n": 1}


def test_the_inspector_calls_over_http(url: str) -> None:
    called = run_inspector(
        url, "--transport", "http", "--method", "tools/call", "--tool-name", "exec",
        "--tool-arg", f"code={CODE}",
    )  # fmt: skip
    assert called.returncode == 0, called.stderr
    assert json.loads(called.stdout)["structuredContent"]["value"] == {"n": 1}


def test_a_fastmcp_client_calls_over_stdio() -> None:
    called = run_python(FASTMCP_PROGRAM, sys.executable, SCRIPT, CODE)
    assert called.returncode == 0, called.stderr
    found = json.loads(called.stdout)
    assert (found["names"], found["result"]["value"]) == (["exec", "wait"], {"n": 1})


def test_of_all_conformance_scenarios_only_those_for_a_fixture_server_fail(
    tmp_path: Path, url: str
) -> None:
    ran = run_conformance(
        tmp_path, "server", "--url", url, "--suite", "active", "--expected-failures",
        str(BASELINE),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith("\u2713 ")]
    assert passed == [
        "server-initialize:",
        "ping:",
        "tools-list:",
        "server-sse-multiple-streams:",
        "dns-rebinding-protection:",
    ]
