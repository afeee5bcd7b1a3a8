"""Command `nacre gateway`: serves the agents over HTTP and prints how to reach them."""

from __future__ import annotations

import logging
import os
import shlex
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nacre.agent.surfaces import planned_surface
from nacre.cli.output import ExitStatus, Printer, UsageProblem, warn
from nacre.cli.system_config import EMBEDDED, read_agent_config
from nacre.config.gateway import TOKEN_VARIABLE
from nacre.config.models import DEFAULT_MODEL
from nacre.errors import NacreError
from nacre.gateway.access_log import ACCESS_LOG

if TYPE_CHECKING:
    from nacre.config import ConfigFile
    from nacre.gateway.server import Served
    from nacre.json_types import JsonObject


# What nothing else needs, by the names that it is imported by.
_PARTS: Final = ("fastapi", "prometheus_client", "sqlalchemy", "sse_starlette", "uvicorn")


def gateway_command(
    config: Annotated[
        str | None, typer.Option("--config", help="The config file.", metavar="FILE")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", help="The address to listen at, instead of the configured one."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", help="The port; 0 is any that is free.", min=0, max=65535),
    ] = None,
    is_json: Annotated[
        bool,
        typer.Option("--json", help="Say in one line of JSON where it is, once it answers."),
    ] = False,
    is_logging_requests: Annotated[
        bool, typer.Option("--access-log", help="Log every request.")
    ] = False,
) -> int:
    """Serve the agents over HTTP.

    A JSON API is under /api, OpenAI's under /v1.
    Without a config file a demonstration model answers, and code mode is on. Ctrl-C, or SIGTERM,
    lets what runs come to its end first; a second one does not wait.
    """
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING
    )
    logging.getLogger("nacre").setLevel(logging.INFO)
    logging.getLogger(ACCESS_LOG).setLevel(logging.INFO if is_logging_requests else logging.WARNING)
    # It warns of every reader of a stream that goes away.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    file, system_config = read_agent_config(config)
    _refuse_without_parts()
    from nacre.gateway.server import GatewayOptions, serve_gateway

    options = GatewayOptions(
        config=system_config, file=file, environment=os.environ, host=host, port=port
    )
    try:
        serve_gateway(options, lambda served: _tell(served, file, is_json=is_json))
    except NacreError as error:
        warn(str(error))
        return ExitStatus.FAILED
    return ExitStatus.COMPLETED


def _refuse_without_parts() -> None:
    """Once and before anything is opened: several tasks would find it missing at once."""
    missing = [name for name in _PARTS if find_spec(name) is None]
    if missing:
        raise UsageProblem(
            f"the gateway cannot run: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            "not installed; run: pip install 'nacre-ai[gateway]'"
        )


def _tell(served: Served, file: ConfigFile, *, is_json: bool) -> None:

    printer = Printer()
    if is_json:
        printer.write_json(welcome_json(served), is_indented=False)
    else:
        is_embedded = served.config.document == EMBEDDED
        printer.write(welcome_text(served, "" if is_embedded else str(file.path)))


def register(app: typer.Typer) -> None:
    app.command("gateway")(gateway_command)


_ANY_ADDRESS: Final = ("0.0.0.0", "::")
_FIRST_TEXT: Final = "What is 6 * 7?"
_SECOND_TEXT: Final = "Which tools are there?"
_JSON_HEADER: Final = "-H 'Content-Type: application/json'"


def welcome_json(served: Served) -> JsonObject:
    """For programs; the token itself is in its file and nowhere else."""
    return {
        "url": served.url,
        "pid": os.getpid(),
        "model": _model(served),
        "sessions": served.place,
        "auth": served.config.gateway.auth_mode,
        "tokenFile": str(served.token_file) if served.token_file else None,
    }


def welcome_text(served: Served, config_file: str) -> str:
    """For people; an empty `config_file` if there is none."""
    agent = served.config.agents.agent(served.config.agents.default_id)
    lines = [
        f"Nacre gateway at {served.url}{_about_reach(served)} (Ctrl-C ends it)",
        "",
        f"  model      {_model(served)}{_about_demo(served)}",
        f"  surface    {_surface(served, config_file)}",
        f"  config     {config_file or 'none: embedded defaults, with code mode on'}",
        f"  sessions   {served.place}",
        f"  workspace  {agent.workspace}",
        f"  token      {_about_token(served)}",
        "",
        "Open:",
        f"  {served.url}/openapi.json",
        "",
        "Try, in another terminal:",
        *(f"  {line}" for line in commands_to_try(served)),
        "",
    ]
    return "\n".join(lines)


def commands_to_try(served: Served) -> list[str]:
    """For a shell, in this order."""
    header = ""
    lines: list[str] = []
    if served.config.gateway.auth_mode == "token":
        header = ' -H "Authorization: Bearer $TOKEN"'
        lines.append(f"TOKEN={_token(served)}")
    chat = f'{{"model":"nacre","messages":[{{"role":"user","content":"{_FIRST_TEXT}"}}]}}'
    started = f'{{"text":"{_SECOND_TEXT}","sessionKey":"first"}}'
    return [
        *lines,
        f"curl -s {served.url}/v1/chat/completions{header} {_JSON_HEADER} -d '{chat}'",
        f"RUN=$(curl -s {served.url}/api/runs{header} {_JSON_HEADER} -d '{started}' "
        """| sed 's/.*"runId":"\\([^"]*\\)".*/\\1/')""",
        f"curl -sN {served.url}/api/runs/$RUN/events{header}",
    ]


def _token(served: Served) -> str:
    if served.token_file is not None:
        return f'"$(cat {shlex.quote(str(served.token_file))})"'
    if os.environ.get(TOKEN_VARIABLE, "").strip() == served.config.gateway.token:
        return f'"${TOKEN_VARIABLE}"'
    return "'the token of gateway.auth.token'"


def _about_token(served: Served) -> str:
    if served.config.gateway.auth_mode == "none":
        return "none is needed: gateway.auth.mode is none"
    if served.token_file is not None:
        return str(served.token_file)
    return "as configured"


def _model(served: Served) -> str:
    return served.config.agents.agent(served.config.agents.default_id).model


def _about_reach(served: Served) -> str:
    host = served.config.gateway.host
    return f", and at all addresses of this machine ({host})" if host in _ANY_ADDRESS else ""


def _surface(served: Served, config_file: str) -> str:
    """How the default agent's model sees its tools, and how code mode is switched on."""
    config = served.config
    file = f" --config {shlex.quote(config_file)}" if config_file else ""
    how = f"; for code mode: nacre config set{file} tools.codeMode.enabled true"
    match planned_surface(config.document, config.agents.default_id):
        case "code_mode":
            return "code mode: the model sees `exec` and `wait`, programs call the tools"
        case "tool_search":
            return f"tool search: the model looks its tools up{how}"
        case "direct":
            return f"the model sees all of its tools{how}"


def _about_demo(served: Served) -> str:
    if _model(served) != DEFAULT_MODEL:
        return ""
    return ": a demonstration without intelligence; set agents.defaults.model for a real one"
