"""Runs the programs of `tool_search_code` in cells and answers their requests.

The sandbox limits the time of each leg. A program that waits for people has many legs, so there is
also a limit for all legs together.

Untrusted code may have taken over the worker and can send any payload, so every field is checked.

A program ends with its call; nothing resumes it later. If it waits for a person, the call waits,
too. If its time is over, it is killed.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from nacre.cell_replay import CellRecorder, ProgramInfo
from nacre.errors import CellStateError, HostRequestError, ToolError
from nacre.json_types import encode_json
from nacre.sandbox import Limits, SharedData
from nacre.sandbox.results import Completed, Failed, ImageOutput, JsonOutput, TextOutput, Waiting
from nacre.telemetry import span
from nacre.tool_search.catalog import CatalogAccess, RunTools
from nacre.tool_search.results import ToolSearchResult
from nacre.tools import CallSite, InvalidCall

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from nacre.json_types import JsonObject, JsonValue
    from nacre.sandbox import Cell, CellResult, HostRequest, Output, Sandbox
    from nacre.telemetry import Span
    from nacre.trajectory import EventKind


class ProgramClock:
    """Cancels `scope` when the time of a program is over."""

    def __init__(self, seconds: float) -> None:
        self.scope = anyio.CancelScope()
        self._seconds_left = seconds
        self._is_started = False
        self._pause_count = 0

    def start(self) -> None:
        """Start the clock; only the first call has an effect."""
        if not self._is_started:
            self._is_started = True
            self.scope.deadline = anyio.current_time() + self._seconds_left

    @contextmanager
    def pause(self, pause_sandbox: Callable[[], AbstractContextManager[None]]) -> Generator[None]:
        """Stop the clock, and that of the sandbox with `pause_sandbox`."""
        if not self._pause_count:
            self._seconds_left = self.scope.deadline - anyio.current_time()
            self.scope.deadline = math.inf
        self._pause_count += 1
        try:
            with pause_sandbox():
                yield
        finally:
            self._pause_count -= 1
            if not self._pause_count:
                self.scope.deadline = anyio.current_time() + self._seconds_left


_GLOBAL: Final = "openclaw"
_METHOD: Final = "namespace"
_FUNCTIONS: Final = ("search", "describe", "call")
_MAX_SHOWN_ID: Final = 120

_TOOL_FUNCTIONS: JsonObject = {"o": {name: {"f": True} for name in _FUNCTIONS}}
SHARED: Final = SharedData(
    {
        # The guest uses the same names (guest/src).
        "globals": encode_json({"only": [_GLOBAL]}),
        "namespaces": encode_json({_GLOBAL: {"o": {"tools": _TOOL_FUNCTIONS}}}),
    },
    methods=(_METHOD,),
)
"""The same for all programs, since the catalog stays on the host."""


class CodeBridge:
    """Answers the requests of one program."""

    def __init__(
        self, access: CatalogAccess, *, clock: ProgramClock, call_id: str, span: Span
    ) -> None:
        self._access = access
        self._clock = clock
        self._call_id = call_id
        self._span = span
        self._open: dict[int, str] = {}

    async def __call__(self, request: HostRequest) -> JsonValue:
        self._clock.start()
        function, args = _parse_call(request.payload)
        self._open[request.id] = _describe_request(function, args)
        try:
            answer = await self._answer(function, args, request)
        except InvalidCall as error:
            del self._open[request.id]
            message = f"openclaw.tools.{function}: {error.message}"
            raise HostRequestError(message, name="TypeError") from error
        except ToolError as error:
            del self._open[request.id]
            raise HostRequestError(
                error.message,
                name=error.name,
                code=error.code,
                data={**error.details, "toolId": error.tool_id},
            ) from error
        # Cancelled requests stay: they are the unfinished ones when a program is killed.
        del self._open[request.id]
        return answer

    @property
    def unfinished(self) -> list[str]:
        """The requests without an answer: ids of called tools, or names of functions."""
        return list(self._open.values())

    async def _answer(
        self, function: str, args: list[JsonValue], request: HostRequest
    ) -> JsonValue:
        # The start of a server does not count as time of the program.
        pause_clock = partial(self._clock.pause, request.pause_clock)
        match function:
            case "search":
                limit = _read_limit(args[1])
                return await self._access.search(args[0], limit, pause_clock=pause_clock)
            case "describe":
                return await self._access.describe(args[0], pause_clock=pause_clock)
            case "call":
                site = self._site(request)
                return await self._access.call(args[0], args[1], site=site, pause_clock=pause_clock)
            case _:
                raise InvalidCall("openclaw.tools has search, describe and call")

    def _site(self, request: HostRequest) -> CallSite:
        # The clock treats a client like a person.
        asking = partial(self._clock.pause, request.asking_person)
        return CallSite(
            call_id=f"{self._call_id}.{request.id}",
            parent_id=self._call_id,
            abort=request.abort,
            pause_for_approval=asking,
            pause_for_client=asking,
            parent_span=self._span,
        )


def _describe_request(function: str, args: list[JsonValue]) -> str:
    return str(args[0])[:_MAX_SHOWN_ID] if function == "call" else f"openclaw.tools.{function}"


def _parse_call(payload: JsonValue) -> tuple[str, list[JsonValue]]:
    """The name of the function, empty if there is none, and at least two arguments."""
    fields = payload if isinstance(payload, dict) else {}
    path, args = fields.get("path"), fields.get("args")
    given = args if isinstance(args, list) else []
    is_ours = fields.get("namespace") == _GLOBAL and isinstance(path, list) and len(path) == 2
    function = path[1] if is_ours and isinstance(path, list) and path[0] == "tools" else None
    known = function if isinstance(function, str) and function in _FUNCTIONS else ""
    return known, [*given, None, None]


def _read_limit(options: JsonValue) -> JsonValue:
    if options is None:
        return None
    if not isinstance(options, dict):
        raise InvalidCall("the options of a search are an object, such as {limit: 5}")
    return options.get("limit")


_LIMITS: Final = Limits()
_CANCELLED: Final = Failed(error="the caller was cancelled", reason="aborted")


class Programs:
    """Runs the programs of one run, and aborts them with it."""

    def __init__(self, sandbox: Sandbox, tools: RunTools) -> None:
        self._sandbox = sandbox
        self._tools = tools
        self._timeout_ms = tools.config.code_timeout_ms
        self._cells: set[Cell] = set()

    async def run(self, code: str, *, call_id: str) -> ToolSearchResult:
        """Run a program to its end for the call with this id."""
        access = CatalogAccess(self._tools)
        clock = ProgramClock(self._timeout_ms / 1000)
        # Collected here, since a leg that is cut off has no result.
        output: list[Output] = []
        with span("nacre.cell", {"nacre.call.id": call_id}) as current:
            bridge = CodeBridge(access, clock=clock, call_id=call_id, span=current)
            limits = replace(_LIMITS, timeout_ms=self._timeout_ms)
            record = CellRecorder(
                self._tools.executor.recorder,
                ProgramInfo(
                    code=code,
                    language="javascript",
                    limits=limits,
                    shared=SHARED,
                    sandbox=self._sandbox,
                ),
                call_id=call_id,
            )
            cell = self._sandbox.cell(
                code,
                limits=limits,
                shared=SHARED,
                handler=bridge,
                on_output=output.append,
                on_burst=record.add,
                owner=self._tools.executor.context.session_id,
            )
            record.cell_id = cell.cell_id
            self._cells.add(cell)
            self._record("cell.started", call_id, {"runId": cell.cell_id})
            outcome: Completed | Failed = _CANCELLED
            try:
                outcome = await self._run_to_end(cell, clock, call_id=call_id)
            finally:
                self._cells.discard(cell)
                record.write(None if outcome is _CANCELLED else outcome)
                self._record_end(call_id, cell, outcome, output, aborted=bridge.unfinished)
        return ToolSearchResult(
            outcome=replace(outcome, output=tuple(output)),
            unfinished_calls=tuple(bridge.unfinished),
            blocked_calls=tuple(access.blocked),
            unavailable_servers=access.unavailable_servers,
        )

    async def abort(self, reason: str) -> None:
        """Abort all programs and their calls."""
        for cell in list(self._cells):
            await cell.abort(reason)

    async def _run_to_end(
        self, cell: Cell, clock: ProgramClock, *, call_id: str
    ) -> Completed | Failed:
        result: CellResult | None = None
        with clock.scope:
            try:
                result = await cell.run()
                while isinstance(result, Waiting) and self._may_go_on(result):
                    self._record_pause(call_id, result)
                    result = await cell.resume()
            except CellStateError:
                # Aborted between two legs.
                return Failed(error="the run was aborted", reason="aborted")
        if isinstance(result, Failed) and result.reason == "timeout":
            # The message of the sandbox names another setting.
            return replace(self._timeout_failure(), position=result.position)
        if isinstance(result, Failed):
            # The bridge has better names for the calls.
            return replace(result, cancelled=())
        if isinstance(result, Completed):
            return result
        await cell.abort("the program exceeded its time limit")
        if cell.has_returned:
            # Only calls that the program did not await are left. Its value stands.
            return Completed(value=cell.value)
        return self._timeout_failure()

    def _may_go_on(self, waiting: Waiting) -> bool:
        """Whether only people delay the program, and its timers leave time."""
        asked = sum(request.is_with_person for request in waiting.pending)
        # The other requests are queued behind those that wait.
        is_with_people = 0 < asked == min(len(waiting.pending), _LIMITS.max_pending_tool_calls)
        return is_with_people and waiting.usage.worker_ms < self._timeout_ms

    def _timeout_failure(self) -> Failed:
        return Failed(
            error=f"the program exceeded its time limit (codeTimeoutMs is {self._timeout_ms})",
            reason="timeout",
        )

    def _record_pause(self, call_id: str, waiting: Waiting) -> None:
        data: JsonObject = {"runId": waiting.cell_id}
        size = waiting.usage.snapshot_bytes
        suspended: JsonObject = {**data, "reason": waiting.reason, "snapshotBytes": size}
        self._record("cell.suspended", call_id, suspended)
        self._record("cell.resumed", call_id, data)

    def _record_end(
        self,
        call_id: str,
        cell: Cell,
        outcome: Completed | Failed,
        output: list[Output],
        *,
        aborted: list[str],
    ) -> None:
        for item in output:
            match item:
                case TextOutput():
                    self._record("cell.output", call_id, {"runId": cell.cell_id, "text": item.text})
                case JsonOutput():
                    data: JsonObject = {"runId": cell.cell_id, "result": item.value}
                    self._record("cell.output", call_id, data)
                case ImageOutput():
                    data: JsonObject = {"runId": cell.cell_id, "result": item.to_json()}
                    self._record("cell.output", call_id, data)
        ended: JsonObject = {"runId": cell.cell_id}
        match outcome:
            case Completed():
                ended["status"] = "completed"
            case Failed(reason="aborted"):
                ended |= {"status": "aborted", "reason": outcome.error}
            case Failed():
                ended |= {"status": "failed", "reason": outcome.reason}
        if aborted:
            ended["abortedCalls"] = list(aborted)
        self._record("cell.ended", call_id, ended)

    def _record(self, kind: EventKind, call_id: str, data: JsonObject) -> None:
        self._tools.executor.recorder.record(kind, call_id=call_id, data=data)
