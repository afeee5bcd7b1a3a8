"""Commands `nacre config`: read, change and check the configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, cast

import typer

from nacre.cli.options import ConfigOption, JsonOption, PathArgument
from nacre.cli.output import ExitStatus, Printer, UsageError, count_text, say, warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.cli.system_config import AgentSurface
    from nacre.json_types import JsonObject, JsonValue


def get_command(
    path: PathArgument, config: ConfigOption = None, is_json: JsonOption = False
) -> int:
    """Print one setting or a section of the configuration.

    Text is printed as it is, everything else as JSON. A setting that is not set has its default.
    Secrets are shown as ***, references such as ${NAME} as they are.
    """
    from nacre.cli.config_document import (
        defaults_at,
        parse_keys,
        read_document,
        unknown_path_error,
    )
    from nacre.config import MISSING, list_settings, path_from_keys, value_at
    from nacre.plugins import find_misplaced
    from nacre.telemetry.config_redaction import redact_secrets

    keys, document = parse_keys(path), read_document(config)
    misplaced = find_misplaced(document.members, document.file.path)
    value = value_at(redact_secrets(document.members, misplaced=misplaced), keys)
    if value is MISSING:
        settings = list_settings(os.environ)
        value = defaults_at(path_from_keys(keys), settings)
        if value is MISSING:
            raise unknown_path_error(path, document, settings)
        say(f"{path} is not set in {document.file.path}; this is its default")
    printer = Printer()
    if isinstance(value, str) and not is_json:
        printer.write(f"{value}\n")
    else:
        printer.write_json(cast("JsonValue", value), is_indented=not is_json or printer.is_terminal)
    return printer.problem or ExitStatus.COMPLETED


def set_command(
    path: PathArgument,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="JSON5 or text.", show_default=False)
    ],
    config: ConfigOption = None,
) -> int:
    """Write one setting.

    Comments and other settings in the file stay. Nothing is written if the result would be invalid.
    To append to a list, use its next index: agents.list[2].

    A value that is not JSON5 is text. Quote text that looks like a number, true, false or null:
    '"007"'.
    """
    from nacre.cli.config_document import change_file, config_file, parse_keys
    from nacre.config import with_setting
    from nacre.telemetry.config_redaction import is_plain_secret

    keys, file = parse_keys(path), config_file(config)
    is_new = not file.path.exists()
    if isinstance(keys[0], int):
        raise UsageError(f"{path} begins with a number; a configuration is an object")
    parsed = _parse_value(value)
    change_file(file.path, lambda text: with_setting(text, keys, parsed, path=str(file.path)))
    if is_plain_secret(str(keys[-1]), parsed):
        warn(
            f"the value of {path} is now in {file.path} in plain text; "
            "replace it with a reference such as ${NAME} to keep it out of the file"
        )
    say(f"set {path} in {file.path}{', a new file with code mode on' if is_new else ''}")
    return ExitStatus.COMPLETED


def _parse_value(value: str) -> JsonValue:
    from nacre.config import parse_json5
    from nacre.errors import ConfigError

    try:
        return cast("JsonValue", parse_json5(value, path="VALUE"))
    except ConfigError:
        return value


def unset_command(path: PathArgument, config: ConfigOption = None) -> int:
    """Remove one setting, so that its default applies.

    Comments and other settings in the file stay. Nothing is written if the result would be invalid.
    """
    from nacre.cli.config_document import change_file, parse_keys, read_document, unknown_path_error
    from nacre.config import MISSING, find_setting, value_at, without_member

    keys, document = parse_keys(path), read_document(config)
    file = document.file.path
    if value_at(document.members, keys) is MISSING:
        if find_setting(keys) is None:
            raise unknown_path_error(path, document, ())
        say(f"{path} is not set in {file}; there is nothing to remove")
        return ExitStatus.COMPLETED
    change_file(file, lambda text: without_member(text, keys, path=str(file)))
    say(f"removed {path} from {file}")
    return ExitStatus.COMPLETED


def validate_command(config: ConfigOption = None, is_json: JsonOption = False) -> int:
    """Check the configuration and print every problem.

    Exit status: 0 if it is valid, 1 if it is not.
    """
    from nacre.cli.config_document import check, config_file
    from nacre.config import DEFAULT_DOCUMENT, read_config_file
    from nacre.errors import ConfigError

    file, found = config_file(config), None
    try:
        found = check(read_config_file(file) or DEFAULT_DOCUMENT, file.path)
        problems = found.problems
    except ConfigError as unreadable:
        problems = (unreadable,)
    printer = Printer()
    if is_json:
        document: JsonObject = {
            "file": str(file.path),
            "valid": not problems,
            "problems": [{"path": each.path, "problem": each.problem} for each in problems],
            "warnings": list(found.warnings if found else ()),
            "surfaces": {**found.surfaces} if found and not problems else {},
        }
        printer.write_json(document, is_indented=printer.is_terminal)
    else:
        for problem in problems:
            printer.write(f"{problem}\n")
        if found:
            for warning in found.warnings:
                warn(warning)
        if found and not problems:
            _say_surfaces(found.surfaces, config or "")
        how_many = count_text(len(problems), "problem") if problems else "valid"
        say(f"{file.path}: {how_many if file.path.exists() else 'does not exist; defaults apply'}")
    return printer.problem or (ExitStatus.FAILED if problems else ExitStatus.COMPLETED)


def _say_surfaces(surfaces: Mapping[str, AgentSurface], config_file: str) -> None:
    """Say how the agents offer their tools to the model."""
    from nacre.cli.system_config import describe_surface

    for kind in sorted(set(surfaces.values())):
        agents = [agent for agent, its_kind in surfaces.items() if its_kind == kind]
        whose = "" if len(agents) == len(surfaces) else f" of {', '.join(agents)}"
        say(f"surface{whose}: {describe_surface(kind, config_file)}")


def show_command(config: ConfigOption = None, is_json: JsonOption = False) -> int:
    """Print the configuration as JSON, and the path of its file.

    Secrets are shown as ***, references such as ${NAME} as they are. With --json, the document also
    names the file.
    """
    from nacre.cli.config_document import origin_text, read_document
    from nacre.plugins import find_misplaced
    from nacre.telemetry.config_redaction import redact_secrets

    document = read_document(config)
    misplaced = find_misplaced(document.members, document.file.path)
    shown = redact_secrets(document.members, misplaced=misplaced)
    printer = Printer()
    if is_json:
        whole: JsonObject = {
            "file": str(document.file.path),
            "origin": document.file.origin,
            "exists": document.file.path.exists(),
            "config": shown,
        }
        printer.write_json(whole, is_indented=printer.is_terminal)
    else:
        say(origin_text(document.file))
        printer.write_json(shown, is_indented=True)
    return printer.problem or ExitStatus.COMPLETED


def schema_command() -> int:
    """Print the JSON Schema of the configuration, for editors.

    Save it to a file and name the file in the key $schema of the configuration.
    """
    from nacre.config import config_schema

    printer = Printer()
    printer.write_json(config_schema(), is_indented=True)
    return printer.problem or ExitStatus.COMPLETED


def path_command(config: ConfigOption = None) -> int:
    """Print the path of the configuration file."""
    from nacre.cli.config_document import config_file, origin_text

    file = config_file(config)
    printer = Printer()
    printer.write(f"{file.path}\n")
    say(origin_text(file))
    return printer.problem or ExitStatus.COMPLETED


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Read, change and check the configuration.")
    group.command("get")(get_command)
    group.command("set")(set_command)
    group.command("unset")(unset_command)
    group.command("validate")(validate_command)
    group.command("show")(show_command)
    group.command("schema")(schema_command)
    group.command("path")(path_command)
    app.add_typer(group, name="config")
