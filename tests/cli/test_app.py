"""The help of `nacre`, and the registered commands."""

import pytest

from nacre.cli.app import COMMANDS, Command
from nacre.cli.main import main
from tests.cli.surroundings import Surroundings

GROUPS = (
    "mcp",
    "config",
    "tools",
    "plugins",
    "sessions",
    "approvals",
    "trajectory",
    "diagnostics",
    "codex",
)


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


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("nacre sess", ["sessions"]),
        ("/opt/bin/nacre sessions d", ["delete"]),
        ("nacre sessions prune --dry", ["--dry-run"]),
    ],
)
def test_a_shell_completes_commands_and_options(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    expected: list[str],
) -> None:
    monkeypatch.setenv("_NACRE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(surroundings: Surroundings, shell: str) -> None:
    status, out, _ = surroundings.nacre("completion", shell)
    assert (status, f"_NACRE_COMPLETE=complete_{shell}" in out) == (0, True)


def test_an_unknown_shell_is_bad_usage(surroundings: Surroundings) -> None:
    status, _, err = surroundings.nacre("completion", "tcsh")
    assert (status, err) == (2, "nacre: SHELL is 'tcsh'; allowed: bash, zsh, fish\n")
