"""The built-in harness: opens a tool surface, calls the model, runs its calls until it answers."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent.heartbeat import build_heartbeat_guidance
from nacre.agent.model_step import Compactor, ModelStep, partial_answer
from nacre.agent.prompt_additions import (
    NO_FILES,
    collect_additions,
    format_files,
    read_workspace_files,
)
from nacre.agent.replies import REPLY_RULE
from nacre.agent.transcript import repair_history
from nacre.agent.turn_context import (
    call_directly,
    list_server_tools,
    make_executor,
    measure_direct_tools,
)
from nacre.code_mode import CodeModeRun
from nacre.config import RunConfig
from nacre.errors import NacreError, ProviderError, StorageError
from nacre.hooks import BeforeAgentFinalize, ToolResultPersist
from nacre.messages import (
    AssistantMessage,
    TextPart,
    ToolMessage,
    ToolSpec,
    UserMessage,
    user_message,
)
from nacre.run_context import AbortController
from nacre.telemetry import execute_tool_span
from nacre.tool_search import start_run
from nacre.tools import (
    CallResult,
    CallSite,
    InvalidCall,
    assign_tool_names,
    effective_tools,
    format_error,
    parse_call,
    verify_payload,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence, Set

    from nacre.agent.prompt_additions import WorkspaceFiles
    from nacre.agent.turn_context import TurnContext
    from nacre.agent.turn_state import StoredTurn
    from nacre.code_mode import Runtime
    from nacre.config import AgentConfig, SystemConfig
    from nacre.hooks import AddToPrompt
    from nacre.json_types import JsonObject
    from nacre.messages import Message, SentPayload, ToolCallPart
    from nacre.tools import CallWaits, SurfaceKind, Tool, ToolExecutor, ToolSurface

logger = logging.getLogger(__name__)


_MAX_REVISIONS: Final = 3
_CLEAN_UP_SECONDS: Final = 5.0
_DEFAULT_INSTRUCTIONS: Final = (
    "You are {name}, an agent that works for a person. Do what is asked, with the tools that you "
    "have where they help; say plainly what you did and what you could not do."
)
_MAX_PARALLEL_CALLS: Final = 1_000
_OUTCOME_UNKNOWN: Final = (
    "the process ended during the call of {name}, so it is not known whether it took effect; it "
    "was not repeated. Check before you call it again"
)


class BuiltInHarness:
    """The harness for models of a provider, with the tools of a surface."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def label(self, _model: str, _agent: AgentConfig, _config: SystemConfig, /) -> str:
        return "Nacre"

    def plan_surface(self, turn: TurnContext, /) -> SurfaceKind:
        """The configured surface; a run without tools shows none."""
        return planned_surface(turn.agent, tools_disabled=turn.request.tools_disabled)

    def needs_history(self, _turn: TurnContext, /) -> bool:
        return True

    async def run(self, turn: TurnContext, /) -> None:
        """Open a surface, run the loop, and abort everything that still runs in the surface."""
        is_light = turn.request.light_context
        additions = await collect_additions(turn)
        instructions = build_instructions(
            turn.agent,
            added=_turn_instructions(turn),
            has_tools=not turn.request.tools_disabled,
            files=NO_FILES if is_light else await read_workspace_files(turn.agent),
            hints=turn.service.context_registry.guidance["openclaw_main"],
            engine="" if turn.engine is None else turn.engine.instructions,
        )
        around = (additions.prepend_system_context, instructions, additions.append_system_context)
        instructions = "\n\n".join(filter(None, around))
        surface = await open_surface(turn, self._runtime)
        turn.output.surface = surface.kind
        if turn.durable is not None and isinstance(surface, CodeModeRun):
            turn.durable.open(turn, surface)
        loop = TurnLoop(turn, surface, instructions=instructions, additions=additions)
        reason = "the turn has ended; `wait` works within a turn"
        try:
            await loop.run()
        except BaseException as error:
            said = str(error) if isinstance(error, NacreError) else ""
            reason = turn.stop.reason or said or "the run was cut off"
            raise
        finally:
            turn.queue.stop_steering()
            loop.keep_partial_answer()
            turn.output.data.update(loop.telemetry())
            with anyio.move_on_after(_CLEAN_UP_SECONDS, shield=True):
                await surface.abort(reason)
                turn.output.data.update(loop.telemetry())
                if surface.kind != "direct":
                    direct = await measure_direct_tools(turn) * loop.request_count
                    turn.output.data["directToolBytes"] = direct

    async def compact(self, turn: TurnContext, /) -> str:
        """Summarize the older turns now."""
        return await Compactor(turn).compact_now()

    async def reset(self, session_id: str, /) -> None:
        """Everything about a session is in the store."""


