"""Command `nacre diagnostics export`: writes a support bundle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.error import URLError
from urllib.request import Request, urlopen

import typer

from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, UsageError, say, size_text, warn

if TYPE_CHECKING:
    from nacre.agent.diagnostics import BundleContent
    from nacre.config import SystemConfig
    from nacre.storage import Store

_METRICS_SECONDS: Final = 5.0
_MAX_METRICS_BYTES: Final = 1 << 20


def export_command(
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="What happened, for the reader.")
    ] = "",
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="ID",
            help="Only runs of this session, by id or key. [default: the latest runs]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="DIRECTORY",
            help="Where to write the file. [default: diagnostics in your state directory]",
            show_default=False,
        ),
    ] = None,
    has_doctor: Annotated[
        bool, typer.Option("--doctor/--no-doctor", help="Include the report of `nacre doctor`.")
    ] = True,
    config: ConfigOption = None,
    is_json: JsonOption = False,
) -> int:
    """Write a support bundle: a zip file that only you can read.

    It has your configuration without secrets, the versions of everything, the report of
    `nacre doctor`, the recorded events of the latest runs, and the metrics of a running gateway.
    Nothing is sent anywhere. Look into it before you pass it on: events have parts of
    conversations and the results of tools.
    """
    from nacre.agent.diagnostics import BundleContent
    from nacre.cli.runner import run_async
    from nacre.config import default_diagnostics_folder

    content = BundleContent(note=note)
    _add_config(content, config)
    system = _read_system(content, config)
    if has_doctor:
        from nacre.cli.doctor import examine_all

        health = examine_all(config)
        if isinstance(health, ExitStatus):
            return health
        content.add_json("doctor.json", health.to_json())
    if system is not None:
        content.hide_values_of(system.mcp_servers)
        _add_metrics(content, system)
        _add_trajectories(content, system, session)
    folder = Path(out).absolute() if out else default_diagnostics_folder(os.environ)
    try:
        bundle = run_async(lambda: content.write(folder))
    except OSError as error:
        warn(f"the bundle cannot be written to {folder}: {error.strerror or error}")
        return ExitStatus.FAILED
    printer = Printer()
    if is_json:
        printer.write_json(bundle.to_json(), is_indented=printer.is_terminal)
        return printer.problem or ExitStatus.COMPLETED
    printer.write(f"{bundle.path}\n")
    for problem in bundle.problems:
        warn(problem)
    say(f"{len(bundle.files)} files, {size_text(bundle.size_bytes)}; nothing was sent anywhere")
    return printer.problem or ExitStatus.COMPLETED


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Collect what others need to find a problem.", no_args_is_help=True)
    group.command("export")(export_command)
    app.add_typer(group, name="diagnostics")


def _add_config(content: BundleContent, config: str | None) -> None:
    from nacre.cli.config_document import read_document
    from nacre.errors import ConfigError
    from nacre.plugins import find_misplaced

    try:
        document = read_document(config)
        misplaced = find_misplaced(document.members, document.file.path)
        content.add_config(document.members, misplaced)
    except (UsageError, ConfigError) as error:
        content.problems.append(f"config.json: {error}")


def _read_system(content: BundleContent, config: str | None) -> SystemConfig | None:
    """None if the configuration is not valid: the bundle may be needed to find out why."""
    from nacre.cli.system_config import read_system_config

    try:
        return read_system_config(config)[1]
    except UsageError as error:
        content.problems.append(f"metrics and trajectories: the configuration is invalid: {error}")
        return None


def _add_metrics(content: BundleContent, system: SystemConfig) -> None:
    from nacre.cli.gateway_client import find_gateway_token, gateway_url

    url = gateway_url(system)
    request = Request(f"{url}/metrics")
    if token := find_gateway_token(system, url):
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urlopen(request, timeout=_METRICS_SECONDS) as response:
            data: bytes = response.read(_MAX_METRICS_BYTES)
        content.add("metrics.txt", data)
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        content.problems.append(f"metrics.txt: no metrics from a gateway at {url}: {reason}")


def _add_trajectories(content: BundleContent, system: SystemConfig, session: str | None) -> None:
    from nacre.cli.doctor import database_file
    from nacre.cli.stored_records import find_session, read_stored
    from nacre.errors import NacreError

    file = database_file(system)
    if file is not None and not file.exists():
        content.problems.append(f"trajectories: there is no database {file} yet")
        return

    async def read(store: Store) -> None:
        found = None
        if session is not None:
            found = await find_session(store, session, agent_ids=system.agents.ids)
            if found is None:
                raise UsageError(f"there is no session {session!r}; see `nacre sessions list`")
        await content.add_trajectories(store, session_id=None if found is None else found.id)

    try:
        read_stored(system, read)
    except NacreError as error:
        content.problems.append(f"trajectories: {error}")
