"""Operate the gateway: status, MCP servers, logs, diagnostics, Codex, gateways, heartbeats."""

import logging
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal

import anyio
import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from pydantic import Field

import nacre
from nacre.agent import AgentRun, RunEvent, TurnRequest
from nacre.gateway.auth import caller_rights
from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonRoute,
    RequestModel,
    ResponseModel,
    State,
    error_responses,
)
from nacre.mcp_client import ServerStatus


class WorkerInfo(ResponseModel):
    """A worker process of the sandbox."""

    pid: int
    state: Literal["idle", "busy"]
    memory_bytes: int | None
    """Null if the system does not say."""
    cells: int


class LoopInfo(ResponseModel):
    """Times in which the event loop ran no task, since the start."""

    stalls: int
    max_stall_ms: float


class DatabaseInfo(ResponseModel):
    """The database of the sessions."""

    kind: Literal["sqlite", "postgresql"]
    location: str
    is_ready: bool
    bytes: int | None = None
    """The size of an SQLite file with its log."""


class DiskInfo(ResponseModel):
    """The disk of the SQLite file."""

    free_bytes: int
    total_bytes: int


class AuthInfo(ResponseModel):
    """How clients sign in."""

    mode: Literal["token", "none"]


class ConfigStateInfo(ResponseModel):
    """The configuration in use."""

    path: str
    """Empty if the gateway was started without a file."""
    problems: tuple[str, ...]
    """Problems of the sandbox, of plugins and of MCP servers."""


class CodexProcessInfo(ResponseModel):
    """A running app-server of Codex."""

    agent_id: str
    provider: str


class StatusResponse(ResponseModel):
    """The state of the gateway."""

    version: str
    pid: int
    uptime_seconds: float
    memory_bytes: int | None
    loop: LoopInfo
    workers: tuple[WorkerInfo, ...]
    runs: dict[str, int]
    """The live runs by their state."""
    cells: dict[str, int]
    """The live cells by their state."""
    database: DatabaseInfo
    disk: DiskInfo | None
    auth: AuthInfo
    config: ConfigStateInfo
    codex: tuple[CodexProcessInfo, ...]


class ServerSessionInfo(ResponseModel):
    """A connection of one session to a server."""

    session_id: str
    state: str
    problem: str
    restarts: int
    pid: int | None


class ServerInfo(ResponseModel):
    """An MCP server of the configuration."""

    name: str
    transport: str
    state: str
    """`ready`, `starting`, `failed`, `idle` or `closed`: of all its sessions, the most notable."""
    problem: str
    tools: int | None
    """The number of its tools; null before they were listed."""
    version: str
    listed_at: float | None
    restarts: int
    sessions: tuple[ServerSessionInfo, ...]
    last_output: tuple[str, ...]
    """The last lines that it wrote to its standard error."""


class ServersResponse(ResponseModel):
    """The MCP servers, in the order of the configuration."""

    servers: tuple[ServerInfo, ...]


class LogLineInfo(ResponseModel):
    """A line of the log. Secrets and commands for terminals are removed."""

    n: int
    """Counts from 1 since the start of the gateway."""
    time: float
    level: str
    logger: str
    message: str


class LogsResponse(ResponseModel):
    """Lines of the log, oldest first."""

    lines: tuple[LogLineInfo, ...]
    last_n: int
    """The value of `after` for the next request."""


class DiagnosticsRequest(RequestModel):
    """What to put into the support bundle."""

    note: Annotated[str, Field(max_length=2000)] = ""
    session_id: Annotated[str, Field(max_length=500)] = ""
    """A session whose events the bundle shall contain."""


class DiagnosticsResponse(ResponseModel):
    """A run that writes a support bundle after an approval."""

    run_id: str
    state: str
    message: str
    approval_id: str | None
    """The approval that it waits for."""


class CodexThreadInfo(ResponseModel):
    """The thread of a session in Codex."""

    session_id: str
    thread_id: str
    model: str
    provider: str | None
    cwd: str
    used_tokens: int
    window_tokens: int
    created_at: float
    updated_at: float


class CodexThreadsResponse(ResponseModel):
    """The threads, the last used first."""

    threads: tuple[CodexThreadInfo, ...]


