"""Names under which tools are shown to a model by themselves."""

import re

from nacre.agent.tool_surface import assign_tool_names
from tests.agent.tools import echo_tool


def test_every_tool_has_a_name_of_its_own_that_providers_take() -> None:
    names = ["echo", "echo", "echo", "read.file", "größe", "x" * 200, "x" * 201]
    owners = ["core", "a", "a", "b", "c", "d", "d"]
    tools = [echo_tool(name, owner=owner) for name, owner in zip(names, owners, strict=True)]
    shown = assign_tool_names(tools)
    assert list(shown.values()) == tools
    assert list(shown)[:5] == ["echo", "a__echo", "a__echo_2", "b__read_file", "c__gr_e"]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in shown)


def test_a_name_that_another_tool_would_be_given_is_not_taken_twice() -> None:
    tools = [echo_tool("a__echo"), echo_tool("echo"), echo_tool("echo", owner="a")]
    assert list(assign_tool_names(tools)) == ["a__echo", "echo", "a__echo_2"]
