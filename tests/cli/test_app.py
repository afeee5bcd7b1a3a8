"""The help of `nacre`, and the registered commands."""

import pytest

from nacre.cli.app import COMMANDS, Command
from tests.cli.surroundings import Surroundings

GROUPS = ("mcp", "config", "tools", "plugins", "sessions", "approvals", "trajectory")


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_no_summary_of_a_command_is_cut(surroundings: Surroundings, group: str) -> None:
    _, out, _ = surroundings.nacre(*filter(None, [group]), "--help")
    summaries = out.partition("Commands:\n")[2].splitlines()
    assert summaries
    assert [line for line in summaries if line.endswith(("...", "…"))] == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda it: it.name)
def test_the_line_about_a_command_begins_its_own_help(
    surroundings: Surroundings, command: Command
) -> None:
    _, out, _ = surroundings.nacre(command.name, "--help")
    assert out.split("\n\n")[1].strip() == command.help


def test_version_and_help_are_commands_too(surroundings: Surroundings) -> None:
    assert surroundings.nacre("version") == surroundings.nacre("--version")
    assert surroundings.nacre("help") == surroundings.nacre("--help")
    assert surroundings.nacre("help", "mcp", "add") == surroundings.nacre("mcp", "add", "--help")
    assert surroundings.nacre("help", "nothing")[0] == 2
