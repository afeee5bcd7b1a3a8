"""`config validate`: all that is wrong with the configuration."""

from typing import TYPE_CHECKING

from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, say, warn

if TYPE_CHECKING:
    from nacre.json_types import JsonObject


def validate_command(config: ConfigOption = None, is_json: JsonOption = False) -> int:
    """Check the configuration and print every problem.

    Exit status: 0 if it is sound, 1 if it is not.
    """
    from nacre.cli.config.checks import check
    from nacre.cli.config.document import config_file
    from nacre.cli.output import count_text
    from nacre.config.config_file import read_config_file
    from nacre.errors import ConfigError

    file, warnings = config_file(config), ()
    try:
        found = check(read_config_file(file), file.path)
        problems, warnings = found.problems, found.warnings
    except ConfigError as unreadable:
        problems = (unreadable,)
    printer = Printer()
    if is_json:
        document: JsonObject = {
            "file": str(file.path),
            "valid": not problems,
            "problems": [{"path": each.path, "problem": each.problem} for each in problems],
            "warnings": list(warnings),
        }
        printer.write_json(document, is_indented=printer.is_terminal)
    else:
        for problem in problems:
            printer.write(f"{problem}\n")
        for warning in warnings:
            warn(warning)
        how_many = count_text(len(problems), "problem") if problems else "sound"
        say(f"{file.path}: {how_many if file.path.exists() else 'not there; defaults hold'}")
    return printer.problem or (ExitStatus.FAILED if problems else ExitStatus.COMPLETED)
