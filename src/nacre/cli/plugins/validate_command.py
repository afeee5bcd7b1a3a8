"""`plugins validate`: loads one folder by itself, without the configuration."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from nacre.cli.options import JsonOption
from nacre.cli.output import ExitStatus, Printer, UsageProblem
from nacre.cli.plugins.status_text import write_status

if TYPE_CHECKING:
    from nacre.json_types import JsonObject


def validate_command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where its manifest is.")],
    settings: Annotated[
        str,
        typer.Option("--settings", metavar="JSON", help="Its settings, as JSON5."),
    ] = "{}",
    is_json: JsonOption = False,
) -> int:
    """Check a plugin: load it, and say what it brings."""
    from pathlib import Path

    from nacre.cli.plugins.loading import load_for_inspection
    from nacre.config.plugins import PluginEntry, PluginsConfig
    from nacre.errors import NacreError
    from nacre.plugins import read_manifest

    place = Path(folder).absolute()
    try:
        manifest = read_manifest(place)
        entry = PluginEntry(config=_settings_from(settings))
    except NacreError as error:
        raise UsageProblem(str(error)) from None
    config = PluginsConfig(paths=(place,), uses_entry_points=False, entries={manifest.id: entry})
    (status,), tools = load_for_inspection(config)
    printer = Printer()
    write_status(printer, status, tools, is_json=is_json)
    failed = status.state != "loaded"
    return printer.problem or (ExitStatus.FAILED if failed else ExitStatus.COMPLETED)


def _settings_from(text: str) -> "JsonObject":
    """Raises ConfigError."""
    from nacre.config.fields import object_without_showing
    from nacre.config.json5_text import parse_json5

    members = object_without_showing(parse_json5(text, path="--settings"), "--settings")
    return cast("JsonObject", dict(members))
