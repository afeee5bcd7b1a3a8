"""The loop of a turn: call the model, run its tool calls, repeat until it has answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.agent.compaction import Compactor
from nacre.agent.history import repair_history
from nacre.agent.model_step import ModelStep, partial_answer
from nacre.agent.surfaces import planned_surface
from nacre.agent.tool_calls import ToolCalls
from nacre.agent.transcript import TrajectoryWriter
from nacre.errors import ProviderError
from nacre.hooks import BeforeAgentFinalize
from nacre.messages import AssistantMessage, Message, user_message
from nacre.providers.base import ModelSettings

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from nacre.agent.run import AgentRun, RunEnding
    from nacre.agent.session_queue import SessionQueue
    from nacre.agent.tool_calls import ExternalWaits
    from nacre.agent.tool_surface import SurfaceKind, ToolSurface
    from nacre.agent.transcript import Transcript, TurnEnd
    from nacre.agent.turn_context import RunBudget, ServiceContext, TurnContext
    from nacre.agent.turn_request import TurnRequest
    from nacre.config.agents import AgentConfig
    from nacre.json_types import JsonObject
    from nacre.messages import FinishReason
    from nacre.run_context import AbortSignal, RunContext


_DEFAULT_INSTRUCTIONS: Final = (
    "You are {name}, an agent that works for a person. Do what is asked, with the tools that you "
    "have where they help; say plainly what you did and what you could not do."
)


def build_instructions(agent: AgentConfig, *, added: str = "", has_tools: bool = True) -> str:
    """What the model is told before anything is said; `added` is the caller's. No clock in it."""
    parts = [
        agent.instructions.strip() or _DEFAULT_INSTRUCTIONS.format(name=agent.name or agent.id)
    ]
    if has_tools:
        parts.append(f"The workspace is {agent.workspace}.")
    if added.strip():
        parts.append(added.strip())
    return "\n\n".join(parts)


_MAX_REVISIONS: Final = 3


