"""Commands `nacre plugins`: list, inspect and validate plugins."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, UsageError, shorten, warn
from nacre.cli.runner import run_async
from nacre.code_mode.namespaces import NamespaceRegistry
from nacre.hooks import Hooks
from nacre.plugins import PluginHost

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Sequence

    from nacre.config import PluginsConfig
    from nacre.json_types import JsonObject
    from nacre.plugins import PluginStatus
    from nacre.tools import Tool


def write_status(
    printer: Printer, status: PluginStatus, tools: Sequence[Tool], *, is_json: bool
) -> None:
    """Print the status as one JSON document or as lines."""
    if is_json:
        printer.write_json(status.to_json(), is_indented=printer.is_terminal)
        return
    version = f" {status.version}" if status.version else ""
    rows = [("from", status.origin), ("about", status.description), ("problem", status.problem)]
    rows += [("tool", f"{tool.id}: {tool.description}") for tool in tools]
    rows += [("hook", event) for event in status.hook_events]
    rows += [("namespace", name) for name in status.namespaces]
    rows += [("context", name) for name in status.context_engines]
    printer.write(f"{status.id}{version}: {status.state}\n")
    for label, text in rows:
        if text:
            printer.write(f"{label:<10} {shorten(text)}\n")


def inspect_command(
    plugin_id: Annotated[str, typer.Argument(metavar="ID", help="The plugin's id.")],
    config: ConfigOption = None,
    is_json: JsonOption = False,
) -> int:
    """Show what a plugin provides, or why it is not loaded."""
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)
    names = [server.name for server in system.mcp_servers]
    found, tools = load_for_inspection(system.plugins, reserved_ids=names)
    status = _find_plugin(plugin_id, found)
    printer = Printer()
    write_status(printer, status, [it for it in tools if it.owner == status.id], is_json=is_json)
    failed = status.state == "failed"
    return printer.problem or (ExitStatus.FAILED if failed else ExitStatus.COMPLETED)


def _find_plugin(plugin_id: str, found: list[PluginStatus]) -> PluginStatus:
    for status in found:
        if status.id == plugin_id:
            return status
    known = ", ".join(status.id for status in found) or "none"
    raise UsageError(f"there is no plugin {plugin_id!r}; known plugins: {known}")


def list_command(config: ConfigOption = None, is_json: JsonOption = False) -> int:
    """List the plugins and their state."""
    from nacre.cli.output import write_table
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)
    names = [server.name for server in system.mcp_servers]
    found, _ = load_for_inspection(system.plugins, reserved_ids=names, shows_tracebacks=False)
    printer = Printer()
    if is_json:
        printer.write_json(
            {"plugins": [status.to_json() for status in found]}, is_indented=printer.is_terminal
        )
    else:
        rows = [
            (it.id, it.version, it.state, str(len(it.tool_names)), it.origin, it.problem)
            for it in found
        ]
        headings = ("plugin", "version", "state", "tools", "from", "problem")
        write_table(printer, headings, rows, right=("tools",))
    if not found:
        warn("there are no plugins; name their folders in `plugins.paths`, see docs/plugins.md")
    has_failed = any(status.state == "failed" for status in found)
    return printer.problem or (ExitStatus.FAILED if has_failed else ExitStatus.COMPLETED)


def validate_command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder of its manifest.")],
    settings: Annotated[
        str,
        typer.Option("--settings", metavar="JSON5", help="The plugin's settings."),
    ] = "{}",
    is_json: JsonOption = False,
) -> int:
    """Load a plugin from a folder, and show what it provides."""
    from pathlib import Path

    from nacre.config import PluginEntry, PluginsConfig
    from nacre.errors import NacreError
    from nacre.plugins import read_manifest

    path = Path(folder).absolute()
    try:
        manifest = read_manifest(path)
        entry = PluginEntry(config=_settings_from(settings))
    except NacreError as error:
        raise UsageError(str(error)) from None
    config = PluginsConfig(paths=(path,), uses_entry_points=False, entries={manifest.id: entry})
    (status,), tools = load_for_inspection(config)
    printer = Printer()
    write_status(printer, status, tools, is_json=is_json)
    failed = status.state != "loaded"
    return printer.problem or (ExitStatus.FAILED if failed else ExitStatus.COMPLETED)


def _settings_from(text: str) -> JsonObject:
    """Raises ConfigError."""
    from nacre.config import object_at, parse_json5

    members = object_at(parse_json5(text, path="--settings"), "--settings")
    return cast("JsonObject", dict(members))


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="List, inspect and validate plugins.", no_args_is_help=True)
    group.command("list")(list_command)
    group.command("inspect")(inspect_command)
    group.command("validate")(validate_command)
    app.add_typer(group, name="plugins")


_LOG: Final = logging.getLogger("nacre.plugins.host")


def load_for_inspection(
    config: PluginsConfig, *, reserved_ids: Collection[str] = (), shows_tracebacks: bool = True
) -> tuple[list[PluginStatus], tuple[Tool, ...]]:
    """Load all plugins, unload them, and return their statuses and tools.

    Statuses hold the problems. Tracebacks go to the log if `shows_tracebacks`.
    """

    async def load() -> tuple[list[PluginStatus], tuple[Tool, ...]]:
        async with PluginHost(
            hooks=Hooks(), namespaces=NamespaceRegistry(), reserved_ids=reserved_ids
        ) as host:
            await host.apply(config)
            return host.status(), host.tools

    with _filter_log(shows_tracebacks):
        return run_async(load)


@contextmanager
def _filter_log(shows_tracebacks: bool) -> Generator[None]:
    """Keep records without a traceback out of the log: the statuses say the same."""

    def is_wanted(record: logging.LogRecord) -> bool:
        return shows_tracebacks and record.exc_info is not None

    _LOG.addFilter(is_wanted)
    try:
        yield
    finally:
        _LOG.removeFilter(is_wanted)
