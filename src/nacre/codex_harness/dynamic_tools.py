"""The calls that Codex makes of Nacre's tools, in one turn."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent import call_directly, list_server_tools
from nacre.codex_harness.tool_specs import (
    ToolSpec,
    UnusableSchema,
    assign_codex_names,
    format_specs,
    has_deferred,
    is_compatible,
    make_fingerprint,
    make_spec,
    read_fingerprint,
    select_tools,
)
from nacre.json_types import encode_json
from nacre.large_json import run_in_json_thread
from nacre.run_context import AbortController
from nacre.telemetry import current_trace, execute_tool_span
from nacre.tools import (
    CallResult,
    CallSite,
    InvalidCall,
    effective_tools,
    format_error,
    parse_call,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence

    from anyio.abc import TaskGroup

    from nacre.agent import TurnContext
    from nacre.codex_harness.tool_specs import ToolsLoading
    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools import Tool, ToolExecutor

logger = logging.getLogger(__name__)

_MAX_RESULT_CHARACTERS: Final = 16_000
# The schemas of more tools are prepared in a thread.
_MAX_QUICK_TOOLS: Final = 100
_CALL_SECONDS: Final = 600.0
# A tool that takes `timeoutMs` ends its work itself; it gets some more time to say so.
_SECONDS_TO_END: Final = 30.0
# How long an aborted call may take to end before Codex gets an answer without it.
_ABORT_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicToolOptions:
    """How the tools of a turn are shown to Codex."""

    version: Sequence[int]
    """Of the app-server."""
    loading: ToolsLoading = "searchable"
    exclude: tuple[str, ...] = ()
    """The names of tools to leave out."""
    has_tool_search: bool = True
    """Whether Codex gives the model its `tool_search`; without it, all tools are direct."""
    has_native_tools: bool = True
    """Whether Codex has its shell and file tools in this turn; then Nacre's are left out."""
    direct_names: frozenset[str] = frozenset()
    """The tools that the model sees at once, such as `message` where only it reaches the user."""
    later_tools: Sequence[Tool] = ()
    """Registered with the thread, but only available in other turns of the session."""
    thread_fingerprint: str = ""
    """The fingerprint of the tools that the thread of the session was started with."""
    call_seconds: float = _CALL_SECONDS


@asynccontextmanager
async def open_dynamic_tools(
    turn: TurnContext, executor: ToolExecutor, options: DynamicToolOptions, *, tasks: TaskGroup
) -> AsyncGenerator[DynamicTools]:
    """The tools of a turn, with those of its MCP servers.

    Calls run in `tasks`. Exiting the block aborts them and waits for a short time: a tool that does
    not end keeps only its own task.
    """
    tools: Sequence[Tool] = ()
    missing_servers: frozenset[str] = frozenset()
    later: Sequence[Tool] = ()
    if not turn.request.tools_disabled:
        listed = await list_server_tools(turn, executor.policy)
        tools, missing_servers = [*turn.tools, *listed.tools], listed.missing_servers
        ids = {tool.id for tool in tools}
        later = [tool for tool in options.later_tools if tool.id not in ids]
    selected = select_tools(
        effective_tools([*tools, *later], executor.policy),
        exclude=options.exclude,
        has_native_tools=options.has_native_tools,
    )
    dynamic = DynamicTools(
        turn,
        executor,
        options,
        specs=await _make_specs(selected, options, turn),
        later_ids=frozenset(tool.id for tool in later),
        missing_servers=missing_servers,
        tasks=tasks,
    )
    unsubscribe = turn.stop.on_abort(lambda: dynamic.abort(turn.stop.reason))
    try:
        yield dynamic
    finally:
        unsubscribe()
        with anyio.CancelScope(shield=True):
            await dynamic.aclose("the turn has ended")


async def _make_specs(
    tools: Sequence[Tool], options: DynamicToolOptions, turn: TurnContext
) -> dict[str, ToolSpec]:
    is_searchable = options.loading == "searchable" and _is_searched(options)
    unusable: list[tuple[Tool, str]] = []

    def work() -> dict[str, ToolSpec]:
        specs: dict[str, ToolSpec] = {}
        for name, tool in assign_codex_names(tools).items():
            is_deferred = is_searchable and tool.name not in options.direct_names
            try:
                specs[name] = make_spec(name, tool, is_deferred=is_deferred)
            except UnusableSchema as problem:
                unusable.append((tool, f"its input schema cannot be used: {problem}"))
        return specs

    specs = work() if len(tools) <= _MAX_QUICK_TOOLS else await run_in_json_thread(work)
    for tool, problem in unusable:
        _note_unusable(turn, tool, problem)
    return specs


