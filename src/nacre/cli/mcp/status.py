"""The report of `mcp status`, as a table or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.cli.output import ExitStatus, Printer, write_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.mcp_servers import ServerSurvey
    from nacre.json_types import JsonObject

# Whole: what to do about it stands at the end, such as an address to log in at.
_MAX_PROBLEM_CHARACTERS: Final = 4_000


def write_status(surveys: Sequence[ServerSurvey], *, is_json: bool) -> ExitStatus:
    """Print how each server does; the exit status says whether all work."""
    printer = Printer()
    if is_json:
        document: JsonObject = {"servers": [_status_json(survey) for survey in surveys]}
        printer.write_json(document, is_indented=printer.is_terminal)
    else:
        write_table(
            printer,
            ("server", "state", "tools", "version", "time", "problem"),
            [_status_row(survey) for survey in surveys],
            right=("tools", "time"),
            most_characters=_MAX_PROBLEM_CHARACTERS,
        )
    if printer.problem is not None:
        return printer.problem
    is_broken = any(survey.state == "broken" for survey in surveys)
    return ExitStatus.FAILED if is_broken else ExitStatus.COMPLETED


def _status_row(survey: ServerSurvey) -> tuple[str, ...]:
    is_asked = survey.state != "disabled"
    return (
        survey.name,
        survey.state,
        f"{len(survey.tools):,}" if survey.state == "ready" else "",
        survey.version,
        f"{survey.wall_ms:,.0f} ms" if is_asked else "",
        survey.problem,
    )


def _status_json(survey: ServerSurvey) -> JsonObject:
    return {
        "name": survey.name,
        "state": survey.state,
        "tools": len(survey.tools) if survey.state == "ready" else None,
        "version": survey.version,
        "wallMs": round(survey.wall_ms, 3),
        "problem": survey.problem,
    }
