"""`nacre tools describe` and `search`: descriptions, and ranked results."""

import json
import re
import shlex
from pathlib import Path

import pytest

from nacre.cli.output import escape_json_controls, shorten
from nacre.cli.tools_views import first_sentence
from nacre.tools import CatalogIndex
from tests.cli.pseudo_terminal import person_at
from tests.cli.surroundings import Surroundings, small_server
from tests.cli.tools_setup import WITHOUT_CORE, calling_server, own_tools


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
    assert "2 tools are named 'a'; use an id: mcp:one:a, mcp:two:a" in err


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
        "nacre: looking for 'b' in the tools of 2 MCP servers; "
        "a full id such as mcp:server:tool needs only one of them\n"
    )


def test_at_a_terminal_nobody_waits_for_no_servers(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a")})

    with person_at("tools", "describe", "mcp:one:a", TERM="xterm") as person:
        person.reads("waiting for 1 server: one")
        assert person.leaves() == 0
        assert "0 servers" not in person.screen


NAMES = ("read_file", "write_file", "create_issue", "list_branches")


def test_results_come_in_the_order_of_their_rank(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server(*NAMES)}, tools=WITHOUT_CORE)

    status, out, err = surroundings.nacre("tools", "search", "read", "a", "file")

    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["tool", "title", "description"]
    assert rows[1] == ["1", "mcp:one:read_file", "Read_File", "Does", "read_file."]
    assert rows[2][:2] == ["2", "mcp:one:write_file"]
    assert (status, err) == (0, "")


def test_limit_is_the_persons_or_that_of_the_settings(surroundings: Surroundings) -> None:
    names = [f"read_{number}" for number in range(12)]
    surroundings.configure(
        {"one": small_server(*names)}, tools={"toolSearch": {"searchDefaultLimit": 3}}
    )

    _, configured, _ = surroundings.nacre("tools", "search", "read", "--json")
    _, given, _ = surroundings.nacre("tools", "search", "read", "--limit", "11", "--json")

    assert len(json.loads(configured)["results"]) == 3
    assert len(json.loads(given)["results"]) == 11


def test_explanation_tells_terms_fields_and_shares_of_the_score(
    surroundings: Surroundings,
) -> None:
    surroundings.configure({"one": small_server(*NAMES)})

    status, out, _ = surroundings.nacre("tools", "search", "create an issue", "--explain")

    first, sentence, *reasons = out.split("\n\n")[0].splitlines()
    assert re.fullmatch(r"1\. mcp:one:create_issue  \(score [0-9.]+\)", first)
    assert sentence == "   Does create_issue."
    assert any(re.fullmatch(r" +[0-9.]+ %  '\w+' in the name", reason) for reason in reasons)
    shares = [float(reason.split(" %")[0]) for reason in reasons]
    assert abs(sum(shares) - 100) < 1
    assert status == 0


def test_explanation_as_json_adds_up_to_the_score(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server(*NAMES)})

    _, document, _ = surroundings.nacre("tools", "search", "read_file", "--explain", "--json")
    _, plain, _ = surroundings.nacre("tools", "search", "read_file", "--json")

    best = json.loads(document)["results"][0]
    assert best["id"] == "mcp:one:read_file"
    assert best["parts"][0] == {"kind": "exact", "weight": 1000.0}
    assert abs(sum(part["weight"] for part in best["parts"]) - best["score"]) < 0.01
    assert "score" not in json.loads(plain)["results"][0]


def test_exact_name_says_so(surroundings: Surroundings) -> None:
    own = own_tools(surroundings, "exact_tools")

    _, out, _ = surroundings.nacre("tools", "search", "greet", "--explain", "-t", own)

    assert " %  exact id or name\n" in out


def test_denied_tools_are_not_found(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server(*NAMES)}, tools={"deny": ["read_*"]})

    _, document, _ = surroundings.nacre("tools", "search", "read file", "--json")

    found = [result["id"] for result in json.loads(document)["results"]]
    assert "mcp:one:write_file" in found
    assert "mcp:one:read_file" not in found


def test_nothing_that_fits_is_said(surroundings: Surroundings) -> None:
    surroundings.configure({}, tools=WITHOUT_CORE)
    own = own_tools(surroundings, "unfit_tools")

    status, out, err = surroundings.nacre("tools", "search", "zzzqqq", "-t", own)

    assert (status, out) == (0, "")
    assert err == "nacre: no match among 4 tools; list them with `nacre tools list`\n"


@pytest.mark.parametrize("options", [(), ("--wait",)])
def test_what_tools_mean_is_waited_for_and_its_absence_is_said(
    options: tuple[str, ...], surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_tools(surroundings, f"meant_tools_{len(options)}")
    waited: list[float] = []

    def too_short(_index: CatalogIndex, timeout_seconds: float) -> bool:
        waited.append(timeout_seconds)
        return timeout_seconds > 60

    monkeypatch.setattr(CatalogIndex, "wait_for_meanings", too_short)
    status, out, err = surroundings.nacre("tools", "search", "greet", "-t", own, *options)

    assert (status, len(waited), "openclaw:core:greet" in out) == (0, 1, True)
    assert ("searched by words only" in err) is (options == ())


def test_servers_that_were_not_searched_are_told(surroundings: Surroundings) -> None:
    surroundings.configure(
        {"one": small_server("read_file"), "exits": small_server("--exit")}, tools=WITHOUT_CORE
    )

    status, out, err = surroundings.nacre("tools", "search", "read", "--json")

    document = json.loads(out)
    assert (status, len(document["results"]), list(document["problems"])) == (1, 1, ["exits"])
    assert "exits" not in err


def test_a_server_whose_tools_are_cached_is_not_started_for_a_search(
    surroundings: Surroundings, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    entry = small_server("read_file")
    counted = f"echo >> {starts}; exec " + shlex.join([entry["command"], *entry["args"]])
    server = {"command": "sh", "args": ["-c", counted]}
    surroundings.configure({"one": server}, tools=WITHOUT_CORE)

    for _ in range(3):
        status, out, _ = surroundings.nacre("tools", "search", "read", "--json")
        assert (status, json.loads(out)["results"][0]["id"]) == (0, "mcp:one:read_file")
    assert len(starts.read_text()) == 1


def test_a_query_is_needed(surroundings: Surroundings) -> None:
    status, _, err = surroundings.nacre("tools", "search")

    assert (status, "nacre tools search --help" in err) == (2, True)


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ("Read a file. Or two.", "Read a file."),
        ("Read a file\nof any kind. Or two.", "Read a file\nof any kind."),
        ("Read a file\n \nArgs: none", "Read a file"),
        ("E.g. reads a file. Or two.", "E.g. reads a file."),
        ("ファイルを読み取ります。そして閉じます。", "ファイルを読み取ります。"),
        ("version 1.5 of it", "version 1.5 of it"),
        ("  ", ""),
    ],
)
def test_first_sentence(description: str, sentence: str) -> None:
    assert first_sentence(description) == sentence


def test_of_an_endless_text_only_the_start_is_read() -> None:
    assert len(first_sentence("a" * 1_000_000)) == 1_000


def test_a_name_with_its_letters_turned_around_is_not_shown_as_another() -> None:
    assert shorten("tac\u202edaer\u2066\u2069") == "tac\\u202edaer\\u2066\\u2069"
    assert escape_json_controls('"tac\u202edaer"') == '"tac\\u202edaer"'
