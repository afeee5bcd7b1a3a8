"""Commands `nacre approvals`: list and answer the approvals that a gateway waits for."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any, Final, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import typer

from nacre.cli.call_view import input_text
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
from nacre.config import TOKEN_VARIABLE, is_loopback

if TYPE_CHECKING:
    from nacre.config import SystemConfig
    from nacre.json_types import JsonObject

_TIMEOUT_SECONDS: Final = 30
_ANSWERS: Final = ("allow-once", "allow-always", "deny", "edit")
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The gateway. [default: gateway.host and gateway.port]",
        show_default=False,
    ),
]


class _GatewayError(Exception):
    """The gateway cannot be reached, or refuses the request."""


def list_command(
    url: UrlOption = None, config: ConfigOption = None, is_json: JsonOption = False
) -> int:
    """List the calls that wait for an approval, the oldest first.

    Exit status: 0, or 1 if the gateway cannot be reached.
    """
    try:
        found = _request(config, url, "")
    except _GatewayError as error:
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
    if not pending:
        say("no call waits for an approval")
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
        _request(config, url, f"/{quote(approval, safe='')}", body)
    except _GatewayError as error:
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


def _request(
    config: str | None, url: str | None, path: str, body: JsonObject | None = None
) -> JsonObject:
    """Send a request to the gateway. Raises _GatewayError and UsageError."""
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)
    base = (url or _gateway_url(system)).rstrip("/")
    headers = {"Content-Type": "application/json"}
    if token := _find_token(system, base):
        headers["Authorization"] = f"Bearer {token}"
    try:
        request = Request(f"{base}/api/approvals{path}", headers=headers)
    except ValueError as error:
        raise UsageError(f"--url is {base!r}: {error}") from None
    if body is not None:
        request.data = json.dumps(body).encode()
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            return json.load(response)
    except HTTPError as error:
        raise _GatewayError(_error_text(error)) from None
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise _GatewayError(
            f"cannot reach the gateway at {base}: {reason}; start it with `nacre gateway`, or name "
            "it with --url"
        ) from None


def _error_text(error: HTTPError) -> str:
    try:
        return f"the gateway refused: {json.load(error)['error']['message']}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"the gateway refused with status {error.code}"


def _gateway_url(system: SystemConfig) -> str:
    host = _ANY_ADDRESS.get(system.gateway.host, system.gateway.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{system.gateway.port}"


def _find_token(system: SystemConfig, url: str) -> str:
    """The token for the gateway at this URL; empty if it needs none, or none is known."""
    if given := os.environ.get(TOKEN_VARIABLE, "").strip():
        return given
    gateway = system.gateway
    # The configured token must not go to another machine.
    is_ours = url == _gateway_url(system) or is_loopback(urlsplit(url).hostname or "")
    if gateway.auth_mode == "none" or not is_ours:
        return ""
    if gateway.token:
        return gateway.token
    from nacre.gateway.server import token_file
    from nacre.private_files import read_private

    # Without a configured token, the gateway generates one and stores it.
    return (read_private(token_file(os.environ)) or b"").decode("ascii", "replace").strip()


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="List and answer the approvals of a gateway.", no_args_is_help=True)
    group.command("list")(list_command)
    group.command("answer")(answer_command)
    app.add_typer(group, name="approvals")