class GatewayInfo(ResponseModel):
    """A gateway on the same PostgreSQL server, and what it holds."""

    id: str
    name: str
    address: str
    machine: str
    version: str
    state: Literal["alive", "silent", "dead"]
    """`silent` if it has a connection to the database, and does not renew its leases."""
    is_this: bool
    """Whether it is the gateway that answers."""
    started_at: float
    seconds_since_renewal: float
    sessions: int
    running: int
    waiting: int
    queued: int
    inbox: int
    """What was sent to it, and it has not read."""


class GatewaysResponse(ResponseModel):
    """The gateways, the oldest first; none with SQLite, which one gateway serves."""

    gateways: tuple[GatewayInfo, ...]


class HeartbeatInfo(ResponseModel):
    """One attempt to wake an agent."""

    status: Literal["skipped", "failed", "running", "quiet", "notified"]
    time: float
    reason: str = ""
    """Why it was skipped: `busy`, `empty_file` or `outside_active_hours`. Otherwise the reason that
    the agent gave."""
    run_id: str = ""
    session_id: str = ""
    outcome: str = ""
    """What the agent recorded with `heartbeat_respond`."""
    summary: str = ""
    text: str = ""
    """What the user is told."""
    priority: str = ""
    next_check: str = ""
    error: str = ""


class AgentHeartbeatInfo(ResponseModel):
    """The heartbeats of an agent."""

    agent_id: str
    every_seconds: float
    next_time: float
    last: HeartbeatInfo | None = None
    """The last attempt since the gateway started."""


class HeartbeatsResponse(ResponseModel):
    """The agents that are woken."""

    heartbeats: tuple[AgentHeartbeatInfo, ...]


_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# The first of these that a session has is the state of the server.
_SERVER_STATES: Final = ("failed", "starting", "ready", "idle", "closed")
_DIAGNOSTICS: Final = DiagnosticsRequest()
_WAITING: Final = "The bundle is written when you allow it: see the approvals."

router = APIRouter(prefix="/api", tags=["operation"], route_class=JsonRoute, dependencies=[BEARER])


@router.get("/status", summary="The state of the gateway", responses=error_responses())
async def get_status(state: State) -> StatusResponse:
    """Memory, workers, runs, cells, database and problems, in one document."""
    system = state.system
    workers = system.runtime.sandbox.workers
    pids = [os.getpid(), *(pid for pid, _ in workers)]
    memory = await anyio.to_thread.run_sync(lambda: {pid: _resident_bytes(pid) for pid in pids})
    database, disk = await _inspect_database(state)
    file = state.config_file
    return StatusResponse(
        version=nacre.__version__,
        pid=os.getpid(),
        uptime_seconds=time.monotonic() - state.started,
        memory_bytes=memory[os.getpid()],
        loop=LoopInfo(
            stalls=state.metrics.stall_count,
            max_stall_ms=state.metrics.longest_stall_seconds * 1000,
        ),
        workers=tuple(
            WorkerInfo(
                pid=pid,
                state="busy" if is_busy else "idle",
                memory_bytes=memory[pid],
                cells=int(is_busy),
            )
            for pid, is_busy in workers
        ),
        runs=_count(run.state for run in system.agents.runs() if not run.has_ended),
        cells=_count(cell.state for cell in system.runtime.cells()),
        database=database,
        disk=disk,
        auth=AuthInfo(mode=system.config.gateway.auth_mode),
        config=ConfigStateInfo(
            path="" if file is None else str(file.path), problems=_find_problems(state)
        ),
        codex=tuple(
            CodexProcessInfo(agent_id=agent_id, provider=provider)
            for agent_id, provider in system.codex.servers.running
        ),
    )


def _count(states: Iterable[str]) -> dict[str, int]:
    counts = {"queued": 0, "running": 0, "waiting": 0}
    for name in states:
        counts[name] = counts.get(name, 0) + 1
    return {name: count for name, count in counts.items() if count or name != "queued"}


