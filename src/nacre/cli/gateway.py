"""`gateway`: serve the agents over HTTP."""

import logging
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nacre.cli.output import ExitStatus, Printer, UsageProblem, warn
from nacre.cli.system_config import EMBEDDED, read_agent_config
from nacre.errors import NacreError
from nacre.gateway.access_log import ACCESS_LOG

if TYPE_CHECKING:
    from nacre.config import ConfigFile
    from nacre.gateway.server import Served


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


def _tell(served: "Served", file: "ConfigFile", *, is_json: bool) -> None:
    from nacre.cli.gateway_welcome import welcome_json, welcome_text

    printer = Printer()
    if is_json:
        printer.write_json(welcome_json(served), is_indented=False)
    else:
        is_embedded = served.config.document == EMBEDDED
        printer.write(welcome_text(served, "" if is_embedded else str(file.path)))


def register(app: typer.Typer) -> None:
    app.command("gateway")(gateway_command)
