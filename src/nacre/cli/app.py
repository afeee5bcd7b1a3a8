"""The `nacre` application: its commands, each imported when it is used."""

import os
from importlib import import_module
from typing import Annotated, Final, NamedTuple

import typer
from typer.main import get_command

import nacre
from nacre.cli.output import ExitStatus, Printer, UsageError, warn

_HELP_OPTIONS: Final = ("-h", "--help")
_SHELLS: Final = ("bash", "zsh", "fish")
# The name that typer expects.
_COMPLETION_VARIABLE: Final = "_NACRE_COMPLETE"
# Imported by name: typer uses it for options of its own, `--install-completion` and another one.
_TYPER_COMPLETION: Final = "typer.completion"


class Command(NamedTuple):
    """A command or group of commands, and the module that registers it."""

    name: str
    module: str
    help: str
    """Its line in `nacre --help`, which imports no command. The command's own help repeats it."""


COMMANDS: Final = (
    Command("exec", "exec", "Run a program in the sandbox."),
    Command("run", "agent", "Send a message to an agent and show the run."),
    Command("chat", "agent", "Chat with an agent."),
    Command("doctor", "doctor", "Check the sandbox, the configuration and the servers."),
    Command("gateway", "gateway", "Serve the agents over HTTP."),
    Command("gateways", "gateways", "List the gateways on one database server."),
    Command("link", "gateway", "Print a link that opens the web app of a running gateway."),
    Command("mcp", "mcp", "Serve your MCP servers in code mode, and manage them."),
    Command("config", "config", "Read, change and check the configuration."),
    Command("tools", "tools", "Find, describe and call the configured tools."),
    Command("plugins", "plugins", "List, inspect and validate plugins."),
    Command("sessions", "sessions", "List, show and delete stored sessions."),
    Command("heartbeat", "heartbeat", "Wake an agent without a message, and list heartbeats."),
    Command("approvals", "approvals", "List, show and answer the approvals of a gateway."),
    Command("trajectory", "trajectory", "Show and export the events of runs."),
    Command("replay", "replay", "Run the programs of a recorded run again."),
    Command("diagnostics", "diagnostics", "Collect what others need to find a problem."),
    Command("codex", "codex", "Check Codex, log in to it, and list its threads."),
    Command("completion", "", "Print a script that completes commands in your shell."),
    # `replace_aliases` handles these two.
    Command("version", "", "Print the version."),
    Command("help", "", "Show the help of a command: `nacre help mcp add`."),
)


def run_command(arguments: list[str]) -> int:
    """Run the command that the arguments name; show the help if they name none."""
    arguments = replace_aliases(arguments)
    command = get_command(_create_app(_words_to_complete() or arguments))
    try:
        status: object = command.main(
            add_mcp_default(arguments), prog_name="nacre", standalone_mode=False
        )
    except UsageError as problem:
        return _report_bad_usage(str(problem))
    except typer.TyperException as problem:
        message = problem.format_message().rstrip(".")
        return _report_bad_usage(f"{message}; see `{_help_command(problem)}`")
    if status in (ExitStatus.INTERRUPTED, ExitStatus.TERMINATED):
        warn("aborted")
    return status if isinstance(status, int) else ExitStatus.COMPLETED


def _create_app(arguments: list[str]) -> typer.Typer:
    app = typer.Typer(
        add_completion=False,
        context_settings={"help_option_names": list(_HELP_OPTIONS)},
        pretty_exceptions_enable=False,
        # With markup, help and errors would need rich, which takes as long to import as typer.
        rich_markup_mode=None,
    )
    app.callback()(_global_options)
    named = next((word for word in arguments if not word.startswith("-")), "")
    module = next((it.module for it in COMMANDS if it.name == named), "")
    for command in COMMANDS:
        if not module or command.module != module:
            function = print_completion if command.name == "completion" else _do_nothing
            app.command(command.name, help=command.help)(function)
    if module:
        register_group(app, module)
    return app


def register_group(app: typer.Typer, module: str) -> None:
    """Import the module and add its commands to the app."""
    import_module(f"nacre.cli.{module}").register(app)


def _do_nothing() -> None:
    """Stands in for a command that the arguments do not name."""


def _words_to_complete() -> list[str]:
    """The words that a shell has typed so far; empty unless it wants a completion."""
    if _COMPLETION_VARIABLE not in os.environ:
        return []
    import_module(_TYPER_COMPLETION).completion_init()
    words = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return words.split()[1:]


def print_completion(
    shell: Annotated[
        str, typer.Argument(metavar="SHELL", help=", ".join(_SHELLS), show_default=False)
    ],
) -> int:
    if shell not in _SHELLS:
        raise UsageError(f"SHELL is {shell!r}; allowed: {', '.join(_SHELLS)}")
    printer = Printer()
    script = import_module(_TYPER_COMPLETION).get_completion_script(
        prog_name="nacre", complete_var=_COMPLETION_VARIABLE, shell=shell
    )
    printer.write(f"{script}\n")
    return printer.problem or ExitStatus.COMPLETED


def _print_version(is_given: bool) -> None:
    if is_given:
        Printer().write(f"nacre {nacre.__version__}\n")
        raise typer.Exit


def _global_options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, help="Print the version and exit.", is_eager=True
        ),
    ] = False,
) -> None:
    """Agents that write programs: code mode, MCP servers, and a gateway."""


def replace_aliases(arguments: list[str]) -> list[str]:
    """Replace `version` and `help [COMMAND...]` by the options that do the same."""
    match arguments:
        case [] | ["help"]:
            return ["--help"]
        case ["version"]:
            return ["--version"]
        case ["help", *command] if not set(command) & set(_HELP_OPTIONS):
            return [*command, "--help"]
        case _:
            return arguments


def add_mcp_default(arguments: list[str]) -> list[str]:
    """Insert `serve` if `mcp` is followed by nothing or by an option of `serve`."""
    match arguments:
        case ["mcp"]:
            return ["mcp", "serve"]
        case ["mcp", first, *_] if first.startswith("-") and first not in _HELP_OPTIONS:
            return ["mcp", "serve", *arguments[1:]]
        case _:
            return arguments


def _help_command(problem: typer.TyperException) -> str:
    context = getattr(problem, "ctx", None)
    return f"{context.command_path if context else 'nacre'} --help"


def _report_bad_usage(problem: str) -> ExitStatus:
    warn(problem)
    return ExitStatus.BAD_USAGE