def _resident_bytes(pid: int) -> int | None:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def _inspect_database(state: GatewayState) -> tuple[DatabaseInfo, DiskInfo | None]:
    address = state.system.store.address
    is_ready = await state.readiness.is_ready()
    if address.startswith("postgresql://"):
        return DatabaseInfo(kind="postgresql", location=address, is_ready=is_ready), None

    def measure() -> tuple[int | None, DiskInfo | None]:
        try:
            usage = shutil.disk_usage(Path(address).parent)
            files = [Path(f"{address}{ending}") for ending in ("", "-wal")]
            size = sum(file.stat().st_size for file in files if file.exists())
        except OSError:
            return None, None
        return size, DiskInfo(free_bytes=usage.free, total_bytes=usage.total)

    is_file = Path(address).is_absolute()
    size, disk = await anyio.to_thread.run_sync(measure) if is_file else (None, None)
    found = DatabaseInfo(kind="sqlite", location=address, is_ready=is_ready, bytes=size)
    return found, disk


def _find_problems(state: GatewayState) -> tuple[str, ...]:
    system = state.system
    sandbox = system.runtime.sandbox.problem
    plugins = [f"plugin {it.id}: {it.problem}" for it in system.plugins.status() if it.problem]
    servers = [
        f"MCP server {it.name}: {it.problem}" for it in system.mcp.status() if it.state == "failed"
    ]
    return tuple(filter(None, (sandbox, *plugins, *dict.fromkeys(servers))))


# MCP servers.


@router.get("/servers", summary="List MCP servers", responses=error_responses())
async def list_servers(state: State) -> ServersResponse:
    """List the MCP servers with their problems."""
    return ServersResponse(servers=_server_infos(state))


@router.post(
    "/servers/{name}/restart", summary="Restart an MCP server", responses=error_responses(404)
)
async def restart_server(name: str, state: State) -> ServersResponse:
    """Restart a server in all sessions that use it, and list its tools. Its open calls fail."""
    if not await state.system.mcp.restart(name):
        raise ApiError(404, f"there is no enabled MCP server {quote_id(name)}")
    return ServersResponse(servers=tuple(it for it in _server_infos(state) if it.name == name))


def _server_infos(state: GatewayState) -> tuple[ServerInfo, ...]:
    status = state.system.mcp.status()
    return tuple(
        _server_info(config.name, config.transport, [it for it in status if it.name == config.name])
        for config in state.system.config.mcp_servers
    )


def _server_info(name: str, transport: str, status: list[ServerStatus]) -> ServerInfo:
    ordered = sorted(status, key=lambda it: _SERVER_STATES.index(it.state))
    first = ordered[0] if ordered else ServerStatus(name=name)
    listed = [it for it in status if it.tool_count is not None]
    return ServerInfo(
        name=name,
        transport=transport,
        state=first.state,
        problem=first.problem,
        tools=listed[-1].tool_count if listed else None,
        version=listed[-1].version if listed else "",
        listed_at=max((it.listed for it in status if it.listed), default=None),
        restarts=sum(it.restarts for it in status),
        sessions=tuple(
            ServerSessionInfo(
                session_id=it.session_id,
                state=it.state,
                problem=it.problem,
                restarts=it.restarts,
                pid=it.pid,
            )
            for it in status
            if it.state != "idle"
        ),
        last_output=first.last_output,
    )


# Logs, diagnostics and Codex.


@router.get("/logs", summary="The last lines of the log", responses=error_responses())
async def list_logs(
    state: State,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    after: Annotated[
        int, Query(description="The `lastN` of the previous response.", ge=0, le=2**62)
    ] = 0,
    level: Annotated[
        Literal["debug", "info", "warning", "error"], Query(description="The lowest level.")
    ] = "debug",
) -> LogsResponse:
    """Get the last lines of the log of this process."""
    logs = state.system.logs
    last = logs.last_number
    return LogsResponse(
        lines=tuple(
            LogLineInfo(
                n=line.number,
                time=line.time,
                level=logging.getLevelName(line.level).lower(),
                logger=line.logger,
                message=line.message,
            )
            for line in logs.lines(after=after, level=_LEVELS[level], limit=limit)
        ),
        last_n=last,
    )


