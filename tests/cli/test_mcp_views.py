"""`nacre mcp status`, `tools` and `savings`: what servers answer, and those that do not."""

import json
import os
import signal

import pytest

from nacre.cli.configured_servers import ServerSurvey
from nacre.cli.mcp_views import write_status
from tests.cli.nacre_process import PATIENCE_SECONDS, start_nacre, still_running, workers_of
from tests.cli.surroundings import Surroundings, small_server

ESCAPE = "\x1b"


def rows_of(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


# status


def test_status_of_servers_that_work(surroundings: Surroundings) -> None:
    surroundings.configure(
        {
            "one": small_server("read_file"),
            "off": {"command": "gone", "disabled": True},
            "two": small_server("a", "b"),
        }
    )

    status, out, err = surroundings.run("status")

    heading, one, off, two = rows_of(out)
    assert heading == ["server", "state", "tools", "version", "time", "problem"]
    assert one[:5] == ["one", "ready", "1", "small", "1.2.3"]
    assert off == ["off", "disabled"]
    assert two[:3] == ["two", "ready", "2"]
    assert (status, err) == (0, "")


def test_broken_servers_are_told_and_hold_up_no_other(surroundings: Surroundings) -> None:
    surroundings.configure(
        {
            "gone": {"command": "no-such-command-anywhere"},
            "unset": {"command": "x", "env": {"A": "${NOT_SET_HERE}"}},
            "hangs": {**small_server("--hang"), "startupSeconds": 1},
            "exits": small_server("--exit"),
            "works": small_server("a"),
        }
    )

    status, out, _ = surroundings.run("status", "--json")

    servers = {server["name"]: server for server in json.loads(out)["servers"]}
    assert status == 1
    assert [(name, server["state"]) for name, server in servers.items()] == [
        ("gone", "broken"),
        ("unset", "broken"),
        ("hangs", "broken"),
        ("exits", "broken"),
        ("works", "ready"),
    ]
    assert "no-such-command-anywhere" in servers["gone"]["problem"]
    assert "NOT_SET_HERE, which is not set" in servers["unset"]["problem"]
    assert "the MCP server hangs " in servers["hangs"]["problem"]
    assert "no such database" in servers["exits"]["problem"]
    assert (servers["works"]["tools"], servers["hangs"]["tools"]) == (1, None)


def test_a_long_problem_is_told_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"https://login.example/{'a' * 400}/end"
    broken = ServerSurvey(name="one", state="broken", problem=f"log in at {address}")

    status = write_status([broken], is_json=False)

    assert status == 1
    assert f"log in at {address}\n" in capsys.readouterr().out


def test_timeout_ends_the_wait_for_a_server(surroundings: Surroundings) -> None:
    surroundings.configure({"hangs": small_server("--hang")})

    status, out, _ = surroundings.run("status", "--timeout-seconds", "0.5")

    assert (status, "no answer within 0.5 seconds" in out) == (1, True)


def test_status_of_one_server_starts_no_other(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a"), "broken": {"command": "gone"}})

    status, out, _ = surroundings.run("status", "one")

    assert (status, len(rows_of(out))) == (0, 2)


def test_unknown_server_is_bad_usage(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a")})

    for command in ("status", "tools"):
        result = surroundings.run(command, "on")

        assert result == (2, "", "nacre: there is no server 'on'; configured servers: one\n")


def test_nothing_configured_is_said(surroundings: Surroundings) -> None:
    status, out, err = surroundings.run("status")

    assert (status, out) == (0, "")
    assert err.startswith("nacre: no MCP servers are configured")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_command_and_the_servers(
    surroundings: Surroundings, number: signal.Signals
) -> None:
    surroundings.configure({"hangs": small_server("--hang", "--tell")})
    started = surroundings.project / "started"
    os.mkfifo(started)
    with start_nacre("mcp", "status") as process:
        started.read_text(encoding="utf-8")
        servers = workers_of(process)

        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert (process.returncode, out, err) == (128 + number, b"", b"nacre: aborted\n")
    assert servers
    assert still_running(servers) == []


# tools


def test_tools_are_listed_by_the_path_that_programs_call(surroundings: Surroundings) -> None:
    off = {"command": "off", "disabled": True}
    surroundings.configure({"my-server": small_server("create_issue", "constructor"), "off": off})

    status, out, err = surroundings.run("tools")

    assert [row[0] for row in rows_of(out)] == [
        "tool",
        "MCP.myServer.createIssue",
        "MCP.myServer.constructor_",
        "MCP.myServer.resources.list",
        "MCP.myServer.resources.read",
        "MCP.myServer.resources.templates",
    ]
    assert (status, err) == (0, "")


def test_hostile_descriptions_stay_on_their_line_without_escapes(
    surroundings: Surroundings,
) -> None:
    surroundings.configure({"one": small_server("a")})

    for arguments in (["tools"], ["tools", "--schema"], ["tools", "--json"]):
        _, out, _ = surroundings.run(*arguments)

        assert ESCAPE not in out
    _, table, _ = surroundings.run("tools")
    assert table.splitlines()[1].endswith("Does a. In two lines. \\x1b[31m[red]")


def test_path_of_one_server_does_not_depend_on_being_asked_alone(
    surroundings: Surroundings,
) -> None:
    surroundings.configure({"a-b": small_server("x"), "a_b": small_server("x")})

    _, out, _ = surroundings.run("tools", "a-b", "--json")
    _, everything, _ = surroundings.run("tools", "--json")

    alone = json.loads(out)["tools"][0]["path"]
    assert alone == json.loads(everything)["tools"][0]["path"]
    assert alone.startswith("MCP.aB_")


def test_schemas_are_shown_when_asked_for(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a")})

    _, text, _ = surroundings.run("tools", "--schema")
    _, plain, _ = surroundings.run("tools", "--json")
    _, document, _ = surroundings.run("tools", "--json", "--schema")

    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    assert f"  input: {json.dumps(schema)}\n" in text
    assert "inputSchema" not in json.loads(plain)["tools"][0]
    tool = json.loads(document)["tools"][0]
    assert (tool["name"], tool["title"], tool["inputSchema"]) == ("a", "A", schema)


def test_a_server_called_index_has_the_name_that_programs_call_it_by(
    surroundings: Surroundings,
) -> None:
    surroundings.configure({"index": small_server("a")})

    _, out, _ = surroundings.run("tools")

    assert "MCP.index_.a" in out


def test_tools_of_a_broken_server_are_missed_aloud(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a"), "exits": small_server("--exit")})

    status, out, err = surroundings.run("tools")
    _, document, _ = surroundings.run("tools", "--json")

    assert status == 1
    assert "MCP.one.a" in out
    assert "nacre: the tools of exits are missing: " in err
    assert list(json.loads(document)["problems"]) == ["exits"]


# savings


def test_savings_are_bytes_of_definitions_before_and_after(surroundings: Surroundings) -> None:
    names = [f"tool_{number}" for number in range(100)]
    surroundings.configure({"one": small_server(*names), "two": small_server("a")})

    status, document, err = surroundings.run("savings", "--json")

    savings = json.loads(document)
    one, two = savings["servers"]
    definition = {
        "name": "a",
        "description": "Does a.\nIn two lines. \x1b[31m[red]",
        "inputSchema": {"type": "object", "properties": {"number": {"type": "integer"}}},
        "title": "A",
    }
    assert two["bytes"] == len(json.dumps(definition, separators=(",", ":")))
    assert (one["tools"], two["tools"], savings["tools"]) == (100, 1, 101)
    assert savings["bytes"] == one["bytes"] + two["bytes"]
    assert savings["shownTools"] == ["exec", "wait"]
    assert 0 < savings["shownBytes"] < 5_000
    expected = 100 * (1 - savings["shownBytes"] / savings["bytes"])
    assert savings["savedPercent"] == pytest.approx(expected, abs=0.01)
    assert (status, err) == (0, "")


def test_savings_as_a_table_leave_out_what_cannot_be_counted(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a", "b"), "exits": small_server("--exit")})

    status, out, err = surroundings.run("savings")

    heading, one, total, nacre = rows_of(out)
    assert heading == ["client", "with", "tools", "bytes", "saved"]
    assert one[:2] == ["one", "2"]
    assert total[-2:] == one[-2:]
    assert nacre[:3] == ["nacre", "mcp", "2"]
    assert "nacre: the tools of exits are not counted: " in err
    assert status == 1


def test_wrong_settings_are_told_before_a_server_is_started(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("--tell", "a")}, tools={"denny": ["x"]})

    status, out, err = surroundings.run("savings")

    assert (status, out) == (2, "")
    assert err == 'nacre: `tools` has the unknown key "denny"; did you mean `deny`?\n'
    assert not (surroundings.project / "started").exists()
