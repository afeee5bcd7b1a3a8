"""The report of `mcp savings`, as a table or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.cli.output import ExitStatus, Printer, warn, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nacre.cli.mcp.savings import Savings


def write_savings(savings: Savings, *, is_json: bool) -> ExitStatus:
    """Print both sums, and on standard error what is not in them."""
    printer = Printer()
    if is_json:
        printer.write_json(savings.to_json(), is_indented=printer.is_terminal)
    else:
        headings = ("a client with", "tools", "bytes", "fewer")
        write_table(printer, headings, [*_savings_rows(savings)], right=headings[1:])
    for server in savings.servers:
        if server.problem:
            warn(f"the tools of {server.name} are not counted: {server.problem}")
    if printer.problem is not None:
        return printer.problem
    return ExitStatus.COMPLETED if savings.is_complete else ExitStatus.FAILED


def _savings_rows(savings: Savings) -> Iterator[tuple[str, str, str, str]]:
    for server in savings.servers:
        if not server.problem:
            yield server.name, f"{server.tool_count:,}", f"{server.definition_bytes:,}", ""
    yield "all of them", f"{savings.tool_count:,}", f"{savings.definition_bytes:,}", ""
    percent = f"{savings.saved_percent:.1f} %" if savings.definition_bytes else ""
    yield "nacre mcp", f"{len(savings.shown_names):,}", f"{savings.shown_bytes:,}", percent
