"""A context engine selects the messages of a turn; if it fails, the turn does not."""

from collections.abc import Callable, Mapping

import anyio
import anyio.from_thread
import pytest

from nacre.agent import context_engine
from nacre.errors import HookError
from nacre.hooks import (
    AddToPrompt,
    AssembledContext,
    AssembleRequest,
    BeforePromptBuild,
    ContextEngine,
    ContextRegistry,
    FinishedTurn,
    Guidance,
)
from nacre.messages import SystemMessage, UserMessage, user_message
from tests.agent.agent_setup import events_of, kinds
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import say

pytestmark = pytest.mark.anyio


class Recent(ContextEngine):
    """Keeps the last message, adds a note, and remembers what it was given."""

    id = "recent"

    def __init__(self) -> None:
        self.requests: list[AssembleRequest] = []
        self.ingested: list[FinishedTurn] = []
        self.ended: list[FinishedTurn] = []

    async def assemble(self, request: AssembleRequest) -> AssembledContext:
        self.requests.append(request)
        return AssembledContext(
            messages=[SystemMessage(text="recalled"), *request.messages[-1:]],
            instructions="Use what you recall.",
        )

    async def ingest(self, turn: FinishedTurn) -> None:
        self.ingested.append(turn)

    async def after_turn(self, turn: FinishedTurn) -> None:
        self.ended.append(turn)


SLOT: Mapping[str, object] = {"plugins": {"slots": {"contextEngine": "recent"}}}


def registry(engine: ContextEngine) -> ContextRegistry:
    contexts = ContextRegistry()
    contexts.add_engine(engine, owner="memory")
    return contexts


async def test_the_engine_runs_around_each_turn(open_service: OpenAgent) -> None:
    engine = Recent()
    async with open_service(document=SLOT, contexts=registry(engine)) as setup:
        setup.model.will(say("one"), say("two"))
        run = await setup.turn("first")
        await setup.turn("second", session_id=run.session_id)
    second = setup.model.requests[1]
    assert [type(message) for message in second.messages] == [
        SystemMessage,
        type(say("")),
        UserMessage,
    ]
    assert "Use what you recall." in second.instructions
    asked = engine.requests[1]
    assert [getattr(message, "text", "") for message in asked.messages] == ["first", "one"]
    assert asked.prompt == user_message("second")
    assert (asked.model, asked.token_budget) == ("fake/model", 100_000)
    for turns in (engine.ingested, engine.ended):
        assert [(turn.status, len(turn.messages)) for turn in turns] == [("completed", 2)] * 2


@pytest.mark.parametrize("slot", ["legacy", "none", ""])
async def test_no_engine_runs_unless_the_slot_names_it(open_service: OpenAgent, slot: str) -> None:
    engine = Recent()
    document = {"plugins": {"slots": {"contextEngine": slot}}}
    async with open_service(document=document, contexts=registry(engine)) as setup:
        setup.model.will(say("one"))
        run = await setup.turn()
    assert engine.requests == engine.ended == []
    assert "context.failed" not in kinds(run)


async def test_a_missing_engine_is_named_and_the_turn_goes_on(open_service: OpenAgent) -> None:
    async with open_service(document=SLOT) as setup:
        setup.model.will(say("one"))
        run = await setup.turn()
    assert run.state == "completed"
    (event,) = events_of(run, "context.failed")
    assert event.data["engine"] == "recent"
    assert "plugins.slots.contextEngine" in str(event.data["problem"])


class Failing(Recent):
    """Fails in two of its steps."""

    def __init__(self, fail: Callable[[], object]) -> None:
        super().__init__()
        self._fail = fail

    async def assemble(self, request: AssembleRequest) -> AssembledContext:
        return self._fail()  # pyright: ignore[reportReturnType]

    async def ingest(self, turn: FinishedTurn) -> None:
        raise SystemExit("ingest")

    def after_turn(self, turn: FinishedTurn) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.ended.append(turn)


def raise_exit() -> object:
    raise SystemExit("assemble")


@pytest.mark.parametrize(
    ("fail", "problem"),
    [
        (raise_exit, "SystemExit: assemble"),
        (lambda: None, "return an AssembledContext"),
        (lambda: AssembledContext(messages=["text"]), "a str among"),  # pyright: ignore[reportArgumentType]
        (lambda: AssembledContext(messages=(), instructions="x" * 200_000), "200000 characters"),
        (lambda: AssembledContext(messages=(), projection="other"), "'other'"),  # pyright: ignore[reportArgumentType]
    ],
)
async def test_an_engine_that_fails_leaves_the_plain_history(
    open_service: OpenAgent, fail: Callable[[], object], problem: str
) -> None:
    engine = Failing(fail)
    async with open_service(document=SLOT, contexts=registry(engine)) as setup:
        setup.model.will(say("one"), say("two"))
        run = await setup.turn("first")
        run = await setup.turn("second", session_id=run.session_id)
    assert run.state == "completed"
    assert len(setup.model.requests[1].messages) == 3
    (event,) = events_of(run, "context.failed")
    assert problem in str(event.data["problem"])
    # A synchronous method works as well, and one step does not stop the next.
    assert len(engine.ended) == 2


