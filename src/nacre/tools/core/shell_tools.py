"""The tools `exec` and `process`: shell commands in the foreground and background."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from nacre.foreign_calls import call_in_thread
from nacre.tools.core.shell_process import Command, ShellProblem, ShellProcess
from nacre.tools.core.workspace import Workspace
from nacre.tools.definition import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from nacre.config import ExecToolConfig
    from nacre.json_types import JsonObject
    from nacre.tools.definition import ToolCall


_INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
_DEFAULTS: Final = {"PATH": os.defpath, "LANG": "C.UTF-8"}


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that a command inherits."""
    inherited = {name: environment[name] for name in _INHERITED if environment.get(name)}
    return {**_DEFAULTS, **inherited}


_MAX_PROCESSES: Final = 32
_MAX_SESSION_PROCESSES: Final = 8
_MAX_ENDED_PROCESSES: Final = 16
_CLOSE_GRACE_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BackgroundProcess:
    """A command that continues after the call that started it."""

    id: str
    session_id: str
    process: ShellProcess


class Processes:
    """Starts commands, and ends them when it is closed."""

    def __init__(self) -> None:
        self._started: set[ShellProcess] = set()
        self._background: dict[str, BackgroundProcess] = {}
        self._numbers = itertools.count(1)
        # One start at a time, so that simultaneous starts cannot exceed the limits.
        self._start_lock = anyio.Lock()
        self._is_closed = False
        self._background_refusal = ""

    async def start(self, command: Command) -> ShellProcess:
        """Start a command; raises ShellProblem."""
        self._refuse_if_closed()
        process = await ShellProcess.start(command)
        self._started = {each for each in self._started if each.is_running} | {process}
        if self._is_closed:
            await process.end(grace_seconds=0)
            self._refuse_if_closed()
        return process

    async def start_in_background(self, command: Command, *, session_id: str) -> BackgroundProcess:
        """Start a background command, whose output can be read later; raises ShellProblem."""
        async with self._start_lock:
            self._forget_oldest()
            self._refuse_if_full(session_id)
            if self._background_refusal:
                raise ShellProblem(f"the command was not started: {self._background_refusal}")
            process = await self.start(command)
            background = BackgroundProcess(
                id=f"p{next(self._numbers)}", session_id=session_id, process=process
            )
            self._background[background.id] = background
        return background

    def of_session(self, session_id: str) -> list[BackgroundProcess]:
        """The background processes of a session, oldest first; only recent ended ones."""
        self._forget_oldest()
        return [each for each in self._background.values() if each.session_id == session_id]

    def get(self, process_id: str, *, session_id: str) -> BackgroundProcess:
        """A background process of the session; raises ShellProblem if there is none."""
        by_id = {each.id: each for each in self.of_session(session_id)}
        if process_id not in by_id:
            known = ", ".join(by_id) or "none"
            raise ShellProblem(f"this session has no process {process_id[:60]!r}; it has: {known}")
        return by_id[process_id]

    async def end_background(self, reason: str) -> None:
        """End all background processes, and refuse new ones with this reason.

        Commands in the foreground continue.
        """
        self._background_refusal = reason
        # Waits for a start in progress, so that its process is ended too.
        async with self._start_lock:
            await _end_all(each.process for each in self._background.values())

    async def aclose(self) -> None:
        """End all processes and their children."""
        self._is_closed = True
        await _end_all(self._started)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ShellProblem("the command was not run: the system is shutting down")

    def _refuse_if_full(self, session_id: str) -> None:
        running = [each for each in self._background.values() if each.process.is_running]
        own = [each for each in running if each.session_id == session_id]
        if len(own) >= _MAX_SESSION_PROCESSES:
            raise ShellProblem(
                f"{len(own)} processes of this session run in the background, which is the limit; "
                f"end one with the tool `process`: {', '.join(each.id for each in own)}"
            )
        if len(running) >= _MAX_PROCESSES:
            raise ShellProblem(
                f"{len(running)} processes run in the background, which is the limit; try later"
            )

    def _forget_oldest(self) -> None:
        ended = [each for each in self._background.values() if not each.process.is_running]
        for each in ended[: max(0, len(ended) - _MAX_ENDED_PROCESSES)]:
            del self._background[each.id]


