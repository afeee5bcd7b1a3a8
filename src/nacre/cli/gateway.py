"""Commands `nacre gateway`, which serves the agents over HTTP, and `nacre link`."""

from __future__ import annotations

import json
import logging
import os
import shlex
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nacre.cli.gateway_client import GatewayError, UrlOption, request_gateway
from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, UsageError, warn
from nacre.cli.system_config import describe_surface, find_surface, read_agent_config
from nacre.config import DEFAULT_DOCUMENT, DEFAULT_MODEL, TOKEN_VARIABLE
from nacre.errors import ConfigError, NacreError
from nacre.gateway import ACCESS_LOG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.config import ConfigFile
    from nacre.gateway.server import Served
    from nacre.json_types import JsonObject


# The packages of the extra `gateway`, by import name.
_PACKAGES: Final = ("fastapi", "prometheus_client", "sqlalchemy", "uvicorn")


def gateway_command(
    config: Annotated[
        str | None, typer.Option("--config", help="The configuration file.", metavar="FILE")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", help="The address to listen on, instead of the configured one."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", help="The port; 0 picks a free one.", min=0, max=65535),
    ] = None,
    is_json: Annotated[
        bool,
        typer.Option("--json", help="Print the URL and other facts as one JSON line when ready."),
    ] = False,
    is_logging_requests: Annotated[
        bool, typer.Option("--access-log", help="Log every request.")
    ] = False,
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = "info",
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="FORMAT", help="text, or json for JSON lines.")
    ] = "text",
) -> int:
    """Serve the agents over HTTP.

    Offers a web app, a JSON API under /api and the OpenAI API under /v1. The first line is a link
    to the web app that signs in once; `nacre link` prints another one. Without a configuration, a
    demo model answers, and code mode is enabled. Ctrl-C, SIGTERM or SIGHUP stops the gateway after
    the running turns have ended; a second Ctrl-C or SIGTERM stops it at once.
    """
    _set_up_logging(log_level, log_format, is_logging_requests=is_logging_requests)
    file, system_config = read_agent_config(config)
    _require_packages()
    from nacre.gateway.server import GatewayOptions, serve_gateway

    options = GatewayOptions(
        config=system_config, file=file, environment=os.environ, host=host, port=port
    )
    try:
        options.apply_to(system_config)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    try:
        serve_gateway(options, lambda served: _announce(served, file, is_json=is_json))
    except NacreError as error:
        warn(str(error))
        return ExitStatus.FAILED
    return ExitStatus.COMPLETED


def _set_up_logging(level: str, log_format: str, *, is_logging_requests: bool) -> None:
    """Log to standard error. Raises UsageError."""
    for option, value, allowed in (
        ("--log-level", level, _LOG_LEVELS),
        ("--log-format", log_format, _LOG_FORMATS),
    ):
        if value not in allowed:
            raise UsageError(f"{option} is {value!r}; allowed: {', '.join(allowed)}")
    handler = logging.StreamHandler()
    handler.setFormatter(_LOG_FORMATS[log_format])
    logging.basicConfig(handlers=[handler], level=max(_LOG_LEVELS[level], logging.WARNING))
    logging.getLogger("nacre").setLevel(_LOG_LEVELS[level])
    logging.getLogger(ACCESS_LOG).setLevel(logging.INFO if is_logging_requests else logging.WARNING)
    # It warns whenever a client closes a stream.
    logging.getLogger("asyncio").setLevel(logging.ERROR)


class _JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


_LOG_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_LOG_FORMATS: Final[Mapping[str, logging.Formatter]] = {
    "text": logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"),
    "json": _JsonFormatter(),
}