def _turn_instructions(turn: TurnContext) -> str:
    """The rule for replies or the guidance of a heartbeat, and the instructions of the caller."""
    if turn.request.heartbeat is not None:
        rule = build_heartbeat_guidance(turn.request.heartbeat, inlines_file=True)
    else:
        rule = REPLY_RULE if turn.reply_mode == "message_tool" else ""
    return "\n\n".join(filter(None, (rule, turn.request.instructions.strip())))


class TurnLoop:
    """The loop of one turn over one surface."""

    def __init__(
        self,
        turn: TurnContext,
        surface: ToolSurface,
        *,
        instructions: str,
        additions: AddToPrompt,
    ) -> None:
        self._turn = turn
        self._additions = additions
        self._output = turn.output
        self._surface = surface
        self._step = ModelStep(turn, surface, instructions=instructions)
        self._calls = ToolCalls(turn, surface)
        self._compactor = Compactor(turn)

    async def run(self) -> None:
        """Run until the model has answered; raises if there is no answer."""
        if not await self._continue_calls():
            await self._compactor.compact_if_long()
        revisions = 0
        while True:
            answer = await self._take_step()
            if answer.tool_calls:
                await self._calls.run(answer.tool_calls)
            elif not self._take_steered():
                if not await self._is_rejected(answer, revisions):
                    break
                revisions += 1

    async def _continue_calls(self) -> bool:
        """Continue the calls that another process has begun; False if there are none."""
        continued = self._turn.continued
        answer = None if continued is None else continued.answer
        if continued is None or answer is None:
            return False
        await self._calls.run(answer.tool_calls, continued)
        return True

    def keep_partial_answer(self) -> None:
        """Keep the text of an answer that was cut off; somebody may have read it."""
        text = self._step.partial_text
        if text.strip():
            self._output.text, self._output.finish_reason = text, "error"
            self._output.messages.append(partial_answer(text, self._output.model))

    @property
    def request_count(self) -> int:
        """How many requests the models got."""
        return self._step.request_count

    def telemetry(self) -> JsonObject:
        """Counts of model requests and of the surface, for the record of the turn."""
        return {
            "requests": self._step.request_count,
            "toolBytes": self._step.sent.tool_bytes,
            "payloadBytes": self._step.sent.payload_bytes,
            "telemetry": self._surface.telemetry().to_json(),
        }

    async def _take_step(self) -> AssistantMessage:
        self._turn.stop.raise_if_aborted()
        self._take_steered()
        self._turn.budget.take_step()
        try:
            answer = await self._call_model()
        except ProviderError as error:
            if not error.is_context_overflow or not await self._compactor.compact_after_overflow():
                raise
            answer = await self._call_model()
        self._turn.budget.add(answer.usage)
        self._output.messages.append(answer)
        self._output.text, self._output.finish_reason = answer.text, answer.finish_reason
        self._output.model = answer.model or self._output.model
        return answer

    async def _call_model(self) -> AssistantMessage:
        new = _with_additions(self._output.messages, self._additions)
        messages = repair_history([*self._turn.transcript.history, *new])
        answers: list[AssistantMessage] = []
        with self._turn.stop.cancelling():
            answers.append(await self._step.ask(messages))
        self._turn.stop.raise_if_aborted()
        return answers[0]

    def _take_steered(self) -> bool:
        """Add new messages for the running turn; returns whether there are any."""
        steered = self._turn.queue.take_steered()
        self._output.messages.extend(steered)
        return bool(steered)

    async def _is_rejected(self, answer: AssistantMessage, revisions: int) -> bool:
        """Whether a hook rejects the answer; then its reason is the next message for the model."""
        if answer.finish_reason == "error":
            self._output.error = f"{self._output.model} ended its answer with an error"
            return False
        hooks = self._turn.service.hooks
        if revisions >= _MAX_REVISIONS or not hooks.has_hooks("before_agent_finalize"):
            return False
        reason = await hooks.before_agent_finalize(
            BeforeAgentFinalize(context=self._turn.identity, text=answer.text, pass_count=revisions)
        )
        if reason is None:
            return False
        self._output.messages.append(user_message(reason))
        return True


def _with_additions(messages: Sequence[Message], additions: AddToPrompt) -> Sequence[Message]:
    """Put the texts of hooks around the message of the user, for the model only."""
    before, after = additions.prepend_context, additions.append_context
    if not messages or not isinstance(messages[0], UserMessage) or not (before or after):
        return messages
    parts = (
        *([TextPart(text=before)] if before else []),
        *messages[0].parts,
        *([TextPart(text=after)] if after else []),
    )
    return [UserMessage(parts=parts), *messages[1:]]