async def _end_all(processes: Iterable[ShellProcess]) -> None:
    async with anyio.create_task_group() as tasks:
        for process in processes:
            tasks.start_soon(partial(process.end, grace_seconds=_CLOSE_GRACE_SECONDS))


_REASON: Final = "it runs a command on this machine"
_MAX_CONCURRENT_COMMANDS: Final = 16
_MAX_WAIT_SECONDS: Final = 60
# Operating systems accept no more, and passing more would block the event loop.
_MAX_ARGUMENT_CHARACTERS: Final = 1_000_000
# An abort waits for the end of the command, so its grace period is short.
_ABORT_GRACE_SECONDS: Final = 0.1
_GRACE_SECONDS: Final = 1.0
# Updates become less frequent with time, because the trajectory contains all of them.
_UPDATE_SECONDS: Final = 0.5
_UPDATE_SHARE: Final = 0.05
_MAX_UPDATE_CHARACTERS: Final = 4_000


def shell_tools(config: ExecToolConfig, root: Path, processes: Processes) -> list[Tool]:
    """The shell tools; none if they are disabled."""
    if not config.is_enabled:
        return []
    shell = _Shell(config, Workspace(root), processes)
    return [
        Tool(
            name="exec",
            description=(
                "Run a shell command in the workspace and wait for it; output has both streams. "
                "`background` starts one that keeps running, for the tool `process`."
            ),
            parameters=_exec_input(config),
            execute=shell.exec,
            needs_approval=_REASON if config.ask == "always" else "",
        ),
        Tool(
            name="process",
            description=(
                "List, read or kill the processes that exec started in the background; "
                "`next` is where to continue reading."
            ),
            parameters=_PROCESS_INPUT,
            execute=shell.process,
        ),
    ]


class _Shell:
    """The functions of the tools."""

    def __init__(self, config: ExecToolConfig, workspace: Workspace, processes: Processes) -> None:
        self._config = config
        self._workspace = workspace
        self._processes = processes
        self._limiter = anyio.CapacityLimiter(_MAX_CONCURRENT_COMMANDS)

    async def exec(self, given: dict[str, Any], call: ToolCall) -> JsonObject:
        """Run a command."""
        command = await self._make_command(given)
        if given.get("background", False):
            session_id = call.context.session_id
            started = await self._processes.start_in_background(command, session_id=session_id)
            return {"processId": started.id, "status": "running"}
        async with self._limiter:
            return await self._run(command, given.get("timeoutSeconds"), call)

    async def process(self, given: dict[str, Any], call: ToolCall) -> JsonObject:
        """List, read or kill the background processes of the session."""
        session_id = call.context.session_id
        if given["action"] == "list":
            processes = self._processes.of_session(session_id)
            return {"processes": [_summarize(each) for each in processes]}
        background = self._processes.get(given.get("processId", ""), session_id=session_id)
        process = background.process
        if given["action"] == "kill":
            await process.end(grace_seconds=_GRACE_SECONDS)
            return _summarize(background)
        after = given.get("after", 0)
        if after >= process.output.total_bytes:
            with anyio.move_on_after(given.get("waitSeconds", 0)):
                await process.wait_for_output()
        part = process.output.part(after, is_final=not process.is_running)
        return {**_summarize(background), "output": part.text, "next": part.next_position}

    async def _make_command(self, given: dict[str, Any]) -> Command:
        if ("command" in given) == ("argv" in given):
            raise ShellProblem("exec takes either command or argv")
        if sum(map(len, given.get("argv", ()))) > _MAX_ARGUMENT_CHARACTERS:
            raise ShellProblem(
                f"argv has more than {_MAX_ARGUMENT_CHARACTERS} characters; write them to a file"
            )
        folder = await call_in_thread(lambda: self._resolve_folder(given.get("folder", ".")))
        return Command(
            argv=given["argv"] if "argv" in given else ["/bin/sh", "-c", given["command"]],
            folder=folder,
            environment=command_environment(os.environ),
            max_output_bytes=self._config.max_output_bytes,
        )

    def _resolve_folder(self, path: str) -> str:
        with self._workspace.locate(path) as target:
            os.close(target.open_folder())
            return os.path.normpath(os.path.join(self._workspace.root, target.path))

    async def _run(
        self, command: Command, timeout_seconds: float | None, call: ToolCall
    ) -> JsonObject:
        max_seconds = self._config.timeout_seconds
        seconds = max_seconds if timeout_seconds is None else min(timeout_seconds, max_seconds)
        process = await self._processes.start(command)
        try:
            with anyio.move_on_after(seconds):
                await _report_progress(process, call)
            was_stopped = process.is_running
            if was_stopped:
                await process.end(grace_seconds=_GRACE_SECONDS)
        finally:
            await process.end(grace_seconds=_ABORT_GRACE_SECONDS)
        result = _result(process)
        if was_stopped:
            result["timedOut"] = True
            result["note"] = f"the command was ended after {seconds:g} s"
        elif process.left_children:
            result["note"] = "its child processes were ended; use background to keep them running"
        return result


