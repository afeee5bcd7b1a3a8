"""One turn of a session in Codex: its thread, its prompt, its native turn and its records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from nacre.agent import build_heartbeat_guidance, estimate_tokens
from nacre.codex_harness.approvals import ApprovalBridge
from nacre.codex_harness.history_projection import project_for_thread, take_request
from nacre.codex_harness.mirror import MIN_ID_VERSION, PROMPT, make_client_id, mirror_interrupted
from nacre.codex_harness.model_route import find_effort, find_tier, make_sandbox_policy
from nacre.codex_harness.native_turn import NativeTurn
from nacre.codex_harness.observations import Observations
from nacre.codex_harness.projector import Projector
from nacre.codex_harness.prompt import (
    PERSONALITY,
    SeenPrompt,
    build_collaboration_mode,
    build_developer_instructions,
    build_prompt_config,
    build_turn_prompt,
    collect_facts,
    read_prompt_sources,
)
from nacre.codex_harness.threads import ThreadOpener
from nacre.codex_harness.user_input import UserInputBridge
from nacre.errors import AppServerClosedError, ProviderError
from nacre.messages import ImagePart
from nacre.telemetry import note_codex_turn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nacre.agent import TurnContext
    from nacre.codex_harness.client import AppServerClient, Version
    from nacre.codex_harness.dynamic_tools import DynamicTools
    from nacre.codex_harness.hook_relay import RelayRegistration
    from nacre.codex_harness.model_route import ModelRoute
    from nacre.codex_harness.native_hooks import NativeHooks
    from nacre.codex_harness.permissions import NativeApprovals, NativePermissions
    from nacre.codex_harness.prompt import PromptSources, TurnPrompt
    from nacre.codex_harness.threads import OpenThread, ThreadBinding, ThreadBindings
    from nacre.config import RelayEvent
    from nacre.json_types import JsonObject, JsonValue
    from nacre.telemetry import Span
    from nacre.tools import ToolPolicy

SURFACE: Final = "codex"
"""The surface of turns that run in Codex; Nacre adds none of its own control tools."""
_DAMAGES: Final = {
    "overflow": "the thread was too large for the model",
    "image": "the thread has an image that the model cannot read",
}
_HAS_ACTED: Final = (
    "The turn had begun to answer or to act: check what it has done before you send the message "
    "again."
)
_MAX_TITLE_CHARACTERS: Final = 100
# Turns that are searched for the harness of a message.
_MAX_TURNS: Final = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadGuard:
    """The permissions of a thread, and the policy, approvals and hooks of its native calls."""

    permissions: NativePermissions
    policy: ToolPolicy
    approvals: NativeApprovals
    hooks: NativeHooks
    registration: RelayRegistration
    service_tier: str | None

    def thread_params(self, version: Version) -> JsonObject:
        """The members of the request that loads the thread, for this version of Codex."""
        return {
            "approvalPolicy": self.permissions.approval_policy,
            "approvalsReviewer": self.permissions.reviewer,
            "sandbox": self.permissions.sandbox,
            "serviceTier": find_tier(self.service_tier, version),
        }

    def thread_config(self) -> JsonObject:
        """The members of the thread's `config` that install its native hooks."""
        return self.registration.thread_config(self._events, must_answer=self.hooks.has_checks)

    @property
    def needs_hooks(self) -> bool:
        """Whether a native hook may have to block a call or an answer."""
        is_checking = self.hooks.has_checks and "pre_tool_use" in self._events
        return is_checking or "before_agent_finalize" in self._events

    @property
    def _events(self) -> Sequence[RelayEvent]:
        return self.hooks.choose_events(self.registration.config, self.permissions.approval_policy)


