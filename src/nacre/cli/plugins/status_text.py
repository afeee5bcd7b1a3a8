"""One plugin for people: who it is, and what it brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.cli.output import cell_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.output import Printer
    from nacre.plugins import PluginStatus
    from nacre.tools import Tool


def write_status(
    printer: Printer, status: PluginStatus, tools: Sequence[Tool], *, is_json: bool
) -> None:
    """Print it, as one JSON document or as lines."""
    if is_json:
        printer.write_json(status.to_json(), is_indented=printer.is_terminal)
        return
    version = f" {status.version}" if status.version else ""
    rows = [("from", status.origin), ("about", status.description), ("problem", status.problem)]
    rows += [("tool", f"{tool.id}: {tool.description}") for tool in tools]
    rows += [("hook", event) for event in status.hook_events]
    rows += [("namespace", name) for name in status.namespaces]
    printer.write(f"{status.id}{version}: {status.state}\n")
    for label, text in rows:
        if text:
            printer.write(f"{label:<10} {cell_text(text)}\n")