def _is_searched(options: DynamicToolOptions) -> bool:
    """Whether the model finds tools by searching. A thread keeps how its tools are loaded, so that
    another model continues it."""
    marks = read_fingerprint(options.thread_fingerprint)
    return has_deferred(marks) if marks else options.has_tool_search


def _note_unusable(turn: TurnContext, tool: Tool, problem: str) -> None:
    logger.warning("Codex does not get the tool %s: %s", tool.id, problem)
    turn.run.events.add("tool.unavailable", {"toolId": tool.id, "problem": problem})


class DynamicTools:
    """The tools of one turn, made by `open_dynamic_tools`. Calls may run concurrently."""

    def __init__(
        self,
        turn: TurnContext,
        executor: ToolExecutor,
        options: DynamicToolOptions,
        *,
        specs: dict[str, ToolSpec],
        later_ids: frozenset[str],
        missing_servers: frozenset[str],
        tasks: TaskGroup,
    ) -> None:
        self._turn = turn
        self._executor = executor
        self._options = options
        self._registered = specs
        self._later_ids = later_ids
        self._missing_servers = missing_servers
        self._tasks = tasks
        self._of_thread = read_fingerprint(options.thread_fingerprint)
        self._executions: dict[bytes, _Execution] = {}
        self._abort_reason = ""
        # Calls run in tasks of the harness, whose current span is another one.
        self._trace = current_trace()

    # For the thread.

    def specs(self) -> list[JsonObject]:
        """The `dynamicTools` of a new thread."""
        return format_specs(self._registered.values(), version=self._options.version)

    @property
    def fingerprint(self) -> str:
        """Store it with a thread that is started with `specs`, and pass it to later turns."""
        return make_fingerprint(self._registered.values())

    @property
    def can_resume(self) -> bool:
        """Whether the thread of the session has all tools of this turn, as they are now.

        A thread without a fingerprint can be resumed. If it is resumed, keep its fingerprint: the
        thread may have more tools than this turn.
        """
        return not self._options.thread_fingerprint or is_compatible(
            self._of_thread, self._registered.values(), missing_servers=self._missing_servers
        )

    @property
    def is_without_tools(self) -> bool:
        """Whether this turn has no tools at all, though the thread of the session has some."""
        return bool(self._of_thread) and not self._registered

    @property
    def registered_names(self) -> list[str]:
        """All names that the thread may call, also those of tools that other turns have."""
        return sorted({*self._registered, *self._of_thread})

    @property
    def deferred_names(self) -> list[str]:
        """The available tools that the model finds with `tool_search`."""
        return sorted(spec.name for spec in self._available() if spec.is_deferred)

    @property
    def available_names(self) -> list[str]:
        return sorted(spec.name for spec in self._available())

    def drop_refused(self, message: str) -> bool:
        """Leave out the tool that the app-server refuses a thread for; False if it names none."""
        for name, spec in self._registered.items():
            if f" for {name}: " in message or message.endswith(f": {name}"):
                del self._registered[name]
                _note_unusable(self._turn, spec.tool, f"Codex refuses it: {message}")
                return True
        return False

    # For calls.

    async def call(self, params: JsonObject) -> JsonObject:
        """Answer `item/tool/call`. The same call twice is executed once."""
        names = ("threadId", "callId", "tool", "arguments")
        key = encode_json([params.get(name) for name in names])
        execution = self._executions.get(key)
        if execution is None:
            execution = self._executions[key] = _Execution()
            self._tasks.start_soon(self._execute, execution, params)
        await execution.finished.wait()
        return _format_answer(execution.result)

    def abort(self, reason: str) -> None:
        """Abort all running calls, and refuse new ones."""
        self._abort_reason = self._abort_reason or reason
        for execution in self._executions.values():
            execution.abort.abort(reason)

    async def aclose(self, reason: str) -> None:
        """Abort all running calls, and wait for a short time until they have ended."""
        self.abort(reason)
        with anyio.move_on_after(_ABORT_SECONDS):
            for execution in self._executions.values():
                await execution.finished.wait()

    def _available(self) -> list[ToolSpec]:
        return [spec for spec in self._registered.values() if spec.tool.id not in self._later_ids]

    async def _execute(self, execution: _Execution, params: JsonObject) -> None:
        if self._abort_reason:
            execution.abort.abort(self._abort_reason)
        name, call_id = str(params.get("tool")), str(params.get("callId"))
        spec = self._registered.get(name)
        result = format_error(f"the call of {name} was cut off")
        try:
            known = name if spec else ""
            with execute_tool_span(known, call_id=call_id, parent=self._trace) as current:
                result = await self._run(execution, name, call_id, params.get("arguments"))
                if result.is_error:
                    current.fail("tool_error" if spec else "unknown_tool")
        except Exception:
            # A bug in Nacre, since failures of tools and hooks are results. The turn continues.
            logger.exception("a call of %s failed inside of Nacre", name)
            result = format_error(f"the call of {name} failed inside of Nacre; see its log")
        finally:
            execution.finish(result)

    async def _run(
        self, execution: _Execution, name: str, call_id: str, arguments: JsonValue
    ) -> CallResult:
        problem = self._describe_unavailable(name)
        if problem:
            return format_error(problem)
        try:
            given = parse_call(name, arguments, known=self.available_names)
        except InvalidCall as error:
            return format_error(error.message)
        tool = self._registered[name].tool
        clock = _Clock(_seconds_for(given, self._options.call_seconds))
        site = CallSite(
            call_id=call_id,
            abort=execution.abort.signal,
            pause_for_approval=clock.pause,
            pause_for_client=clock.pause,
        )
        self._turn.waits.begin(call_id)
        results: list[CallResult] = []
        try:
            async with anyio.create_task_group() as timer:
                timer.start_soon(execution.watch, clock, name)
                results.append(await call_directly(self._executor, tool, given, site=site))
                timer.cancel_scope.cancel()
            return results[0]
        finally:
            self._turn.waits.end(call_id)

    def _describe_unavailable(self, name: str) -> str:
        """Why a tool of the thread cannot be called in this turn; empty for any other name."""
        spec = self._registered.get(name)
        if spec is None and name not in self._of_thread:
            return ""
        if spec is not None and spec.tool.id not in self._later_ids:
            return ""
        owner = self._of_thread.get(name, "").partition(" mcp:")[2]
        if owner in self._missing_servers:
            return f"the tool {name} is not available in this turn: its server does not answer"
        return f"the tool {name} is not available in this turn; continue without it"