def build_instructions(
    agent: AgentConfig,
    *,
    added: str = "",
    has_tools: bool = True,
    files: WorkspaceFiles = NO_FILES,
    hints: Sequence[str] = (),
    engine: str = "",
) -> str:
    """Build the instructions of the model; they contain no time.

    `hints` are of plugins, `engine` is of the context engine, `added` is from the caller.
    """
    parts = [
        agent.instructions.strip() or _DEFAULT_INSTRUCTIONS.format(name=agent.name or agent.id)
    ]
    if has_tools:
        parts.append(f"The workspace is {agent.workspace}.")
    parts += ["\n".join(hints), format_files(files, has_tools=has_tools), engine, added.strip()]
    return "\n\n".join(filter(None, parts))


class ToolCalls:
    """Runs the tool calls of a turn."""

    def __init__(self, turn: TurnContext, surface: ToolSurface) -> None:
        self._turn = turn
        self._surface = surface
        is_parallel = turn.agent.settings.is_parallel
        self._max_parallel = _MAX_PARALLEL_CALLS if is_parallel else 1

    async def run(self, calls: Sequence[ToolCallPart], continued: StoredTurn | None = None) -> None:
        """Run the calls of one answer, and add their results to the output of the turn.

        Every call has a result afterwards; if this is cancelled, the results so far are added.
        Another process may have begun the calls.
        """
        limiter = anyio.CapacityLimiter(self._max_parallel)
        results: dict[str, ToolMessage] = {} if continued is None else dict(continued.results)
        begun: frozenset[str] = frozenset() if continued is None else continued.begun
        durable = self._turn.durable
        if durable is not None:
            durable.begin_calls(results, begun)
        open_calls = [call for call in calls if call.call_id not in results]
        for call in open_calls[: self._max_parallel]:
            # Register all before the first starts, or the run would look paused in between.
            self._begin(call)
        with ExitStack() as stack:
            stack.callback(self._end, calls, results)
            async with anyio.create_task_group() as tasks:
                abort_surface = partial(tasks.start_soon, self._abort_surface)
                stack.callback(self._turn.stop.on_abort(abort_surface))
                for call in open_calls:
                    perform = self._call_surface
                    if call.call_id in begun:
                        perform = self._continue_call
                    tasks.start_soon(self._run_call, call, limiter, results, perform)
        if durable is not None:
            await durable.end_calls()

    def _begin(self, call: ToolCallPart) -> None:
        def is_held(open_ids: Set[str]) -> bool:
            return self._surface.is_held(call, open_ids=open_ids)

        self._turn.waits.begin(call.call_id, is_held)

    def _end(self, calls: Sequence[ToolCallPart], results: dict[str, ToolMessage]) -> None:
        for call in calls:
            self._turn.waits.end(call.call_id)
        finished = [call.call_id for call in calls if call.call_id in results]
        self._turn.output.messages.extend(results[call_id] for call_id in finished)

    async def _abort_surface(self) -> None:
        await self._surface.abort(self._turn.stop.reason)

    async def _run_call(
        self,
        call: ToolCallPart,
        limiter: anyio.CapacityLimiter,
        results: dict[str, ToolMessage],
        perform: Callable[[ToolCallPart], Awaitable[CallResult]],
    ) -> None:
        async with limiter:
            self._begin(call)
            result = await self._trace_call(call, perform)
            content = await self._apply_persist_hooks(call, result)
        results[call.call_id] = ToolMessage(
            call_id=call.call_id,
            name=call.name,
            content=content,
            is_error=result.is_error,
            images=result.images,
        )
        if self._turn.durable is not None:
            self._turn.durable.note_result()
        self._turn.waits.end(call.call_id)

    async def _trace_call(
        self, call: ToolCallPart, perform: Callable[[ToolCallPart], Awaitable[CallResult]]
    ) -> CallResult:
        is_known = any(spec.name == call.name for spec in self._surface.specs)
        name = call.name if is_known else ""
        with execute_tool_span(name, call_id=call.call_id) as current:
            result = await perform(call)
            if result.is_error:
                current.fail("tool_error" if is_known else "unknown_tool")
            return result

    async def _call_surface(self, call: ToolCallPart) -> CallResult:
        try:
            return await self._surface.execute_call(call, self._turn.waits)
        except Exception:
            # A bug in Nacre, since failures of tools and hooks are results. The turn continues.
            logger.exception("a call of %s failed inside of Nacre", call.name)
            return format_error(f"the call of {call.name} failed inside of Nacre; see its log")

    async def _continue_call(self, call: ToolCallPart) -> CallResult:
        """Continue a call that another process has begun. Without a stored program, it is not
        repeated, because it may have had effects."""
        result: CallResult | None = None
        try:
            if isinstance(self._surface, CodeModeRun):
                result = await self._surface.continue_call(call, self._turn.waits)
        except StorageError as error:
            return format_error(f"the call of {call.name} cannot be continued: {error}")
        return result or format_error(_OUTCOME_UNKNOWN.format(name=call.name))

    async def _apply_persist_hooks(self, call: ToolCallPart, result: CallResult) -> str:
        """The text that is stored in the session and that the model reads."""
        hooks = self._turn.service.hooks
        if not hooks.has_hooks("tool_result_persist"):
            return result.content
        return await hooks.tool_result_persist(
            ToolResultPersist(
                context=self._turn.identity,
                tool_name=call.name,
                call_id=call.call_id,
                content=result.content,
                is_error=result.is_error,
            )
        )


