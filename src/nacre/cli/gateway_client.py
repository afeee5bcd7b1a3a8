"""Requests of commands to a running gateway: its address, its token, its errors."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import typer

from nacre.cli.output import UsageError
from nacre.config import TOKEN_VARIABLE, is_loopback

if TYPE_CHECKING:
    from nacre.config import SystemConfig
    from nacre.json_types import JsonObject

_TIMEOUT_SECONDS: Final = 30
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


class GatewayError(Exception):
    """The gateway cannot be reached, or refuses the request."""


def request_gateway(
    config: str | None, url: str | None, path: str, body: JsonObject | None = None
) -> JsonObject:
    """Send a request to the gateway: POST with a body, GET without. Raises GatewayError and
    UsageError."""
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)
    base = (url or gateway_url(system)).rstrip("/")
    headers = {"Content-Type": "application/json"}
    if token := find_gateway_token(system, base):
        headers["Authorization"] = f"Bearer {token}"
    try:
        request = Request(f"{base}{path}", headers=headers)
    except ValueError as error:
        raise UsageError(f"--url is {base!r}: {error}") from None
    if body is not None:
        request.data = json.dumps(body).encode()
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            return json.load(response)
    except HTTPError as error:
        raise GatewayError(_error_text(error)) from None
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise GatewayError(
            f"cannot reach the gateway at {base}: {reason}; start it with `nacre gateway`, or name "
            "it with --url"
        ) from None


def _error_text(error: HTTPError) -> str:
    try:
        return f"the gateway refused: {json.load(error)['error']['message']}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"the gateway refused with status {error.code}"


def gateway_url(system: SystemConfig) -> str:
    """The address of the configured gateway, for clients on this machine."""
    host = _ANY_ADDRESS.get(system.gateway.host, system.gateway.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{system.gateway.port}"


def find_gateway_token(system: SystemConfig, url: str) -> str:
    """The token for the gateway at this URL; empty if it needs none, or none is known."""
    if given := os.environ.get(TOKEN_VARIABLE, "").strip():
        return given
    gateway = system.gateway
    # The configured token must not go to another machine.
    is_ours = url == gateway_url(system) or is_loopback(urlsplit(url).hostname or "")
    if gateway.auth_mode == "none" or not is_ours:
        return ""
    if gateway.token:
        return gateway.token
    from nacre.gateway.server import token_file
    from nacre.private_files import read_private

    # Without a configured token, the gateway generates one and stores it.
    return (read_private(token_file(os.environ)) or b"").decode("ascii", "replace").strip()