@dataclass(kw_only=True, slots=True)
class _Execution:
    """One call: its abort signal, and its result once it has one."""

    abort: AbortController = field(default_factory=AbortController)
    finished: anyio.Event = field(default_factory=anyio.Event)
    result: CallResult = field(default_factory=lambda: format_error("the call has not ended"))

    def finish(self, result: CallResult) -> None:
        """Only the first result counts."""
        if not self.finished.is_set():
            self.result = result
            self.finished.set()

    async def watch(self, clock: _Clock, name: str) -> None:
        """Abort the call when its time is up, and answer for it if it does not end then."""
        with self.abort.signal.cancelling():
            await clock.wait()
        self.abort.abort(f"{name} took longer than {clock.seconds:g} seconds")
        await anyio.sleep(_ABORT_SECONDS)
        self.finish(format_error(f"{self.abort.signal.reason}; it was aborted and has not ended"))


class _Clock:
    """The time limit of a call. It stands still while the call waits for a person or a client."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._pauses = 0
        self._scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        self._left = seconds

    async def wait(self) -> None:
        """Return when the time is up."""
        with self._scope:
            await anyio.sleep_forever()

    @contextmanager
    def pause(self) -> Generator[None]:
        self._pauses += 1
        if self._pauses == 1:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = float("inf")
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._scope.deadline = anyio.current_time() + self._left


def _seconds_for(given: JsonObject, max_seconds: float) -> float:
    timeout_ms = given.get("timeoutMs")
    if not isinstance(timeout_ms, (int, float)) or timeout_ms <= 0:
        return max_seconds
    return min(timeout_ms / 1000 + _SECONDS_TO_END, max_seconds)


def _format_answer(result: CallResult) -> JsonObject:
    """The answer to `item/tool/call`."""
    items: list[JsonValue] = [{"type": "inputText", "text": _truncate(result.content)}]
    items.extend({"type": "inputImage", "imageUrl": image.url} for image in result.images)
    return {"contentItems": items, "success": not result.is_error}


def _truncate(text: str) -> str:
    if len(text) <= _MAX_RESULT_CHARACTERS:
        return text
    notice = f"\n[cut: the whole result has {len(text)} characters; ask for less at a time]"
    return text[: _MAX_RESULT_CHARACTERS - len(notice)] + notice