@router.post(
    "/diagnostics",
    status_code=202,
    summary="Write a support bundle",
    responses=error_responses(404, 415, 429),
)
async def write_diagnostics(
    request: Request, state: State, body: DiagnosticsRequest = _DIAGNOSTICS
) -> DiagnosticsResponse:
    """Start the chat command `/diagnostics`: it writes a bundle on this machine, if the approval
    that it asks for is given."""
    run = await state.system.agents.start(
        TurnRequest(
            message=f"/diagnostics {' '.join(body.note.split())}".strip(),
            session_id=body.session_id,
            channel="api",
            rights=caller_rights(request.scope),
        )
    )
    await _wait_for_approval(run)
    pending = run.pending_approvals
    text = run.result.text if run.result else ""
    return DiagnosticsResponse(
        run_id=run.id,
        state=run.state if run.has_ended else "waiting",
        message=_WAITING if pending else text or (run.result.error if run.result else ""),
        approval_id=pending[0].id if pending else None,
    )


async def _wait_for_approval(run: AgentRun) -> None:
    """Wait until the run asks for an approval, or has ended."""
    has_request = anyio.Event()

    def handle(event: RunEvent) -> None:
        if event.kind in ("approval.requested", "run.completed", "run.failed", "run.aborted"):
            has_request.set()

    stop = run.events.subscribe(handle)
    try:
        if not run.has_ended and not run.pending_approvals:
            await has_request.wait()
    finally:
        stop()


@router.get("/codex/threads", summary="List threads of Codex", responses=error_responses())
async def list_codex_threads(
    state: State, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> CodexThreadsResponse:
    """List the threads that sessions have in Codex."""
    return CodexThreadsResponse(
        threads=tuple(
            CodexThreadInfo(
                session_id=record.session_id,
                thread_id=record.thread_id,
                model=str(record.data.get("model") or ""),
                provider=_text_or_none(record.data.get("provider")),
                cwd=str(record.data.get("cwd") or ""),
                used_tokens=_whole_number(record.data.get("usedTokens")),
                window_tokens=_whole_number(record.data.get("windowTokens")),
                created_at=record.created,
                updated_at=record.updated,
            )
            for record in await state.system.store.threads(limit)
        )
    )


@router.get("/gateways", summary="List gateways", responses=error_responses())
async def list_gateways(state: State) -> GatewaysResponse:
    """List the gateways that share the PostgreSQL database of this one."""
    cluster = state.system.store.cluster
    if cluster is None:
        return GatewaysResponse(gateways=())
    return GatewaysResponse(
        gateways=tuple(
            GatewayInfo(
                id=record.owner,
                name=record.name,
                address=record.address,
                machine=record.machine,
                version=record.version,
                state=record.state,
                is_this=record.owner == cluster.leases.owner,
                started_at=record.started,
                seconds_since_renewal=record.seconds_since_renewal,
                sessions=record.sessions,
                running=record.running,
                waiting=record.waiting,
                queued=record.queued,
                inbox=record.inbox,
            )
            for record in await cluster.leases.gateways()
        )
    )


heartbeats_router = APIRouter(
    prefix="/api/heartbeats", tags=["heartbeats"], route_class=JsonRoute, dependencies=[BEARER]
)


@heartbeats_router.get("", summary="List heartbeats", responses=error_responses())
async def list_heartbeats(state: State) -> HeartbeatsResponse:
    """List the agents that are woken without a message, with the next time and the last attempt."""
    found = await state.heartbeats.status()
    return HeartbeatsResponse(
        heartbeats=tuple(AgentHeartbeatInfo.model_validate(it) for it in found)
    )


@heartbeats_router.post(
    "/{agent_id}",
    status_code=202,
    summary="Wake an agent now",
    responses=error_responses(404),
)
async def wake_agent(
    agent_id: Annotated[str, PathParameter(max_length=500)], state: State
) -> HeartbeatInfo:
    """Wake an agent now, also outside of its active hours. Follow the run of `runId`. It is skipped
    while a turn of the session runs."""
    if state.is_closing:
        raise ApiError(503, "the gateway is shutting down", code="shutting_down")
    report = await state.heartbeats.wake(agent_id)
    return HeartbeatInfo.model_validate(report.to_json())


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole_number(value: object) -> int:
    return value if isinstance(value, int) else 0
