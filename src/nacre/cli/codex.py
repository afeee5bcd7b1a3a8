"""Commands `nacre codex`: check Codex, log in to it, and list the threads of sessions."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from nacre.cli.options import AgentOption, ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, UsageError, shorten, time_text, warn

if TYPE_CHECKING:
    from nacre.config import SystemConfig
    from nacre.json_types import JsonObject
    from nacre.storage import Store, ThreadRecord


def status_command(
    agent: AgentOption = None, config: ConfigOption = None, is_json: JsonOption = False
) -> int:
    """Show the program, its version and its login, for one agent.

    It starts the app-server of Codex for a moment. Exit status: 1 if it cannot be used.
    """
    from nacre.cli.runner import run_async
    from nacre.codex_harness import examine_codex

    system, agent_id = _read(config, agent)
    work = partial(examine_codex, system.codex, agent_id, dict(os.environ))
    health = run_async(work)
    problem = system.codex.refusal or health.problem
    printer = Printer()
    if is_json:
        members: JsonObject = {**health.to_json(), "problem": problem}
        printer.write_json(members, is_indented=printer.is_terminal)
    else:
        server = system.codex.app_server
        rows = [
            ("program", health.program),
            ("version", health.version),
            ("login", health.account or _describe_key(system, agent_id)),
            ("home", str(health.home)),
            ("mode", f"{server.mode} ({server.approval_policy}, {server.sandbox})"),
        ]
        for label, text in rows:
            if text:
                printer.write(f"{label:<10} {shorten(text)}\n")
        if problem:
            warn(problem)
    return printer.problem or (ExitStatus.FAILED if problem else ExitStatus.COMPLETED)


def login_command(
    agent: AgentOption = None,
    has_device_code: Annotated[
        bool, typer.Option("--device-auth", help="Log in with a code on another device.")
    ] = False,
    has_api_key: Annotated[
        bool, typer.Option("--with-api-key", help="Read an API key from standard input.")
    ] = False,
    config: ConfigOption = None,
) -> int:
    """Log an agent in to OpenAI. This runs `codex login` with the agent's own CODEX_HOME."""
    from nacre.codex_harness import plan_launch
    from nacre.errors import CodexError

    system, agent_id = _read(config, agent)
    try:
        launch = plan_launch(system.codex, agent_id, dict(os.environ))
    except CodexError as error:
        warn(str(error))
        return ExitStatus.FAILED
    launch.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = [
        *(["--device-auth"] if has_device_code else []),
        *(["--with-api-key"] if has_api_key else []),
    ]
    status = subprocess.call(
        [launch.command[0], "login", *options], env={**os.environ, **launch.environment}
    )
    return ExitStatus.COMPLETED if status == 0 else ExitStatus.FAILED


def threads_command(
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", help="How many.", min=1, max=10_000)
    ] = 50,
    config: ConfigOption = None,
    is_json: JsonOption = False,
) -> int:
    """List the Codex threads of your sessions, the last used first.

    `CODEX_HOME=<home> codex resume <thread>` opens a thread in Codex itself, while no gateway
    uses it.
    """
    from nacre.cli.output import write_table
    from nacre.cli.stored_records import read_stored
    from nacre.errors import StorageError

    system, _ = _read(config)

    async def read(store: Store) -> list[ThreadRecord]:
        return await store.threads(limit)

    try:
        found = read_stored(system, read)
    except StorageError as error:
        warn(str(error))
        return ExitStatus.FAILED
    printer = Printer()
    if is_json:
        threads = [_to_json(record) for record in found]
        printer.write_json({"threads": [*threads]}, is_indented=printer.is_terminal)
    else:
        rows = [
            (it.session_id, it.thread_id, str(it.data.get("model", "")), time_text(it.updated))
            for it in found
        ]
        write_table(printer, ("session", "thread", "model", "last used"), rows)
    if not found:
        warn("no session has a Codex thread yet")
    return printer.problem or ExitStatus.COMPLETED


def _describe_key(system: SystemConfig, agent_id: str) -> str:
    """What Codex uses without a login of its own."""
    name = system.agents.agent(agent_id).model.partition("/")[0]
    provider = system.models.providers.get(name)
    if provider is not None and provider.api_key:
        return f"API key of the provider {name}"
    if provider is not None and not provider.is_official_openai:
        return f"none; the provider {name} has no API key"
    return "none: run `nacre codex login`, or set OPENAI_API_KEY"


def _read(config: str | None, agent: str | None = None) -> tuple[SystemConfig, str]:
    from nacre.cli.system_config import read_system_config
    from nacre.errors import SessionError

    _, system = read_system_config(config)
    try:
        return system, system.agents.agent(agent or system.agents.default_id).id
    except SessionError as error:
        raise UsageError(str(error)) from None


def _to_json(record: ThreadRecord) -> JsonObject:
    return {
        "sessionId": record.session_id,
        "threadId": record.thread_id,
        "model": record.data.get("model"),
        "cwd": record.data.get("cwd"),
        "createdAt": record.created,
        "updatedAt": record.updated,
    }


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Check Codex, log in to it, and list its threads.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("status")(status_command)
    group.command("login")(login_command)
    group.command("threads")(threads_command)
    app.add_typer(group, name="codex")