class Hanging(Recent):
    """Never has its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.is_called = anyio.Event()

    async def assemble(self, request: AssembleRequest) -> AssembledContext:
        self.is_called.set()
        await anyio.sleep_forever()
        raise AssertionError


async def test_an_engine_that_hangs_is_left_behind(
    open_service: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_engine, "_ASSEMBLE_SECONDS", 0.01)
    async with open_service(document=SLOT, contexts=registry(Hanging())) as setup:
        setup.model.will(say("one"))
        run = await setup.turn()
    assert run.state == "completed"
    assert "longer than" in str(events_of(run, "context.failed")[0].data["problem"])


async def test_a_turn_is_aborted_while_its_engine_assembles(open_service: OpenAgent) -> None:
    engine = Hanging()
    async with open_service(document=SLOT, contexts=registry(engine)) as setup:
        run = await setup.start()
        with anyio.fail_after(30):
            await engine.is_called.wait()
            await run.abort("enough")
    assert run.state == "aborted"
    assert setup.model.requests == []
    assert [turn.status for turn in engine.ended] == ["aborted"]


async def test_a_failed_turn_is_finished_too(open_service: OpenAgent) -> None:
    engine = Recent()
    async with open_service(document=SLOT, contexts=registry(engine)) as setup:
        setup.model.will(RuntimeError("broken"))
        await setup.turn()
    assert [turn.status for turn in engine.ended] == ["failed"]
    assert "broken" in engine.ended[0].error


class Whole(Recent):
    """Keeps all messages."""

    async def assemble(self, request: AssembleRequest) -> AssembledContext:
        self.requests.append(request)
        return AssembledContext(messages=request.messages)


async def test_the_engine_assembles_again_after_a_compaction(open_service: OpenAgent) -> None:
    engine = Whole()
    async with open_service(
        document=SLOT,
        contexts=registry(engine),
        context_tokens=1_000,
        agent={"compaction": {"keepTurns": 0}},
    ) as setup:
        setup.model.will(say("one", tokens=0), say("the summary"), say("two"))
        run = await setup.turn("x" * 9_000)
        await setup.turn("next", session_id=run.session_id)
    assert [len(request.messages) for request in engine.requests] == [0, 2, 1]
    assert "the summary" in str(setup.model.requests[-1].messages[0])


async def test_guidance_reaches_only_its_surface(open_service: OpenAgent) -> None:
    contexts = ContextRegistry()
    contexts.add_guidance(Guidance(text="for all prompts"), owner="a")
    contexts.add_guidance(Guidance(text="for Codex", surfaces=("codex_app_server",)), owner="a")
    contexts.add_guidance(
        Guidance(text="for both", surfaces=("codex_app_server", "openclaw_main")), owner="b"
    )
    async with open_service(contexts=contexts) as setup:
        setup.model.will(say("one"))
        await setup.turn()
    assert "for all prompts\nfor both" in setup.model.requests[0].instructions
    assert "for Codex" not in setup.model.requests[0].instructions
    assert contexts.guidance["codex_app_server"] == ("for Codex", "for both")
    contexts.remove_owner("a")
    assert contexts.guidance["codex_app_server"] == ("for both",)


def test_an_engine_needs_an_id_of_its_own() -> None:
    contexts = registry(Recent())
    with pytest.raises(HookError, match="already one of memory"):
        contexts.add_engine(Recent())
    for name in ("", "Legacy", "legacy", "none", "a b"):
        engine = Recent()
        engine.id = name
        with pytest.raises(HookError, match="the id of a context engine"):
            contexts.add_engine(engine)
    with pytest.raises(HookError, match="subclass"):
        contexts.add_engine(object())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "guidance",
    [Guidance(text=" "), Guidance(text="x", surfaces=("web",))],  # pyright: ignore[reportArgumentType]
)
def test_invalid_guidance_is_refused(guidance: Guidance) -> None:
    with pytest.raises(HookError):
        ContextRegistry().add_guidance(guidance)


def test_the_binding_changes_with_the_engine_its_policy_and_its_epoch() -> None:
    engine = Recent()
    contexts = registry(engine)
    turn = context_engine.TurnEngine(contexts, "recent")
    # An engine that failed does not cost the thread.
    assert turn.binding("old") == "old"
    turn.assembled = AssembledContext(messages=())
    found = [turn.binding("old")]
    engine.policy_fingerprint = "2"
    found.append(turn.binding("old"))
    for epoch in ("1", "2"):
        turn.assembled = AssembledContext(messages=(), projection="thread_bootstrap", epoch=epoch)
        found.append(turn.binding("old"))
    assert len({str(binding) for binding in found}) == 4


async def test_a_blocking_engine_does_not_block_the_event_loop(open_service: OpenAgent) -> None:
    class Blocking(Recent):
        def assemble(self, request: AssembleRequest) -> AssembledContext:  # pyright: ignore[reportIncompatibleMethodOverride]
            anyio.from_thread.run_sync(self.requests.append, request)
            return AssembledContext(messages=())

    engine = Blocking()
    async with open_service(document=SLOT, contexts=registry(engine)) as setup:
        setup.model.will(say("one"))
        run = await setup.turn()
    assert run.state == "completed"
    assert len(engine.requests) == 1


async def test_hooks_add_to_the_prompt_but_not_to_the_session(open_service: OpenAgent) -> None:
    def before_prompt_build(event: BeforePromptBuild) -> AddToPrompt:
        assert (event.prompt, event.message_count) == ("hello", 0)
        return AddToPrompt(
            prepend_context="before",
            append_context="after",
            prepend_system_context="RULE ONE",
            append_system_context="RULE TWO",
        )

    async with open_service(hooks=[before_prompt_build]) as setup:
        setup.model.will(say("one"))
        run = await setup.turn("hello")
        stored = await setup.store.messages(run.session_id)
    request = setup.model.requests[0]
    assert request.instructions.startswith("RULE ONE\n\n")
    assert request.instructions.endswith("\n\nRULE TWO")
    assert [getattr(message, "text", "") for message in request.messages] == [
        "before\nhello\nafter"
    ]
    assert stored[0].message == user_message("hello")