class CodexTurn:
    """The sequence of one turn, which writes its output and its events."""

    def __init__(
        self,
        turn: TurnContext,
        *,
        route: ModelRoute,
        client: AppServerClient,
        tools: DynamicTools,
        guard: ThreadGuard,
        bindings: ThreadBindings,
        binding: ThreadBinding | None,
        span: Span,
    ) -> None:
        """`binding` is the thread that the session has, `span` that of the turn in Codex."""
        self._span = span
        self._turn = turn
        self._route = route
        self._client = client
        self._tools = tools
        self._guard = guard
        self._binding = binding
        self._message, _ = take_request(turn.request.user_message, turn.transcript.history)
        self._projector = Projector(turn, native=guard.hooks, model=route.model)
        self._observations = Observations(turn, model=turn.models[0])
        self._native_turn = self._make_native_turn()
        self._opener = ThreadOpener(
            client,
            bindings=bindings,
            session_id=turn.run.session_id,
            title=self._message.text.strip().partition("\n")[0][:_MAX_TITLE_CHARACTERS],
            tools=tools,
            engine=None
            if turn.engine is None
            else turn.engine.binding(binding.engine if binding else None),
            provider_key=route.provider_key,
            window_tokens=route.context_tokens,
            new_tokens=estimate_tokens([self._message]),
            stop=turn.stop,
            note_request=self._record_request,
        )

    def _make_native_turn(self) -> NativeTurn:
        turn, guard = self._turn, self._guard
        return NativeTurn(
            turn,
            client=self._client,
            projector=self._projector,
            tools=self._tools,
            native=guard.hooks,
            approvals=ApprovalBridge(
                turn,
                policy=guard.policy,
                approvals=guard.approvals,
                permissions=guard.permissions,
                is_active=self._is_active,
                checks=guard.hooks,
            ),
            user_input=UserInputBridge(turn, is_active=self._is_active),
            observations=self._observations,
            note_request=self._record_request,
        )

    async def run(self) -> str:
        """Returns why the turn has to be repeated on a new thread; empty if it has an answer.

        Raises AbortedError, and CodexError or ProviderError if there is no answer.
        """
        try:
            return await self._run_steps()
        finally:
            self._end_spans()
            self._projector.keep_partial_answer()
            await self._call_output_hooks()

    async def _run_steps(self) -> str:
        """Open the thread, run the native turn, and note what the thread has seen."""
        turn = self._turn
        sources = await read_prompt_sources(
            turn, deferred_names=self._tools.deferred_names, directory=self._cwd
        )
        thread = await self._open_thread(sources)
        prompt = await self._build_prompt(thread, sources)
        await self._call_input_hooks(sources)
        note_phase(turn, "turn_starting", threadId=thread.live.id)
        names: list[JsonValue] = [*self._tools.available_names]
        turn.run.events.add(
            "model.started", {"model": turn.models[0], "surface": SURFACE, "toolNames": names}
        )
        try:
            await self._native_turn.run(thread.live, self._make_turn_params(thread, prompt))
        except ProviderError as error:
            return await self._leave_damaged_thread(thread, error)
        except AppServerClosedError as error:
            if self._projector.activity:
                raise AppServerClosedError(f"{error}\n{_HAS_ACTED}") from error
            raise
        if not thread.is_transient:
            self._note_success(thread, prompt)
        return ""

    def _note_success(self, thread: OpenThread, prompt: TurnPrompt) -> None:
        """Store with the turn that the thread has seen everything up to its end."""
        binding = replace(
            thread.binding,
            model=self._route.model,
            cwd=str(self._cwd),
            last_run_id=self._turn.run.id,
            used_tokens=self._projector.used_tokens,
            window_tokens=self._projector.window_tokens,
            # What Codex has compacted, the model may not know any more.
            seen_prompt={} if self._observations.has_compacted else prompt.seen.to_json(),
        )
        self._turn.output.thread = binding.to_record(self._turn.run.session_id)

    async def _leave_damaged_thread(self, thread: OpenThread, error: ProviderError) -> str:
        """Forget a thread that every later turn would fail on.

        The turn is repeated on a new one if that can help and it has neither said nor done
        anything. Raises the error if it is not repeated.
        """
        damage = self._projector.damage
        if not damage:
            raise error
        await self._opener.forget(thread)
        has_image = any(isinstance(part, ImagePart) for part in self._message.parts)
        if thread.is_new or damage == "refused" or (damage == "image" and has_image):
            raise error
        activity = self._projector.activity or ("steered" if self._native_turn.has_steered else "")
        if not activity:
            return _DAMAGES[damage]
        note_phase(self._turn, "turn_not_repeated", reason=activity, threadId=thread.live.id)
        raise ProviderError(
            f"{error.message} (The turn was not repeated, because it had begun to answer or to "
            "act. Check what it has done, then send the message again: it gets a new thread.)",
            status=error.status,
            is_context_overflow=error.is_context_overflow,
        ) from error

    async def _open_thread(self, sources: PromptSources) -> OpenThread:
        is_stored = self._turn.run.is_stored
        thread = await self._opener.open(
            self._make_thread_params(sources),
            self._binding,
            relay_generation=self._guard.registration.generation,
            is_transient=self._opener.is_transient(self._binding, is_stored=is_stored)
            or _is_isolated(self._turn),
        )
        note_phase(self._turn, "thread_ready", threadId=thread.live.id, isNew=thread.is_new)
        if thread.replaced:
            note: JsonObject = {"phase": "thread_replaced", "note": thread.replaced}
            self._turn.run.events.add("codex_app_server.lifecycle", note)
            self._turn.trajectory.record("codex_app_server.lifecycle", data=note)
            self._turn.output.data["note"] = thread.replaced
        if thread.resumed:
            store = self._turn.service.store
            await mirror_interrupted(store, self._turn.run.session_id, thread.resumed)
        return thread

    def _end_spans(self) -> None:
        projector = self._projector
        projector.end_calls()
        note_codex_turn(
            self._span,
            thread_id=projector.thread_id,
            turn_id=projector.turn_id,
            usage=projector.usage,
        )

    async def _call_input_hooks(self, sources: PromptSources) -> None:
        turn = self._turn
        if not turn.service.hooks.has_hooks("llm_input"):
            return
        _, history = take_request(turn.request.user_message, turn.transcript.history)
        await self._observations.llm_input(
            instructions=build_developer_instructions(sources),
            messages=[*history, self._message],
            tool_names=self._tools.available_names,
        )

    async def _call_output_hooks(self) -> None:
        projector = self._projector
        await self._observations.llm_output(
            texts=projector.answers,
            called_names=projector.called_names,
            usage=projector.usage,
            finish_reason=self._turn.output.finish_reason if projector.answers else "error",
        )

    @property
    def _cwd(self) -> Path:
        server = self._turn.service.config.codex.app_server
        return server.default_workspace or self._turn.agent.workspace

    def _is_active(self, thread_id: str, turn_id: str) -> bool:
        return self._native_turn.is_active(thread_id, turn_id)

    def _record_request(self, method: str, params: JsonObject) -> None:
        """Record a request without the settings of the provider: its address may be a secret."""
        config = params.get("config")
        if isinstance(config, dict):
            public = {k: it for k, it in config.items() if not k.startswith("model_providers.")}
            params = {**params, "config": public}
        data: JsonObject = {"method": method, "params": params}
        self._turn.trajectory.record("codex_app_server.request", data=data)

    def _make_thread_params(self, sources: PromptSources) -> JsonObject:
        codex = self._turn.service.config.codex
        config: JsonObject = {
            "features.default_mode_request_user_input": True,
            **_make_code_mode_config(codex.app_server.is_code_mode_only),
            **build_prompt_config(is_light=self._turn.request.light_context),
            **self._route.thread_config(),
            # Last: nothing else may change the hooks.
            **self._guard.thread_config(),
        }
        return {
            "model": self._route.model,
            "modelProvider": self._route.provider_key or None,
            "cwd": str(self._cwd),
            **self._guard.thread_params(self._client.version),
            "personality": PERSONALITY,
            "developerInstructions": build_developer_instructions(sources),
            "config": config,
        }

    async def _build_prompt(self, thread: OpenThread, sources: PromptSources) -> TurnPrompt:
        turn = self._turn
        history = await self._project_history(thread)
        return build_turn_prompt(
            sources,
            self._message,
            await collect_facts(turn),
            seen=None if thread.is_new else SeenPrompt.from_json(thread.binding.seen_prompt),
            history=history,
            has_additional_context=self._client.version >= MIN_ID_VERSION,
        )

    async def _project_history(self, thread: OpenThread) -> str:
        """What the thread does not know of the session."""
        turn, begun = self._turn, self._turn.transcript.begun
        last_run_id = thread.binding.last_run_id
        if not thread.is_new and (begun is None or begun.last_run_id in ("", last_run_id)):
            return ""
        await turn.transcript.ensure_loaded()
        codex_runs: frozenset[str] = frozenset()
        if not thread.is_new:
            records = await turn.service.store.turns(turn.run.session_id, limit=_MAX_TURNS)
            codex_runs = frozenset(it.run_id for it in records if it.surface == SURFACE)
        return project_for_thread(
            turn,
            is_new=thread.is_new,
            last_run_id=last_run_id,
            is_codex_run=codex_runs.__contains__,
        )

    def _make_turn_params(self, thread: OpenThread, prompt: TurnPrompt) -> JsonObject:
        turn, permissions = self._turn, self._guard.permissions
        effort = find_effort(turn.agent)
        params: JsonObject = {
            "threadId": thread.live.id,
            "input": [*prompt.input],
            "cwd": str(self._cwd),
            "approvalPolicy": permissions.approval_policy,
            "approvalsReviewer": permissions.reviewer,
            "sandboxPolicy": make_sandbox_policy(permissions.sandbox, root=str(self._cwd)),
            "model": self._route.model,
            "serviceTier": find_tier(self._guard.service_tier, self._client.version),
            "effort": effort,
            "personality": PERSONALITY,
            "collaborationMode": build_collaboration_mode(
                self._route.model, effort=effort, instructions=_heartbeat_instructions(turn)
            ),
        }
        if prompt.additional_context:
            params["additionalContext"] = prompt.additional_context
            params["clientUserMessageId"] = make_client_id(turn.run.id, PROMPT)
        return params


def _heartbeat_instructions(turn: TurnContext) -> str | None:
    """None restores the mode of ordinary turns."""
    heartbeat = turn.request.heartbeat
    return None if heartbeat is None else build_heartbeat_guidance(heartbeat, inlines_file=False)


def _is_isolated(turn: TurnContext) -> bool:
    heartbeat = turn.request.heartbeat
    return heartbeat is not None and heartbeat.config.is_isolated


def _make_code_mode_config(is_code_mode_only: bool) -> JsonObject:
    if not is_code_mode_only:
        return {}
    return {"features.code_mode": True, "features.code_mode_only": True}


def note_phase(turn: TurnContext, phase: str, **data: JsonValue) -> None:
    """Add an event about the phase of a turn."""
    turn.run.events.add("codex_app_server.lifecycle", {"phase": phase, **data})
