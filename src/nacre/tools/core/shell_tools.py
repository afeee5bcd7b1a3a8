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


_PASSED_ON: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
_DEFAULTS: Final = {"PATH": os.defpath, "LANG": "C.UTF-8"}


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment a command gets to see."""
    passed_on = {name: environment[name] for name in _PASSED_ON if environment.get(name)}
    return {**_DEFAULTS, **passed_on}


_MAX_RUNNING: Final = 32
_MAX_PER_SESSION: Final = 8
_MAX_ENDED: Final = 16
_CLOSE_GRACE_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BackgroundProcess:
    """A command that goes on after the call that started it."""

    id: str
    session_id: str
    process: ShellProcess


class Processes:
    """Starts commands. Whatever still runs when this is closed is ended."""

    def __init__(self) -> None:
        self._started: set[ShellProcess] = set()
        self._background: dict[str, BackgroundProcess] = {}
        self._numbers = itertools.count(1)
        # One at a time, so that the bounds hold for commands that are started at once.
        self._starting = anyio.Lock()
        self._is_closed = False
        self._background_refusal = ""

    async def start(self, command: Command) -> ShellProcess:
        """Start a command; raises ShellProblem if that cannot be done."""
        self._refuse_if_closed()
        process = await ShellProcess.start(command)
        self._started = {each for each in self._started if each.is_running} | {process}
        if self._is_closed:
            await process.end(grace_seconds=0)
            self._refuse_if_closed()
        return process

    async def start_in_background(self, command: Command, *, session_id: str) -> BackgroundProcess:
        """The same, and keep what it writes until somebody asks; raises ShellProblem."""
        async with self._starting:
            self._forget_oldest()
            self._refuse_if_full(session_id)
            if self._background_refusal:
                raise ShellProblem(f"the command was not started: {self._background_refusal}")
            process = await self.start(command)
            kept = BackgroundProcess(
                id=f"p{next(self._numbers)}", session_id=session_id, process=process
            )
            self._background[kept.id] = kept
        return kept

    def of_session(self, session_id: str) -> list[BackgroundProcess]:
        """Those in the background, oldest first; of those that ended, the last ones."""
        self._forget_oldest()
        return [each for each in self._background.values() if each.session_id == session_id]

    def get(self, process_id: str, *, session_id: str) -> BackgroundProcess:
        """Raises ShellProblem for one that this session has not started."""
        mine = {each.id: each for each in self.of_session(session_id)}
        if process_id not in mine:
            known = ", ".join(mine) or "none"
            raise ShellProblem(f"this session has no process {process_id[:60]!r}; it has: {known}")
        return mine[process_id]

    async def end_background(self, reason: str) -> None:
        """End those in the background, and for this reason start no more of them. Commands that
        a call waits for go on."""
        self._background_refusal = reason
        # After a start that is under way: what it starts has to be known here.
        async with self._starting:
            await _end_all(each.process for each in self._background.values())

    async def aclose(self) -> None:
        """End all of them, with their children."""
        self._is_closed = True
        await _end_all(self._started)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ShellProblem("the command was not run: the system is shutting down")

    def _refuse_if_full(self, session_id: str) -> None:
        running = [each for each in self._background.values() if each.process.is_running]
        mine = [each for each in running if each.session_id == session_id]
        if len(mine) >= _MAX_PER_SESSION:
            raise ShellProblem(
                f"{len(mine)} processes of this session run in the background, and no more may; "
                f"end one with the tool `process`: {', '.join(each.id for each in mine)}"
            )
        if len(running) >= _MAX_RUNNING:
            raise ShellProblem(
                f"{len(running)} processes run in the background, and no more may; try later"
            )

    def _forget_oldest(self) -> None:
        ended = [each for each in self._background.values() if not each.process.is_running]
        for each in ended[: max(0, len(ended) - _MAX_ENDED)]:
            del self._background[each.id]


async def _end_all(processes: Iterable[ShellProcess]) -> None:
    async with anyio.create_task_group() as tasks:
        for process in processes:
            tasks.start_soon(partial(process.end, grace_seconds=_CLOSE_GRACE_SECONDS))


_REASON: Final = "it runs a command on this machine"
_MAX_CONCURRENT_COMMANDS: Final = 16
_MAX_WAIT_SECONDS: Final = 60
# More than that no system takes, and getting it there would keep everybody waiting.
_MAX_ARGUMENT_CHARACTERS: Final = 1_000_000
# Whoever aborts waits for it; whoever set a time limit has waited already.
_ABORT_GRACE_SECONDS: Final = 0.1
_GRACE_SECONDS: Final = 1.0
# Progress is told less and less often, since all of it is kept in the record of the run.
_UPDATE_SECONDS: Final = 0.5
_UPDATE_SHARE: Final = 0.05
_MAX_UPDATE_CHARACTERS: Final = 4_000


def shell_tools(config: ExecToolConfig, root: Path, processes: Processes) -> list[Tool]:
    """The tools; none where they are switched off."""
    if not config.is_enabled:
        return []
    shell = _Shell(config, Workspace(root), processes)
    return [
        Tool(
            name="exec",
            description=(
                "Run a shell command in the workspace and wait for it; output holds both streams. "
                "`background` starts one that goes on, for the tool `process`."
            ),
            parameters=_exec_input(config),
            execute=shell.exec,
            needs_approval=_REASON if config.ask == "always" else "",
        ),
        Tool(
            name="process",
            description=(
                "List, read or kill the processes that exec started in the background; "
                "`next` says where to read on."
            ),
            parameters=_PROCESS_INPUT,
            execute=shell.process,
        ),
    ]


class _Shell:
    """What the tools do."""

    def __init__(self, config: ExecToolConfig, workspace: Workspace, processes: Processes) -> None:
        self._config = config
        self._workspace = workspace
        self._processes = processes
        self._limiter = anyio.CapacityLimiter(_MAX_CONCURRENT_COMMANDS)

    async def exec(self, given: dict[str, Any], call: ToolCall) -> JsonObject:
        """Run a command."""
        command = await self._command(given)
        if given.get("background", False):
            session_id = call.context.session_id
            kept = await self._processes.start_in_background(command, session_id=session_id)
            return {"processId": kept.id, "status": "running"}
        async with self._limiter:
            return await self._run(command, given.get("timeoutSeconds"), call)

    async def process(self, given: dict[str, Any], call: ToolCall) -> JsonObject:
        """Look after the processes of the session."""
        session_id = call.context.session_id
        if given["action"] == "list":
            mine = self._processes.of_session(session_id)
            return {"processes": [_summary(each) for each in mine]}
        kept = self._processes.get(given.get("processId", ""), session_id=session_id)
        if given["action"] == "kill":
            await kept.process.end(grace_seconds=_GRACE_SECONDS)
            return _summary(kept)
        after = given.get("after", 0)
        if after >= kept.process.output.total_bytes:
            with anyio.move_on_after(given.get("waitSeconds", 0)):
                await kept.process.wait_for_news()
        part = kept.process.output.part(after, is_final=not kept.process.is_running)
        return {**_summary(kept), "output": part.text, "next": part.next_position}

    async def _command(self, given: dict[str, Any]) -> Command:
        if ("command" in given) == ("argv" in given):
            raise ShellProblem("exec takes either command or argv, one of the two")
        if sum(map(len, given.get("argv", ()))) > _MAX_ARGUMENT_CHARACTERS:
            raise ShellProblem(
                f"argv has more than {_MAX_ARGUMENT_CHARACTERS} characters; write them to a file"
            )
        folder = await call_in_thread(lambda: self._folder(given.get("folder", ".")))
        return Command(
            argv=given["argv"] if "argv" in given else ["/bin/sh", "-c", given["command"]],
            folder=folder,
            environment=command_environment(os.environ),
            most_output_bytes=self._config.max_output_bytes,
        )

    def _folder(self, path: str) -> str:
        with self._workspace.locate(path) as place:
            os.close(place.open_folder())
            return os.path.normpath(os.path.join(self._workspace.root, place.shown))

    async def _run(
        self, command: Command, timeout_seconds: float | None, call: ToolCall
    ) -> JsonObject:
        most_seconds = self._config.timeout_seconds
        seconds = most_seconds if timeout_seconds is None else min(timeout_seconds, most_seconds)
        process = await self._processes.start(command)
        try:
            with anyio.move_on_after(seconds):
                await _follow(process, call)
            was_stopped = process.is_running
            if was_stopped:
                await process.end(grace_seconds=_GRACE_SECONDS)
        finally:
            await process.end(grace_seconds=_ABORT_GRACE_SECONDS)
        result = _result(process)
        if was_stopped:
            result["timedOut"] = True
            result["note"] = f"it was ended after {seconds:g} s"
        elif process.left_children:
            result["note"] = "whatever it left running was ended; use background for what goes on"
        return result


async def _follow(process: ShellProcess, call: ToolCall) -> None:
    """Tell what is written until the process ends."""
    told_bytes = 0
    while process.is_running:
        elapsed = time.monotonic() - process.started
        with anyio.move_on_after(max(_UPDATE_SECONDS, elapsed * _UPDATE_SHARE)):
            await process.exited.wait()
        part = process.output.part(told_bytes, is_final=False)
        if process.is_running and part.next_position > told_bytes:
            told_bytes = part.next_position
            call.update({"output": part.text[-_MAX_UPDATE_CHARACTERS:], "outputBytes": told_bytes})


def _result(process: ShellProcess) -> JsonObject:
    part = process.output.part(is_final=True)
    return {
        **_end_of(process),
        "output": part.text,
        "outputBytes": process.output.total_bytes,
        **({"leftOutBytes": part.left_out_bytes} if part.left_out_bytes else {}),
    }


def _summary(kept: BackgroundProcess) -> JsonObject:
    return {
        "processId": kept.id,
        "command": kept.process.command_line,
        "status": "running" if kept.process.is_running else "ended",
        **({} if kept.process.is_running else _end_of(kept.process)),
        "outputBytes": kept.process.output.total_bytes,
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
                "description": "For /bin/sh; its input is empty",
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
                "description": "Where, in the workspace; default its root",
            },
            "timeoutSeconds": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": config.timeout_seconds,
                "description": f"When to end it; default {config.timeout_seconds:g}",
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
            "description": "For output: `next` of the call before, for what came since",
        },
        "waitSeconds": {
            "type": "number",
            "minimum": 0,
            "maximum": _MAX_WAIT_SECONDS,
            "description": "For output: how long to wait for more, or for the end; default 0",
        },
    },
    "required": ["action"],
    "additionalProperties": False,
}
