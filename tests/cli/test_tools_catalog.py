"""`nacre tools list`: the configured and permitted tools, and what is missing."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.surroundings import Surroundings, small_server
from tests.cli.tools_setup import WITHOUT_CORE, own_tools
from tests.plugins.plugin_folders import plugin_folder

ESCAPE = "\x1b"


def ids_of(document: str) -> list[str]:
    return [tool["id"] for tool in json.loads(document)["tools"]]


def test_tools_of_servers_and_of_ones_own_are_in_one_table(surroundings: Surroundings) -> None:
    surroundings.configure(
        {"two": small_server("b"), "one": small_server("a", "read_file")}, tools=WITHOUT_CORE
    )
    own = own_tools(surroundings, "listed_tools")

    status, out, err = surroundings.nacre("tools", "list", "--tools", own)

    heading, *rows, count = out.splitlines()
    assert heading.split() == ["tool", "title", "description"]
    assert rows[0].split(maxsplit=2) == ["openclaw:core:add", "add", "Add two numbers."]
    assert [row.split()[0] for row in rows[4:]] == ["mcp:one:a", "mcp:one:read_file", "mcp:two:b"]
    assert rows[4].split(maxsplit=2) == ["mcp:one:a", "A", "Does a. In two lines."]
    assert rows[5].split(maxsplit=2)[2] == "Does read_file."
    assert (status, count, err) == (0, "7 tools", "")
    assert ESCAPE not in out


def test_policy_of_the_document_and_of_the_agent_holds(surroundings: Surroundings) -> None:
    surroundings.configure(
        {"one": small_server("a", "b", "c")},
        tools={"deny": ["mcp:one:a", *WITHOUT_CORE["deny"]]},
        agents={"list": [{"id": "bold"}, {"id": "careful", "tools": {"deny": ["b"]}}]},
    )

    bold = surroundings.nacre("tools", "list", "--json")
    careful = surroundings.nacre("tools", "list", "--json", "--agent", "careful")

    assert ids_of(bold[1]) == ["mcp:one:b", "mcp:one:c"]
    assert ids_of(careful[1]) == ["mcp:one:c"]


def test_the_agent_is_the_configured_one(surroundings: Surroundings) -> None:
    surroundings.configure(
        {},
        agents={
            "list": [
                {"id": "bold"},
                {"id": "careful", "default": True, "tools": {"deny": ["write", "edit"]}},
            ]
        },
    )

    configured = surroundings.nacre("tools", "list", "--json")
    bold = surroundings.nacre("tools", "list", "--json", "--agent", "bold")

    assert set(ids_of(bold[1])) - set(ids_of(configured[1])) == {
        "openclaw:core:write",
        "openclaw:core:edit",
    }


def test_an_agent_that_is_not_configured_is_refused(surroundings: Surroundings) -> None:
    surroundings.configure({}, agents={"list": [{"id": "careful"}]})

    result = surroundings.nacre("tools", "list", "--agent", "carefull")

    assert result[0] == 2
    assert "`agents` has no agent 'carefull'" in result[2]


def test_broken_server_is_named_and_the_rest_is_shown(surroundings: Surroundings) -> None:
    surroundings.configure(
        {
            "one": small_server("a"),
            "exits": small_server("--exit"),
            "unset": {"command": "x", "env": {"A": "${NOT_SET_HERE}"}},
        },
        tools=WITHOUT_CORE,
    )

    status, out, err = surroundings.nacre("tools", "list")
    _, document, _ = surroundings.nacre("tools", "list", "--json")

    assert (status, "mcp:one:a" in out) == (1, True)
    assert "nacre: the tools of exits are missing: " in err
    assert "no such database" in err
    assert "nacre: the tools of unset are missing: " in err
    assert set(json.loads(document)["problems"]) == {"exits", "unset"}
    assert ids_of(document) == ["mcp:one:a"]


def test_one_server_starts_no_other(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a"), "exits": small_server("--exit")})
    own = own_tools(surroundings, "others_tools")

    status, document, err = surroundings.nacre(
        "tools", "list", "--server", "one", "--tools", own, "--json"
    )

    assert (status, ids_of(document), err) == (0, ["mcp:one:a"], "")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"disabled": True}, "it is disabled in the configuration"),
        ({}, "the policy permits none of its tools"),
        ({"allow": []}, "its own `allow` or `deny` excludes all of its tools"),
    ],
)
def test_server_that_is_left_out_says_why_when_it_is_asked_for(
    surroundings: Surroundings, more: dict[str, object], reason: str
) -> None:
    entry = {**small_server("--exit"), **more}
    surroundings.configure({"one": entry}, tools={"deny": ["one", *WITHOUT_CORE["deny"]]})

    named = surroundings.nacre("tools", "list", "--server", "one")
    everything = surroundings.nacre("tools", "list")

    assert named[0] == 1
    assert f"nacre: the tools of one are missing: {reason}" in named[2]
    assert everything == (0, "0 tools\n", "")


def test_other_sources_start_no_server(surroundings: Surroundings) -> None:
    surroundings.configure({"exits": small_server("--exit")}, tools=WITHOUT_CORE)
    own = own_tools(surroundings, "sourced_tools")

    ours = surroundings.nacre("tools", "list", "--source", "openclaw", "-t", own, "--json")
    nobodys = surroundings.nacre("tools", "list", "--source", "client", "-t", own)

    assert (ours[0], len(ids_of(ours[1])), ours[2]) == (0, 4, "")
    assert nobodys == (0, "0 tools\n", "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--source", "plugin"], "--source is 'plugin'; allowed: mcp, openclaw, client"),
        (["--server", "one", "--source", "client"], "leave out --source client"),
        (["--server", "on"], "there is no server 'on'; configured servers: one"),
        (["--tools", "gone:x"], "--tools gone:x: No module named 'gone'"),
    ],
)
def test_bad_usage_is_told(surroundings: Surroundings, arguments: list[str], problem: str) -> None:
    surroundings.configure({"one": small_server("a")})

    status, out, err = surroundings.nacre("tools", "list", *arguments)

    assert (status, out) == (2, "")
    assert problem in err


def test_wrong_policy_is_told_by_its_path(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server("a")}, tools={"deny": "a"})

    status, _, err = surroundings.nacre("tools", "list")

    assert (status, err.startswith("nacre: `tools.deny` is ")) == (2, True)


def test_nothing_configured_is_said(surroundings: Surroundings) -> None:
    surroundings.configure({}, tools=WITHOUT_CORE)

    status, out, err = surroundings.nacre("tools", "list")

    assert (status, out) == (0, "0 tools\n")
    assert err.startswith("nacre: no MCP servers are configured")


def test_tool_that_no_catalog_holds_is_named(surroundings: Surroundings) -> None:
    module = surroundings.project / "direct_tools.py"
    module.write_text(
        "from nacre.tools import tool\n"
        "@tool(catalog_mode='direct-only')\n"
        "async def picture() -> None: ...\n",
        encoding="utf-8",
    )

    status, out, err = surroundings.nacre("tools", "list", "-t", "direct_tools:picture")

    assert (status, "picture" in out) == (0, False)
    assert err.startswith("nacre: openclaw:core:picture is left out: ")


def test_two_tools_of_one_id_are_refused(surroundings: Surroundings) -> None:
    own = own_tools(surroundings, "twice_tools")

    status, _, err = surroundings.nacre("tools", "list", "-t", own, "-t", own)

    assert status == 2
    assert "these tools cannot be used together: two tools have the id" in err


BLOCKING = """
from nacre.plugins.api import Block, PluginApi