def _require_packages() -> None:
    """Raise UsageError if packages are missing, before anything starts."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the gateway needs packages that are not installed: {', '.join(missing)}; "
            "run: pip install 'nacre-ai[gateway]'"
        )


def _announce(served: Served, file: ConfigFile, *, is_json: bool) -> None:
    printer = Printer()
    if is_json:
        printer.write_json(welcome_json(served), is_indented=False)
    else:
        # A file can have the same content.
        is_default = served.config.document is DEFAULT_DOCUMENT
        printer.write(welcome_text(served, "" if is_default else str(file.path)))


def link_command(
    url: UrlOption = None, config: ConfigOption = None, is_json: JsonOption = False
) -> int:
    """Print a link that opens the web app of a running gateway.

    The link signs in a browser once, within ten minutes.

    Exit status: 0, or 1 if the gateway cannot be reached.
    """
    try:
        found = request_gateway(config, url, "/api/web/codes", {})
    except GatewayError as error:
        warn(str(error))
        return ExitStatus.FAILED
    printer = Printer()
    if is_json:
        printer.write_json(found, is_indented=printer.is_terminal)
    else:
        printer.write(f"{found['url']}\n")
    return printer.problem or ExitStatus.COMPLETED


def register(app: typer.Typer) -> None:
    app.command("gateway")(gateway_command)
    app.command("link")(link_command)


_ANY_ADDRESS: Final = ("0.0.0.0", "::")
_FIRST_TEXT: Final = "What is 6 * 7?"
_SECOND_TEXT: Final = "Which tools are there?"
_JSON_HEADER: Final = "-H 'Content-Type: application/json'"


def welcome_json(served: Served) -> JsonObject:
    """The facts for programs. The token itself is only in its file."""
    return {
        "url": served.url,
        "appUrl": served.app_url,
        "pid": os.getpid(),
        "model": _model(served),
        "sessions": served.database,
        "auth": served.config.gateway.auth_mode,
        "tokenFile": str(served.token_file) if served.token_file else None,
    }


def welcome_text(served: Served, config_file: str) -> str:
    """The message for people; `config_file` is empty without a configuration."""
    agent = served.config.agents.agent(served.config.agents.default_id)
    lines = [
        f"open {served.app_url}",
        "",
        f"Nacre gateway at {served.url}{_reach_text(served)} (Ctrl-C stops it)",
        "",
        f"  model      {_model(served)}{_demo_text(served)}",
        f"  surface    {describe_surface(find_surface(agent, served.config), config_file)}",
        f"  config     {config_file or 'none: defaults, with code mode enabled'}",
        f"  sessions   {served.database}",
        f"  workspace  {agent.workspace}",
        f"  token      {_token_place(served)}",
        "",
        "The link above signs in a browser once, within ten minutes. For another one: nacre link",
        f"The API is described at {served.url}/openapi.json",
        "",
        "Try, in another terminal:",
        *(f"  {line}" for line in commands_to_try(served)),
        "",
    ]
    return "\n".join(lines)


def commands_to_try(served: Served) -> list[str]:
    """Shell commands for a first try, in order."""
    header = ""
    lines: list[str] = []
    if served.config.gateway.auth_mode == "token":
        header = ' -H "Authorization: Bearer $TOKEN"'
        lines.append(f"TOKEN={_token_argument(served)}")
    chat = f'{{"model":"nacre","messages":[{{"role":"user","content":"{_FIRST_TEXT}"}}]}}'
    started = f'{{"text":"{_SECOND_TEXT}","sessionKey":"first"}}'
    return [
        *lines,
        f"curl -s {served.url}/v1/chat/completions{header} {_JSON_HEADER} -d '{chat}'",
        f"RUN=$(curl -s {served.url}/api/runs{header} {_JSON_HEADER} -d '{started}' "
        """| sed 's/.*"runId":"\\([^"]*\\)".*/\\1/')""",
        f"curl -sN {served.url}/api/runs/$RUN/events{header}",
    ]


def _token_argument(served: Served) -> str:
    if served.token_file is not None:
        return f'"$(cat {shlex.quote(str(served.token_file))})"'
    if os.environ.get(TOKEN_VARIABLE, "").strip() == served.config.gateway.token:
        return f'"${TOKEN_VARIABLE}"'
    return "'the token of gateway.auth.token'"


def _token_place(served: Served) -> str:
    if served.config.gateway.auth_mode == "none":
        return "not required (gateway.auth.mode is none)"
    if served.token_file is not None:
        return str(served.token_file)
    return "as configured"


def _model(served: Served) -> str:
    return served.config.agents.agent(served.config.agents.default_id).model


def _reach_text(served: Served) -> str:
    host = served.config.gateway.host
    return f" and all other addresses of this machine ({host})" if host in _ANY_ADDRESS else ""


def _demo_text(served: Served) -> str:
    if _model(served) != DEFAULT_MODEL:
        return ""
    return " (demo, not a real model; set agents.defaults.model for one)"