class TurnLoop:
    """What one turn does. `messages` is at every moment what the turn has added to its session."""

    def __init__(
        self,
        run: AgentRun,
        request: TurnRequest,
        *,
        context: RunContext,
        held: TurnContext,
        parts: ServiceContext,
        session: Transcript,
        outside: ExternalWaits,
        budget: RunBudget,
        stop: AbortSignal,
        lane: SessionQueue,
    ) -> None:
        self._run = run
        self._request = request
        self._agent = agent = held.agent
        self._context = context
        self._held = held
        self._parts = parts
        self._session = session
        self._outside = outside
        self._budget = budget
        self._stop = stop
        self._lane = lane
        self._models = (request.model,) if request.model else (agent.model, *agent.fallback_models)
        self._surface: ToolSurface | None = None
        self._step: ModelStep | None = None
        self._calls: ToolCalls | None = None
        self._sink: TrajectoryWriter | None = None
        self._is_compacted = False
        prompt = request.user_message
        self.messages: list[Message] = [] if prompt is None else [prompt]
        self.ending: RunEnding = "completed"
        self.error = ""
        self.text = ""
        self.finish_reason: FinishReason = "stop"
        self.answering_model = self._models[0]

    @property
    def model(self) -> str:
        return self._models[0]

    @property
    def planned_surface(self) -> SurfaceKind:
        """As configured; a run that has no tools in the end is shown none."""
        return planned_surface(
            self._held.config.document,
            self._agent.id,
            tools_disabled=self._request.tools_disabled,
        )

    @property
    def shown_surface(self) -> SurfaceKind | None:
        """What the model is shown; None where it does not come to that."""
        return None if self._surface is None else self._surface.kind

    async def work(self, tasks: TaskGroup) -> None:
        """The turn; raises what keeps it from an answer. What runs beside it runs in `tasks`."""
        self._sink = await self._open()
        tasks.start_soon(self._sink.write)
        await self._session.load()
        await self._compact_if_long()
        revisions = 0
        while True:
            answer = await self._take_step()
            if answer.tool_calls:
                await self._call(answer)
            elif not self._has_steered():
                if not await self._is_sent_back(answer, revisions):
                    break
                revisions += 1

    async def abort(self, reason: str) -> None:
        """End the calls that run, wherever they are."""
        if self._surface is not None:
            await self._surface.abort(reason)

    async def close(self, reason: str) -> None:
        """Put together what was done, also of an answer or calls that were cut off."""
        if self._step is not None and self._step.partial_text.strip():
            self.text = self._step.partial_text
            self.finish_reason = "error"
            self.messages.append(partial_answer(self.text, self.answering_model))
        if self._calls is not None:
            self.messages.extend(self._calls.take_finished())
        await self.abort(reason)

    def end_trajectory(self, end: TurnEnd) -> list[JsonObject]:
        """The last events, which are kept together with the turn."""
        if self._surface is None or self._sink is None:
            return []
        data: JsonObject = {"status": end.status, "usage": end.usage.to_json(), **end.data}
        self._surface.trajectory.record("turn.ended", data={**data, "error": end.error})
        return self._sink.close()

    def telemetry(self) -> JsonObject:
        """What went over the wire and what was used, for the record of the turn."""
        told: JsonObject = {"model": self.answering_model}
        if self._step is not None:
            told["requests"] = self._step.request_count
            told["toolBytes"] = self._step.sent.tool_bytes
            told["payloadBytes"] = self._step.sent.payload_bytes
        if self._surface is not None:
            told["surface"] = self._surface.kind
            told["telemetry"] = self._surface.telemetry()
        return told

    # Before the first model call.

    async def _open(self) -> TrajectoryWriter:
        request, agent, parts, held = self._request, self._agent, self._parts, self._held
        instructions = build_instructions(
            agent, added=request.instructions, has_tools=not request.tools_disabled
        )
        tools = [
            *held.tools,
            *self._run.client_calls.as_tools(request.client_tools),
        ]
        self._surface = await parts.surfaces.open(
            held.config.document,
            tools=tools,
            servers=held.servers,
            context=self._context,
            outside=self._outside,
            instructions=instructions,
            tools_disabled=request.tools_disabled,
            on_unavailable=self._report_unavailable,
        )
        self._outside.watch(self._surface)
        self._step = ModelStep(
            self._models,
            providers=held.providers,
            surface=self._surface,
            feed=self._run.events,
            hooks=parts.hooks,
            context=self._context,
            instructions=instructions,
            settings=_merge_settings(agent, request.settings),
        )
        self._calls = ToolCalls(
            self._surface,
            outside=self._outside,
            hooks=parts.hooks,
            context=self._context,
            is_parallel=agent.settings.is_parallel,
        )
        return TrajectoryWriter(
            self._surface.trajectory,
            event_log=self._run.events,
            store=parts.store if self._run.is_stored else None,
            on_call=self._outside.look,
        )

    def _report_unavailable(self, server: str, problem: str) -> None:
        self._run.events.add("server.unavailable", {"server": server, "problem": problem})

    # One step.

    async def _take_step(self) -> AssistantMessage:
        self._stop.raise_if_aborted()
        self.messages.extend(self._lane.take_steered())
        self._budget.take_step()
        try:
            answer = await self._call_model()
        except ProviderError as error:
            if not error.is_context_overflow or not await self._compact_after_overflow():
                raise
            answer = await self._call_model()
        self._budget.add(answer.usage)
        self.messages.append(answer)
        self.text, self.finish_reason = answer.text, answer.finish_reason
        self.answering_model = answer.model or self.answering_model
        return answer

    async def _call_model(self) -> AssistantMessage:
        assert self._step is not None
        messages = repair_history([*self._session.history, *self.messages])
        answers: list[AssistantMessage] = []
        with self._stop.cancelling():
            answers.append(await self._step.ask(messages))
        self._stop.raise_if_aborted()
        return answers[0]

    async def _call(self, answer: AssistantMessage) -> None:
        assert self._calls is not None
        await self._calls.make(answer.tool_calls)
        self.messages.extend(self._calls.take_finished())

    def _has_steered(self) -> bool:
        """Whether somebody has said more meanwhile; the model is to read it before it ends."""
        steered = self._lane.take_steered()
        self.messages.extend(steered)
        return bool(steered)

    async def _is_sent_back(self, answer: AssistantMessage, revisions: int) -> bool:
        """Whether a hook wants another pass; its reason is what the model reads next."""
        if answer.finish_reason == "error":
            self.ending = "failed"
            self.error = f"{self.answering_model} ended its answer with an error"
            return False
        hooks = self._parts.hooks
        if revisions >= _MAX_REVISIONS or not hooks.has_hooks("before_agent_finalize"):
            return False
        reason = await hooks.before_agent_finalize(
            BeforeAgentFinalize(context=self._context, text=answer.text, pass_count=revisions)
        )
        if reason is None:
            return False
        self.messages.append(user_message(reason))
        return True

    # Long sessions.

    async def _compact_if_long(self) -> None:
        compaction = self._agent.compaction
        if not compaction.is_enabled or not self._session.stored:
            return
        keep = compaction.keep_turns
        context_tokens = self._held.providers.get(self.model).context_tokens
        tokens = self._session.estimated_tokens(self.messages, keep_turns=keep)
        if tokens > compaction.threshold_share * context_tokens:
            await self._compact(keep_turns=keep, tokens=tokens)

    async def _compact_after_overflow(self) -> bool:
        """Once in a turn, and then all of the session: the turn itself has to fit."""
        if self._is_compacted or not self._agent.compaction.is_enabled:
            return False
        self._is_compacted = True
        tokens = self._session.estimated_tokens(self.messages, keep_turns=0)
        return await self._compact(keep_turns=0, tokens=tokens)

    async def _compact(self, *, keep_turns: int, tokens: int) -> bool:
        compactor = Compactor(
            session=self._session,
            feed=self._run.events,
            hooks=self._parts.hooks,
            context=self._context,
        )
        is_shorter = False
        with self._stop.cancelling():
            is_shorter = await compactor.compact(
                self._held.providers.get(self.model),
                keep_turns=keep_turns,
                estimated_tokens=tokens,
            )
        self._budget.add(compactor.usage)
        self._stop.raise_if_aborted()
        return is_shorter


def _merge_settings(agent: AgentConfig, asked: ModelSettings) -> ModelSettings:
    """What the caller asks for, over what the agent has."""
    own = agent.settings
    return ModelSettings(
        max_tokens=asked.max_tokens if asked.max_tokens is not None else own.max_output_tokens,
        temperature=asked.temperature if asked.temperature is not None else own.temperature,
        top_p=asked.top_p,
        stop=asked.stop,
        is_parallel=asked.is_parallel if asked.is_parallel is not None else own.is_parallel,
    )