def register(api: PluginApi) -> None:
    api.add_hook("before_tool_call", lambda event: Block("not on a Monday"))
"""


def configure(here: Surroundings, *plugins: Path, **more: Any) -> None:
    here.configure(
        {"one": small_server("a")},
        agents={"defaults": {"workspace": str(here.project)}},
        plugins={"paths": [str(folder) for folder in plugins], "entryPoints": False},
        **more,
    )


def listed(here: Surroundings) -> tuple[int, list[str], dict[str, str]]:
    status, out, _ = here.nacre("tools", "list", "--json")
    document = json.loads(out)
    return status, [tool["id"] for tool in document["tools"]], document["problems"]


def test_core_tools_and_plugins_are_listed_beside_servers(
    surroundings: Surroundings, tmp_path: Path
) -> None:
    configure(surroundings, plugin_folder(tmp_path))

    status, ids, problems = listed(surroundings)

    assert (status, problems) == (0, {})
    assert {"openclaw:core:read", "openclaw:greeter:greet", "mcp:one:a"} <= set(ids)


def test_core_tools_work_in_the_workspace_of_the_agent(surroundings: Surroundings) -> None:
    configure(surroundings)
    (surroundings.project / "a.txt").write_text("hello\n", encoding="utf-8")

    described = surroundings.nacre("tools", "describe", "openclaw:core:read")
    called = surroundings.nacre("tools", "call", "openclaw:core:list", "--json")

    assert "in programs: tools.read(input)\n" in described[1]
    (entry,) = json.loads(called[1])["value"]["entries"]
    assert (called[0], entry["name"]) == (0, "a.txt")


def test_tools_and_hooks_of_plugins_hold_for_a_call(
    surroundings: Surroundings, tmp_path: Path
) -> None:
    configure(surroundings, plugin_folder(tmp_path))
    greeted = surroundings.nacre("tools", "call", "openclaw:greeter:greet", "name=Ada")
    configure(surroundings, plugin_folder(tmp_path, "blocker", BLOCKING))
    blocked = surroundings.nacre("tools", "call", "openclaw:core:list")

    assert (greeted[0], "Ada" in greeted[1]) == (0, True)
    assert blocked[0] == 1
    assert "not on a Monday" in blocked[2]


def test_a_broken_plugin_costs_its_own_tools_alone(
    surroundings: Surroundings, tmp_path: Path
) -> None:
    configure(surroundings, plugin_folder(tmp_path, "broken", "raise RuntimeError('no')"))

    status, ids, problems = listed(surroundings)
    _, _, err = surroundings.nacre("tools", "list")

    assert (status, problems) == (1, {"broken": "it cannot be imported: RuntimeError: no"})
    assert "mcp:one:a" in ids
    problem = "the tools of broken are missing: it cannot be imported: RuntimeError: no"
    assert err == f"nacre: {problem}\n"


def test_a_fault_in_the_settings_costs_what_it_is_about(surroundings: Surroundings) -> None:
    configure(surroundings, tools={"fs": {"ask": "sometimes"}}, gateway={"port": "no"})

    status, ids, problems = listed(surroundings)

    assert (status, ids) == (1, ["mcp:one:a"])
    assert list(problems) == ["core"]
    assert problems["core"].startswith("`tools.fs.ask` is ")


def test_a_tool_that_the_command_names_goes_before_one_of_the_agent(
    surroundings: Surroundings,
) -> None:
    module = surroundings.project / "hiding_tools.py"
    module.write_text("def read() -> str:\n    return 'mine'\n", encoding="utf-8")

    status, out, err = surroundings.nacre(
        "tools", "call", "openclaw:core:read", "-t", "hiding_tools:read"
    )

    assert (status, out) == (0, "mine\n")
    assert err == "nacre: --tools replaces the agent's openclaw:core:read\n"


def test_what_a_tool_tells_people_is_shown(surroundings: Surroundings) -> None:
    status, _, err = surroundings.nacre("tools", "call", "openclaw:core:message", "text=half done")

    assert (status, err) == (0, "half done\n")
