"""`nacre tools describe`: what a tool does and takes, and what a wrong id may have meant."""

import json

import pytest

from tests.cli.agent.pseudo_terminal import person_at
from tests.cli.mcp.setup import Surroundings, small_server
from tests.cli.tools.setup import calling_server, own_tools


def test_description_has_the_declaration_and_how_programs_call_it(
    surroundings: Surroundings,
) -> None:
    surroundings.configure({"my-server": small_server("create_issue")})

    status, out, err = surroundings.nacre("tools", "describe", "mcp:my-server:create_issue")

    assert out == (
        "mcp:my-server:create_issue  (Create_Issue)\n\n"
        "Does create_issue.\nIn two lines. \\x1b[31m[red]\n\n"
        "in programs: MCP.myServer.createIssue(input)\n\n"
        "function createIssue(input?: { number?: number }): Promise<McpToolResult>;\n"
    )
    assert (status, err) == (0, "")


def test_ones_own_tool_is_described_without_starting_a_server(surroundings: Surroundings) -> None:
    surroundings.configure({"exits": small_server("--exit")})
    own = own_tools(surroundings, "described_tools")

    status, out, err = surroundings.nacre("tools", "describe", "openclaw:core:add", "-t", own)

    assert "in programs: tools.add(input)\n" in out
    assert "function add(input: { a: number; b?: number })" in out
    assert (status, err) == (0, "")


def test_json_has_the_schema(surroundings: Surroundings) -> None:
    surroundings.configure({"one": calling_server(requireApproval=["echo"])})

    _, out, _ = surroundings.nacre("tools", "describe", "mcp:one:echo", "--json")

    described = json.loads(out)
    assert described["parameters"]["properties"]["count"] == {"type": "integer"}
    assert described["programCall"] == "MCP.one.echo(input)"
    assert described["declaration"].startswith("function echo(")
    assert described["needsApproval"]


def test_need_of_an_approval_is_told(surroundings: Surroundings) -> None:
    surroundings.configure({"one": calling_server(requireApproval=True)})

    _, out, _ = surroundings.nacre("tools", "describe", "echo")

    assert "\nneeds approval: " in out


def test_wrong_id_is_answered_with_the_nearest(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("read_file", "create_issue")})

    status, out, err = surroundings.nacre("tools", "describe", "mcp:one:creat_issue")
    _, document, _ = surroundings.nacre("tools", "describe", "nobody:reed_file", "--json")

    assert (status, out) == (1, "")
    assert err == (
        "failed: there is no tool 'mcp:one:creat_issue'; nearest: mcp:one:create_issue\n"
        "  code unknown_tool\n"
    )
    failed = json.loads(document)
    assert (failed["code"], failed["nearest"]) == ("unknown_tool", ["mcp:one:read_file"])


def test_name_that_two_tools_have_is_answered_with_both(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a"), "two": small_server("a")})

    status, _, err = surroundings.nacre("tools", "describe", "a")

    assert status == 1
    assert "2 tools are named 'a'; name one by its id: mcp:one:a, mcp:two:a" in err


def test_denied_tool_is_not_described_but_the_rule_is(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a")}, tools={"deny": ["a"]})

    status, out, err = surroundings.nacre("tools", "describe", "mcp:one:a")

    assert (status, out) == (1, "")
    assert err == 'failed: a is not permitted: `tools.deny` has "a"\n  code denied_by_policy\n'


def test_tool_of_a_broken_server_says_what_is_wrong_with_it(surroundings: Surroundings) -> None:
    surroundings.configure({"exits": small_server("--exit"), "one": small_server("a")})

    status, _, err = surroundings.nacre("tools", "describe", "mcp:exits:a")

    assert status == 1
    assert err.startswith("failed: the tools of exits are missing: ")
    assert err.endswith("  code server_unavailable\n")


@pytest.mark.parametrize("wanted", ["", "mcp:", "mcp:one", "a" * 100_000, "__proto__", "mcp:one:"])
def test_odd_ids_are_refused_in_a_line(surroundings: Surroundings, wanted: str) -> None:
    surroundings.configure({"one": small_server("a")})

    status, out, err = surroundings.nacre("tools", "describe", wanted)

    assert (status, out) == (1, "")
    refusal = err[err.index("failed: ") :]
    assert refusal.startswith("failed: there is no tool '")
    assert len(refusal) < 400


def test_a_bare_name_says_that_all_servers_are_started_for_it(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a"), "two": small_server("b")})

    status, _, err = surroundings.nacre("tools", "describe", "b")

    assert status == 0
    assert err == (
        "nacre: starting 2 MCP servers to find 'b'; "
        "a full id, such as mcp:server:tool, starts no more than it needs\n"
    )


def test_at_a_terminal_nobody_waits_for_no_servers(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a")})

    with person_at("tools", "describe", "mcp:one:a", TERM="xterm") as person:
        person.reads("waiting for 1 server: one")
        assert person.leaves() == 0
        assert "0 servers" not in person.screen