async def _report_progress(process: ShellProcess, call: ToolCall) -> None:
    """Report the output as progress until the process ends."""
    reported_bytes = 0
    while process.is_running:
        elapsed = time.monotonic() - process.started
        with anyio.move_on_after(max(_UPDATE_SECONDS, elapsed * _UPDATE_SHARE)):
            await process.exited.wait()
        part = process.output.part(reported_bytes, is_final=False)
        if process.is_running and part.next_position > reported_bytes:
            reported_bytes = part.next_position
            call.update(
                {"output": part.text[-_MAX_UPDATE_CHARACTERS:], "outputBytes": reported_bytes}
            )


def _result(process: ShellProcess) -> JsonObject:
    part = process.output.part(is_final=True)
    return {
        **_end_of(process),
        "output": part.text,
        "outputBytes": process.output.total_bytes,
        **({"leftOutBytes": part.left_out_bytes} if part.left_out_bytes else {}),
    }


def _summarize(background: BackgroundProcess) -> JsonObject:
    process = background.process
    return {
        "processId": background.id,
        "command": process.command_line,
        "status": "running" if process.is_running else "ended",
        **({} if process.is_running else _end_of(process)),
        "outputBytes": process.output.total_bytes,
    }


def _end_of(process: ShellProcess) -> JsonObject:
    if process.signal_name:
        return {"exitCode": None, "signal": process.signal_name}
    return {"exitCode": process.exit_status}


def _exec_input(config: ExecToolConfig) -> JsonObject:
    return {
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "minLength": 1,
                "maxLength": 65_536,
                "description": "A command for /bin/sh; its input is empty",
            },
            "argv": {
                "type": "array",
                "items": {"type": "string", "maxLength": 65_536},
                "minItems": 1,
                "maxItems": 1_000,
                "description": "Instead of command: a program and its arguments, without a shell",
            },
            "folder": {
                "type": "string",
                "description": "The working folder in the workspace; default its root",
            },
            "timeoutSeconds": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": config.timeout_seconds,
                "description": f"The time limit; default {config.timeout_seconds:g}",
            },
            "background": {
                "type": "boolean",
                "description": "Do not wait for it; it has no time limit. Default false",
            },
        },
        "additionalProperties": False,
    }


_PROCESS_INPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["list", "output", "kill"]},
        "processId": {"type": "string", "description": "For output and kill"},
        "after": {
            "type": "integer",
            "minimum": 0,
            "description": "For output: `next` of the previous call, to read only new output",
        },
        "waitSeconds": {
            "type": "number",
            "minimum": 0,
            "maximum": _MAX_WAIT_SECONDS,
            "description": "For output: how long to wait for new output or the end; default 0",
        },
    },
    "required": ["action"],
    "additionalProperties": False,
}