def planned_surface(agent: AgentConfig, *, tools_disabled: bool = False) -> SurfaceKind:
    """The surface that the configuration asks for."""
    if tools_disabled:
        return "direct"
    if agent.tools.code_mode.enabled:
        return "code_mode"
    return "tool_search" if agent.tools.tool_search.enabled else "direct"


async def open_surface(turn: TurnContext, runtime: Runtime) -> ToolSurface:
    """Open the surface of a turn.

    Raises CatalogError for tools that cannot be in one catalog, and RuntimeUnavailableError if code
    mode has no sandbox.
    """
    settings = turn.agent.tools
    executor = make_executor(turn, runtime)
    if turn.request.tools_disabled:
        return DirectSurface((), executor)
    if settings.code_mode.enabled:
        # Namespaces read their own part of the document.
        config = RunConfig(document=turn.service.config.document, tools=settings)
        durable = turn.durable
        run = runtime.run_with(
            executor,
            config,
            tools=turn.tools,
            servers=turn.servers,
            describe_turn=None if durable is None else durable.describe,
            is_stored=durable is not None,
        )
        if not run.is_code_mode:
            # A run without tools has nothing to put behind `exec`.
            return DirectSurface(turn.tools, executor)
        # Without a sandbox, the run fails before the model is asked.
        await runtime.sandbox.ensure_available()
        return run
    if settings.tool_search.enabled:
        return await start_run(
            executor,
            settings.tool_search,
            tools=turn.tools,
            servers=turn.servers,
            sandbox=runtime.sandbox,
        )
    listed = await list_server_tools(turn, executor.policy)
    return DirectSurface([*turn.tools, *listed.tools], executor)


class DirectSurface:
    """Shows the model all tools that policy permits, each with a unique name."""

    def __init__(self, tools: Sequence[Tool], executor: ToolExecutor) -> None:
        self.kind: SurfaceKind = "direct"
        self._tools = assign_tool_names(effective_tools(tools, executor.policy))
        self._executor = executor
        self._abort = AbortController()
        self._call_count = 0
        self.specs: Sequence[ToolSpec] = [
            ToolSpec(name=name, description=tool.description, parameters=tool.parameters)
            for name, tool in self._tools.items()
        ]

    def verify_payload(self, sent: SentPayload) -> None:
        verify_payload(sent, expected=tuple(self._tools))

    async def execute_call(self, call: ToolCallPart, waits: CallWaits) -> CallResult:
        try:
            given = parse_call(call.name, call.arguments, known=tuple(self._tools))
        except InvalidCall as error:
            return format_error(error.message)
        tool = self._tools[call.name]
        self._call_count += 1
        site = CallSite(call_id=call.call_id, abort=self._abort.signal)
        return await call_directly(self._executor, tool, given, site=site)

    def is_held(self, call: ToolCallPart, *, open_ids: Set[str]) -> bool:
        return call.call_id in open_ids

    async def abort(self, reason: str) -> None:
        self._abort.abort(reason)

    def telemetry(self) -> DirectTelemetry:
        return DirectTelemetry(visible_tools=tuple(self._tools), call_count=self._call_count)


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectTelemetry:
    """The counts of a surface that shows all tools."""

    visible_tools: tuple[str, ...]
    call_count: int

    def to_json(self) -> JsonObject:
        return {"visibleTools": list(self.visible_tools), "callCount": self.call_count}
