"""What plugins add to the context of turns: context engines, and guidance for prompts."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal, get_args

from nacre.errors import HookError
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message, UserMessage
    from nacre.run_context import AbortSignal, RunContext

Projection = Literal["per_turn", "thread_bootstrap"]
"""How a harness with threads of its own gets the messages of an engine."""
PromptSurface = Literal["openclaw_main", "codex_app_server"]
"""The prompt of the built-in harness, or the developer instructions of Codex."""
PROMPT_SURFACES: Final[tuple[PromptSurface, ...]] = get_args(PromptSurface)

NO_ENGINES: Final = frozenset({"", "legacy", "none"})
"""Names for no engine in `plugins.slots.contextEngine`."""
_ENGINE_ID = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_MAX_GUIDANCE_CHARACTERS: Final = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class AssembleRequest:
    """A turn for which an engine selects the messages."""

    context: RunContext
    model: str
    messages: tuple[Message, ...]
    """The messages of the session before this turn, with a summary first if it was compacted."""
    prompt: UserMessage | None
    """The new message; not a part of `messages`."""
    token_budget: int | None
    """The context window of the model; None if it is not known."""
    abort: AbortSignal
    """Aborted when the turn is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AssembledContext:
    """The messages that the model gets instead of the session's, before the new message."""

    messages: Sequence[Message]
    instructions: str = ""
    """Added to the instructions of this turn."""
    projection: Projection = "per_turn"
    """`thread_bootstrap` gives a new Codex thread these messages with the shapes of tool calls."""
    epoch: str = ""
    """With `thread_bootstrap`: a new value starts a new Codex thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedTurn:
    """A turn that has ended, with the messages that it added to its session."""

    context: RunContext
    status: str
    """`completed`, `failed` or `aborted`."""
    messages: tuple[Message, ...]
    error: str = ""
    usage: JsonObject = field(default_factory=dict[str, "JsonValue"])


class ContextEngine:
    """Selects the messages that the model gets, and follows the turns of all sessions.

    Override what you need; methods may be async. If one fails or takes too long, the turn continues
    with the plain history. An engine does not replace the compaction of Codex.
    """

    id: str = ""
    """The name in `plugins.slots.contextEngine`."""
    policy_fingerprint: str = ""
    """Changes with the settings of the engine; a new value starts a new Codex thread."""

    async def assemble(self, request: AssembleRequest) -> AssembledContext:
        """The messages for the model; by default those of the session."""
        return AssembledContext(messages=request.messages)

    async def ingest(self, turn: FinishedTurn) -> None:
        """Called when the messages of a turn are stored in the session."""

    async def after_turn(self, turn: FinishedTurn) -> None:
        """Called after each turn, also if it failed, for maintenance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Guidance:
    """One hint for the model, such as how to use a command of a plugin."""

    text: str
    surfaces: tuple[PromptSurface, ...] = ()
    """Empty for a hint without a scope, which the built-in harness shows and Codex does not."""


def check_engine(engine: ContextEngine) -> None:
    """Raises HookError if the object cannot be a context engine."""
    if not isinstance(engine, ContextEngine):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise HookError("a context engine is an object of a subclass of ContextEngine")
    if not _ENGINE_ID.fullmatch(engine.id) or engine.id in NO_ENGINES:
        raise HookError(
            f"the id of a context engine is {engine.id!r}; use a lower-case letter, then letters, "
            "digits, `-` and `_`, at most 64 characters, but not `legacy` and `none`"
        )


def check_guidance(guidance: Guidance) -> None:
    """Raises HookError if the text or a surface is invalid."""
    if not 0 < len(guidance.text.strip()) <= _MAX_GUIDANCE_CHARACTERS:
        raise HookError(
            f"a guidance has {len(guidance.text)} characters; allowed are 1 to "
            f"{_MAX_GUIDANCE_CHARACTERS}"
        )
    for surface in guidance.surfaces:
        if surface not in PROMPT_SURFACES:
            known = ", ".join(PROMPT_SURFACES)
            raise HookError(f"there is no prompt surface {surface!r}; known: {known}")


class ContextRegistry:
    """The context engines and the guidance of all plugins."""

    def __init__(self) -> None:
        self._engines: dict[str, tuple[str, ContextEngine]] = {}
        self._guidance: list[tuple[str, Guidance]] = []
        self.guidance: dict[PromptSurface, tuple[str, ...]] = dict.fromkeys(PROMPT_SURFACES, ())
        """The texts for each surface. Those without a scope are only for the built-in harness."""

    def add_engine(self, engine: ContextEngine, *, owner: str = "") -> None:
        """Raises HookError if the id is invalid or in use."""
        check_engine(engine)
        if engine.id in self._engines:
            other = self._engines[engine.id][0] or "the application"
            raise HookError(f"the context engine {engine.id} is already one of {other}")
        self._engines[engine.id] = (owner, engine)

    def add_guidance(self, guidance: Guidance, *, owner: str = "") -> None:
        """Raises HookError if it is invalid."""
        check_guidance(guidance)
        self._set_guidance([*self._guidance, (owner, guidance)])

    def remove_owner(self, owner: str) -> None:
        """Remove everything of a plugin."""
        self._engines = {key: it for key, it in self._engines.items() if it[0] != owner}
        self._set_guidance([it for it in self._guidance if it[0] != owner])

    def engine(self, engine_id: str) -> ContextEngine | None:
        entry = self._engines.get(engine_id)
        return None if entry is None else entry[1]

    def _set_guidance(self, found: list[tuple[str, Guidance]]) -> None:
        self._guidance = found
        self.guidance = {
            surface: tuple(
                guidance.text.strip()
                for _, guidance in found
                if surface in (guidance.surfaces or ("openclaw_main",))
            )
            for surface in PROMPT_SURFACES
        }
