"""Commands `nacre approvals`: list, show and answer the approvals that a gateway waits for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final, cast
from urllib.parse import quote

import typer

from nacre.cli.call_view import input_lines, input_text
from nacre.cli.gateway_client import GatewayError, UrlOption, request_gateway
from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import (
    ExitStatus,
    Printer,
    UsageError,
    say,
    shorten,
    time_text,
    warn,
    write_table,
)

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

_SHOW_HINT: Final = "inputs are cut, and without secrets; `nacre approvals show ID` shows one whole"
_ANSWERS: Final = ("allow-once", "allow-always", "deny", "edit")


def list_command(
    url: UrlOption = None, config: ConfigOption = None, is_json: JsonOption = False
) -> int:
    """List the calls that wait for an approval, the oldest first.

    Exit status: 0, or 1 if the gateway cannot be reached.
    """
    try:
        found = request_gateway(config, url, "/api/approvals")
    except GatewayError as error:
        warn(str(error))
        return ExitStatus.FAILED
    printer = Printer()
    pending = cast("list[dict[str, Any]]", found["pending"])
    if is_json:
        printer.write_json(found, is_indented=printer.is_terminal)
        return printer.problem or ExitStatus.COMPLETED
    rows = [
        (
            it["approvalId"],
            it["toolId"],
            input_text(it["input"]),
            shorten(it["reason"]),
            it["sessionId"],
            time_text(it["expiresAt"]),
        )
        for it in pending
    ]
    write_table(printer, ("approval", "tool", "input", "reason", "session", "expires"), rows)
    say(_SHOW_HINT if pending else "no call waits for an approval")
    return printer.problem or ExitStatus.COMPLETED


def show_command(
    approval: Annotated[
        str, typer.Argument(metavar="ID", help="The approval.", show_default=False)
    ],
    url: UrlOption = None,
    config: ConfigOption = None,
    is_json: JsonOption = False,
) -> int:
    """Show the whole input of a waiting call, with its secrets.

    Exit status: 0, or 1 if the approval is not open or the gateway cannot be reached.
    """
    path = f"/api/approvals/{quote(approval, safe='')}/input"
    try:
        given = cast("JsonObject", request_gateway(config, url, path)["input"])
    except GatewayError as error:
        warn(str(error))
        return ExitStatus.FAILED
    printer = Printer()
    if is_json:
        printer.write_json(given, is_indented=printer.is_terminal)
    else:
        printer.write("".join(f"{line}\n" for line in input_lines(given)))
    return printer.problem or ExitStatus.COMPLETED


def answer_command(
    approval: Annotated[
        str, typer.Argument(metavar="ID", help="The approval.", show_default=False)
    ],
    answer: Annotated[
        str,
        typer.Argument(metavar="ANSWER", help=", ".join(_ANSWERS), show_default=False),
    ],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="With deny: why, for the program.")
    ] = "",
    edited: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON", help="With edit: the whole input of the call."),
    ] = None,
    url: UrlOption = None,
    config: ConfigOption = None,
) -> int:
    """Answer an approval. Only the first answer counts.

    Exit status: 0, or 1 if the approval is not open or the gateway cannot be reached.
    """
    if answer not in _ANSWERS:
        raise UsageError(f"ANSWER is {answer!r}; allowed: {', '.join(_ANSWERS)}")
    if (edited is not None) != (answer == "edit"):
        raise UsageError("--input belongs to the answer edit, and edit needs it")
    body: JsonObject = {"answer": answer}
    if reason:
        body["reason"] = reason
    if edited is not None:
        body["input"] = _parse_input(edited)
    try:
        request_gateway(config, url, f"/api/approvals/{quote(approval, safe='')}", body)
    except GatewayError as error:
        warn(str(error))
        return ExitStatus.FAILED
    say(f"answered {approval}: {answer}")
    return ExitStatus.COMPLETED


def _parse_input(text: str) -> JsonObject:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--input is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError("--input is not a JSON object")
    return cast("JsonObject", value)


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="List, show and answer the approvals of a gateway.", no_args_is_help=True
    )
    group.command("list")(list_command)
    group.command("show")(show_command)
    group.command("answer")(answer_command)
    app.add_typer(group, name="approvals")
