"""`nacre tools` with what an agent has besides MCP servers: core tools and plugins."""

import json
from pathlib import Path
from typing import Any

from tests.cli.mcp.setup import Surroundings, small_server
from tests.plugins.plugin_folders import plugin_folder

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
