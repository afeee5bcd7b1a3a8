"""The context engine of a turn, which a plugin provides."""

from __future__ import annotations

import asyncio
import inspect
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast, get_args

import anyio

from nacre.errors import ConfigError, HookError
from nacre.foreign_calls import call_in_own_task, call_in_thread, describe_error, passes_through
from nacre.hooks import (
    AssembledContext,
    AssembleRequest,
    Projection,
)
from nacre.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from nacre.telemetry import remove_secrets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nacre.agent.turn_context import TurnContext
    from nacre.hooks import ContextRegistry, FinishedTurn
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_ASSEMBLE_SECONDS: Final = 20.0
_FINISH_SECONDS: Final = 30.0
_MAX_INSTRUCTIONS_CHARACTERS: Final = 100_000
_MAX_PROBLEM_CHARACTERS: Final = 300
_MESSAGES: Final = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)


class TurnEngine:
    """The context engine of one turn. If it fails, the turn continues with the plain history."""

    def __init__(self, registry: ContextRegistry, engine_id: str) -> None:
        self.engine_id = engine_id
        self._registry = registry
        self._engine = registry.engine(self.engine_id)
        self.assembled: AssembledContext | None = None
        """None until the engine has answered, and if it failed."""

    @property
    def instructions(self) -> str:
        """What the engine adds to the instructions of this turn."""
        return "" if self.assembled is None else self.assembled.instructions.strip()

    @property
    def projection(self) -> Projection:
        return "per_turn" if self.assembled is None else self.assembled.projection

    def binding(self, bound: JsonValue = None) -> JsonValue:
        """The identity of the engine in the binding of a thread; another one needs a new thread.

        An engine that failed keeps the thread that is `bound`.
        """
        if self._engine is None or self.assembled is None:
            return bound
        is_bootstrap = self.projection == "thread_bootstrap"
        return {
            "engineId": self.engine_id,
            "policyFingerprint": self._engine.policy_fingerprint,
            "projection": {
                "mode": self.projection,
                "epoch": self.assembled.epoch if is_bootstrap else "",
            },
        }

    async def assemble(self, turn: TurnContext) -> None:
        """Replace the history of the transcript by the messages of the engine."""
        if turn.request.action:
            return
        turn.transcript.assembled = self.assembled = None
        if self._engine is None:
            problem = "it is not registered; check `plugins.slots.contextEngine` and its plugin"
            self._note_failure(turn, "assemble", problem)
            return
        request = AssembleRequest(
            context=turn.identity,
            model=turn.models[0],
            messages=tuple(turn.transcript.history),
            prompt=turn.request.user_message,
            token_budget=_find_budget(turn),
            abort=turn.stop,
        )
        with turn.stop.cancelling():
            try:
                found = await self._call(
                    self._engine.assemble, request, seconds=_ASSEMBLE_SECONDS, read=_check_assembled
                )
                turn.transcript.assembled = list(found.messages)
                self.assembled = found
            except _EngineFailure as failure:
                self._note_failure(turn, "assemble", str(failure))
        turn.stop.raise_if_aborted()

    async def finish(self, turn: TurnContext, finished: FinishedTurn, *, is_stored: bool) -> None:
        """Give the engine the messages of the turn, if they are stored, and time for maintenance.

        Raises nothing but a cancellation.
        """
        engine = self._engine
        if engine is None or turn.request.action:
            return
        if self._registry.engine(self.engine_id) is not engine:
            # Its plugin was unloaded.
            return
        steps = [("ingest", engine.ingest)] if is_stored and finished.messages else []
        for step, method in (*steps, ("after_turn", engine.after_turn)):
            try:
                await self._call(method, finished, seconds=_FINISH_SECONDS, read=lambda _: None)
            except _EngineFailure as failure:
                self._note_failure(turn, step, str(failure))

    async def _call(
        self,
        method: Callable[..., object],
        argument: object,
        *,
        seconds: float,
        read: Callable[[object], _T],
    ) -> _T:
        task = asyncio.current_task()
        try:
            with anyio.move_on_after(seconds) as scope:
                result = read(await _call_method(method, argument))
                # A method that ignores its cancellation is still too late.
                if not scope.cancel_called:
                    return result
        except HookError as error:
            raise _EngineFailure(str(error)) from error
        except BaseException as error:
            if passes_through(error, caller=task):
                raise
            logger.exception("the context engine %s failed", self.engine_id)
            said = remove_secrets(describe_error(error))
            raise _EngineFailure(f"{type(error).__name__}: {said}") from error
        raise _EngineFailure(f"it took longer than {seconds:g} seconds")

    def _note_failure(self, turn: TurnContext, step: str, problem: str) -> None:
        problem = problem[:_MAX_PROBLEM_CHARACTERS]
        logger.warning("the context engine %s failed at %s: %s", self.engine_id, step, problem)
        if not turn.run.has_ended:
            data: JsonObject = {"engine": self.engine_id, "step": step, "problem": problem}
            turn.run.events.add("context.failed", data)


class _EngineFailure(Exception):
    """A method of an engine failed; the message says why."""


async def _call_method(method: Callable[..., object], argument: object) -> object:
    if inspect.iscoroutinefunction(method):
        return await call_in_own_task(
            cast("Callable[[], Awaitable[object]]", partial(method, argument))
        )
    return await call_in_thread(partial(method, argument))


def _check_assembled(returned: object) -> AssembledContext:
    """Raises HookError for anything but a valid AssembledContext."""
    if not isinstance(returned, AssembledContext):
        raise HookError(f"it returned a {type(returned).__name__}; return an AssembledContext")
    messages: Sequence[Message] = returned.messages
    for message in messages:
        if not isinstance(message, _MESSAGES):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise HookError(f"it returned a {type(message).__name__} among its messages")
    if len(returned.instructions) > _MAX_INSTRUCTIONS_CHARACTERS:
        raise HookError(
            f"its instructions have {len(returned.instructions)} characters; "
            f"the limit is {_MAX_INSTRUCTIONS_CHARACTERS}"
        )
    if returned.projection not in get_args(Projection):
        raise HookError(f"its projection is {returned.projection!r}")
    return returned


def _find_budget(turn: TurnContext) -> int | None:
    try:
        return turn.providers.get(turn.models[0]).context_tokens
    except ConfigError:
        return None
