"""Chat commands: what they do, that no model reads them, and that they never wait for a turn."""

import anyio
import pytest

from nacre.agent import OWNER_RIGHTS, AgentRun, ChatCommand, ChatCommands, CommandCall
from nacre.errors import ProviderError, SessionError
from nacre.messages import AssistantMessage, ImagePart, TextPart, UserMessage, user_message
from nacre.tools import ApprovalRequest
from tests.agent.agent_setup import AgentSetup, event_of, events_of, kinds
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import HeldAnswer, call, say
from tests.agent.tools import echo_tool
from tests.contract.requirements import requirement


async def reply(setup: AgentSetup, text: str, **options: object) -> str:
    """The reply to a command in the session `chat`, sent by the owner."""
    given = {"session_key": "chat", "rights": OWNER_RIGHTS, **options}
    run = await setup.turn(text, **given)
    assert run.result is not None
    assert (run.state, run.result.error) == ("completed", ""), run.result
    return run.result.text


async def busy(setup: AgentSetup, held: HeldAnswer, **options: object) -> AgentRun:
    """A run whose model is at its answer."""
    setup.model.will(held)
    run = await setup.start("first", **{"session_key": "chat", **options})
    with anyio.fail_after(30):
        await held.asked.wait()
    return run


def said(setup: AgentSetup, index: int = -1) -> list[str]:
    """The texts that a model was sent."""
    messages = setup.model.requests[index].messages
    return [getattr(message, "text", "") for message in messages]


# What is a command.


async def _nothing(call: CommandCall) -> str:
    return call.arguments


COMMANDS = ChatCommands(
    ChatCommand(name=name, description="Do nothing", handler=_nothing, aliases=aliases)
    for name, aliases in (("status", ()), ("stop", ("abort",)), ("new", ()), ("help", ()))
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/status", ("status", "")),
        ("/Status", ("status", "")),
        ("/abort", ("abort", "")),
        ("/new  tell me\nmore ", ("new", "tell me\nmore")),
    ],
)
def test_a_slash_and_a_known_name_are_a_command(text: str, found: tuple[str, str]) -> None:
    line = COMMANDS.find(user_message(text))
    assert line is not None
    assert line.command is not None
    assert (line.name, line.arguments) == found


@pytest.mark.parametrize(
    "text",
    ["", "/", "//status", "/etc/hosts", "/status/x", " /status", "see /status", "/etc", "/home x"],
)
def test_anything_else_is_a_message(text: str) -> None:
    assert COMMANDS.find(user_message(text)) is None


def test_a_message_with_an_image_is_not_a_command() -> None:
    image = ImagePart(url="https://example.org/a.png")
    assert COMMANDS.find(UserMessage(parts=(TextPart(text="/status"), image))) is None
    assert COMMANDS.find(None) is None


@pytest.mark.parametrize(("text", "meant"), [("/staus", "status"), ("/hlep", "help")])
def test_a_name_that_is_almost_a_command_is_a_typing_error(text: str, meant: str) -> None:
    line = COMMANDS.find(user_message(text))
    assert line is not None
    assert (line.command, line.suggestion) == (None, meant)


def test_a_name_is_taken_once_and_free_again_after_its_removal() -> None:
    commands = ChatCommands()
    command = ChatCommand(name="one", description="", handler=_nothing, aliases=("uno",))
    remove = commands.add(command)
    with pytest.raises(ValueError, match="there is a command /uno already"):
        commands.add(ChatCommand(name="uno", description="", handler=_nothing))
    with pytest.raises(ValueError, match="'Two' cannot be the name"):
        commands.add(ChatCommand(name="Two", description="", handler=_nothing))
    assert commands.all == (command,)
    remove()
    assert commands.all == ()
    commands.add(command)


def test_commands_and_their_replies_are_left_out_of_a_history_that_a_client_keeps() -> None:
    answer = AssistantMessage(parts=(TextPart(text="hello"),))
    shown = AssistantMessage(parts=(TextPart(text="Agent: main"),))
    history = [user_message("hi"), answer, user_message("/status"), shown, user_message("/etc")]
    assert COMMANDS.remove_from(history) == [user_message("hi"), answer, user_message("/etc")]


# Runs of commands.


@requirement("codex:chat-commands")
async def test_a_command_is_answered_without_a_model_and_is_not_context(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        setup.model.will(say("hello"), say("again"))
        first = await setup.turn("hi", session_key="chat")
        run = await setup.turn("/help", session_key="chat")
        assert run.session_id == first.session_id
        assert kinds(run) == ["run.started", "message.completed", "run.completed"]
        (completed,) = events_of(run, "message.completed")
        assert "/status" in str(completed.data["text"])
        await setup.turn("more", session_key="chat")
        assert said(setup) == ["hi", "hello", "more"]
        # It is stored as a turn without messages.
        turn = await setup.store.turn(run.id)
        assert turn is not None
        assert (turn.status, turn.surface, turn.prompt) == (
            "completed",
            "command",
            user_message("/help"),
        )
        assert turn.data == {"command": "help", "reply": completed.data["text"]}


async def test_a_command_creates_no_session(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        run = await setup.turn("/status", session_key="chat")
        assert (run.session_id, run.is_stored) == ("", False)
        assert run.result is not None
        assert "Session: none yet" in run.result.text
        assert await setup.store.sessions() == []
        with pytest.raises(SessionError, match="there is no session"):
            await setup.turn("/status", session_id="session_none")


async def test_a_typing_error_is_answered_and_another_word_is_a_message(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        text = await reply(setup, "/stauts")
        assert "There is no command /stauts. Did you mean /status?" in text
        setup.model.will(say("a directory"))
        assert await reply(setup, "/etc") == "a directory"
        assert said(setup) == ["/etc"]


async def test_a_command_that_fails_fails_its_run_alone(open_service: OpenAgent) -> None:
    async def refuse(call: CommandCall) -> str:
        raise SessionError("not today", code="invalid")

    async def break_down(call: CommandCall) -> str:
        raise RuntimeError("a bug")

    async with open_service() as setup:
        for name, handler in (("refuse", refuse), ("crash", break_down)):
            setup.service.commands.add(ChatCommand(name=name, description="", handler=handler))
        refused = await setup.turn("/refuse")
        crashed = await setup.turn("/crash")
        assert refused.result is not None
        assert crashed.result is not None
        assert (refused.state, refused.result.error) == ("failed", "not today")
        assert crashed.state == "failed"
        assert "RuntimeError" in crashed.result.error
        setup.model.will(say("hello"))
        assert (await setup.turn()).state == "completed"


async def test_closing_the_service_ends_a_command_that_waits(open_service: OpenAgent) -> None:
    async def wait(call: CommandCall) -> str:
        await anyio.sleep_forever()
        return ""

    async with open_service() as setup:
        setup.service.commands.add(ChatCommand(name="wait", description="", handler=wait))
        run = await setup.start("/wait")
        await event_of(run, "run.started")
    assert run.state == "aborted"
    assert run.result is not None
    assert "shutting down" in run.result.error


async def test_help_explains_one_command(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        text = await reply(setup, "/help abort")
        assert text.startswith("/stop: Abort the running turn")
        assert "Also: /abort" in text
        assert "scope `approve`" in await reply(setup, "/help /approve")
        assert await reply(setup, "/help nobody") == "There is no command 'nobody'."


# What the commands do.


@requirement("codex:status-runtime")
async def test_status_works_while_a_turn_runs_and_names_everything(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        held = HeldAnswer(say("one", tokens=7))
        run = await busy(setup, held)
        queued = await setup.start("second", session_key="chat", queue_mode="followup")
        lines = (await reply(setup, "/status")).splitlines()
        assert lines[:5] == [
            "Agent: main",
            f"Session: {run.session_id}, key chat (0 messages)",
            "Model: fake/model (configured)",
            "Runtime: Nacre",
            "Queue mode: steer (configured)",
        ]
        assert lines[5].startswith(f"Running turn: {run.id} (running, for ")
        assert lines[5].endswith(", 1 queued after it")
        assert lines[6:] == ["Tokens: 0 in (0 cached), 0 out", "Open approvals: none"]
        setup.model.will(say("two", tokens=5))
        held.release.set()
        await queued.wait()
        text = await reply(setup, "/status")
        assert "Running turn: none" in text
        assert "Tokens: 0 in (0 cached), 12 out" in text


@requirement("codex:stop-command")
async def test_stop_aborts_the_running_turn_and_everything_that_is_queued(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        assert await reply(setup, "/stop") == "No turn is running."
        run = await busy(setup, HeldAnswer(say("never")))
        queued = await setup.start("second", session_key="chat", queue_mode="followup")
        steered = await setup.start("by the way", session_key="chat")
        assert steered is run
        text = await reply(setup, "/stop please")
        assert text == f"Stopped 2 runs: {run.id}, {queued.id}."
        assert (run.state, queued.state) == ("aborted", "aborted")
        # The agent does not start again, but keeps the words.
        setup.model.will(say("hello"))
        await setup.turn("hi", session_key="chat")
        assert said(setup) == ["first", "by the way", "hi"]


async def test_a_chosen_model_is_used_until_it_is_taken_back(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        text = await reply(setup, "/model fake/spare")
        assert text.startswith("The model is fake/spare, from the next turn on.")
        setup.spare_model.will(say("spare"))
        run = await setup.turn("hi", session_key="chat")
        assert events_of(run, "run.started")[0].data["model"] == "fake/spare"
        assert "Model: fake/spare (chosen with /model)" in await reply(setup, "/status")
        # The model of a request comes first, and other sessions are not changed.
        setup.model.will(say("own"), say("other"))
        await setup.turn("hi", session_key="chat", model="fake/model")
        await setup.turn("hi", session_key="other")
        assert await reply(setup, "/model") == (
            "Model: fake/spare (chosen with /model)\nKnown: fake/model"
        )
        text = await reply(setup, "/model fake/modell")
        assert text.startswith("The model stays as it is: `models` has no model 'fake/modell'.")
        assert text.endswith("Did you mean fake/model?")
        await reply(setup, "/model default")
        setup.model.will(say("own"))
        await setup.turn("hi", session_key="chat")
        assert setup.model.replies == setup.spare_model.replies == []


async def test_a_chosen_model_that_is_gone_says_how_to_go_on(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        session = await setup.store.add_session(id="s", agent_id="main", key="chat")
        await setup.store.change_session(session.id, model="fake/gone")
        with pytest.raises(
            SessionError, match=r"chosen with /model, cannot be used.*/model default"
        ):
            await setup.start("hi", session_key="chat")
        await reply(setup, "/model default")
        setup.model.will(say("hello"))
        assert (await setup.turn("hi", session_key="chat")).state == "completed"


@requirement("codex:queue-command")
async def test_a_chosen_queue_mode_holds_for_the_session(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        assert (
            await reply(setup, "/queue followup") == "The queue mode of this session is followup."
        )
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        setup.model.will(say("two"))
        second = await setup.start("second", session_key="chat")
        assert second is not run
        held.release.set()
        await second.wait()
        assert "'never' is not a queue mode; use /queue steer" in await reply(setup, "/queue never")
        assert "Queue mode: followup." in await reply(setup, "/queue")
        assert (await reply(setup, "/queue default")).endswith("configured one again: steer.")
        held = HeldAnswer(say("three"))
        run = await busy(setup, held)
        assert await setup.start("fourth", session_key="chat") is run
        setup.model.will(say("four"))
        held.release.set()
        await run.wait()


async def test_settings_need_a_session_that_is_stored(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        run = await setup.turn("/queue collect")
        assert run.is_stored
        session = await setup.store.session(run.session_id)
        assert session is not None
        assert (session.queue_mode, session.title) == ("collect", "")
        setup.model.will(say("hello"))
        await setup.turn("What is new?", session_id=run.session_id)
        session = await setup.store.session(run.session_id)
        assert session is not None
        assert session.title == "What is new?"
        for text in ("/queue collect", "/model fake/spare"):
            kept = await setup.turn(text, history=[user_message("hi")])
            assert kept.result is not None
            assert "Name a session to use /" in kept.result.text


@requirement("codex:new-and-reset")
@pytest.mark.parametrize(("text", "model"), [("/new", "fake/spare"), ("/reset", "fake/model")])
async def test_a_key_gets_a_fresh_session_and_the_old_one_stays(
    open_service: OpenAgent, text: str, model: str
) -> None:
    async with open_service() as setup:
        setup.model.will(say("hello"))
        first = await setup.turn("hi", session_key="chat")
        await reply(setup, "/model fake/spare")
        renewed = await setup.turn(text, session_key="chat")
        assert renewed.session_id not in ("", first.session_id)
        assert len(await setup.kept(first.session_id)) == 2
        used = setup.spare_model if model == "fake/spare" else setup.model
        used.will(say("who are you?"))
        second = await setup.turn("me again", session_key="chat")
        assert second.session_id == renewed.session_id
        assert [getattr(it, "text", "") for it in used.requests[-1].messages] == ["me again"]
        listed = {it.id: (it.key, it.title) for it in await setup.store.sessions()}
        assert listed == {
            first.session_id: ("", "hi"),
            second.session_id: ("chat", "me again"),
        }


async def test_a_new_session_stops_the_running_turn_and_may_begin_with_a_message(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        run = await busy(setup, HeldAnswer(say("never")))
        setup.model.will(say("hello"))
        second = await setup.turn("/new hi there", session_id=run.session_id)
        assert run.state == "aborted"
        assert run.result is not None
        assert run.result.error == "the session was left with /new"
        assert second.session_id != run.session_id
        assert said(setup) == ["hi there"]
        session = await setup.store.session_by_key("main", "chat")
        assert session is not None
        assert session.id == second.session_id


async def test_new_without_a_session_changes_nothing(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        assert await reply(setup, "/new") == "Your next message starts a new session."
        assert await setup.store.sessions() == []


@requirement("codex:compact-command")
async def test_compact_summarizes_now_and_is_a_turn_of_its_own(open_service: OpenAgent) -> None:
    async with open_service(agent={"compaction": {"enabled": False}}) as setup:
        setup.model.will(say("hello"))
        await setup.turn("hi", session_key="chat")
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        compacted = await setup.start("/compact", session_key="chat")
        assert events_of(compacted, "run.queued")
        summary = HeldAnswer(say("They greeted."))
        setup.model.will(summary)
        held.release.set()
        with anyio.fail_after(30):
            await summary.asked.wait()
        assert run.has_ended
        # A message does not steer a compaction.
        later = await setup.start("and now?", session_key="chat")
        assert later is not compacted
        setup.model.will(say("fine"))
        summary.release.set()
        result = await compacted.wait()
        assert result.text.startswith("Compacted: a summary replaces 4 messages.")
        assert kinds(compacted)[-2:] == ["message.completed", "run.completed"]
        await later.wait()
        assert said(setup)[-1] == "and now?"
        assert "They greeted." in said(setup)[0]
        assert len(said(setup)) == 2
        turn = await setup.store.turn(compacted.id)
        assert turn is not None
        assert (turn.surface, turn.data["command"]) == ("command", "compact")
        assert turn.data["reply"] == result.text


async def test_a_compaction_that_fails_says_why(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        assert "nothing to compact" in await reply(setup, "/compact")
        setup.model.will(say("hello"), ProviderError("overloaded"))
        await setup.turn("hi", session_key="chat")
        run = await setup.turn("/compact", session_key="chat")
        assert run.result is not None
        assert (run.state, run.result.error) == ("failed", "overloaded")
        assert len(await setup.kept(run.session_id)) == 2


# Rights.


DANGEROUS = echo_tool(needs_approval="it is dangerous")


async def waiting(setup: AgentSetup, text: str = "x") -> tuple[AgentRun, ApprovalRequest]:
    """A run that waits for an approval."""
    setup.model.will(call("echo", {"text": text}), say("done"))
    run = await setup.start("do it", session_key="chat")
    await event_of(run, "approval.requested")
    return run, run.pending_approvals[0]


@requirement("codex:approve-command")
async def test_approvals_are_answered_in_the_chat(open_service: OpenAgent) -> None:
    async with open_service(tools=[DANGEROUS]) as setup:
        assert await reply(setup, "/approve") == "No approval is open."
        run, request = await waiting(setup, f"{'x' * 3_000}\u202e; rm -rf ~")
        shown = f"- {request.id}: {request.tool_id} (it is dangerous)"
        assert shown in await reply(setup, "/status")
        assert (await reply(setup, "/approve")).startswith(shown)
        # A text is shown whole, and nothing in it is invisible.
        text = await reply(setup, f"/approve {request.id}")
        assert "\\u202e; rm -rf ~" in text
        assert "Nothing is shown: " in await reply(setup, "/approve nobody")
        text = await reply(setup, f"/approve {request.id} perhaps")
        assert text.startswith("'perhaps' is not an answer.")
        text = await reply(setup, "/approve nobody once")
        assert f"Open: {request.id}." in text
        assert run.pending_approvals == (request,)
        text = await reply(setup, f"/approve {request.id} once")
        assert text == f"Answered {request.id}: allow-once."
        await run.wait()
        assert "echo: xxx" in str(await setup.kept(run.session_id))
        run, request = await waiting(setup)
        await reply(setup, f"/approve {request.id} deny not on a Sunday")
        await run.wait()
        assert "not on a Sunday" in str(await setup.kept(run.session_id))


@requirement("codex:owner-only-commands")
async def test_a_caller_without_the_right_is_refused(open_service: OpenAgent) -> None:
    async with open_service(tools=[DANGEROUS]) as setup:
        run, request = await waiting(setup)
        text = await reply(setup, f"/approve {request.id} once", rights=frozenset[str]())
        assert text.startswith("You may not use /approve: it needs a token with the scope")
        assert run.pending_approvals == (request,)
        text = await reply(setup, f"/approve {request.id} deny", rights=frozenset(("approve",)))
        assert text.startswith("Answered ")
        await run.wait()


async def test_a_command_may_ask_for_an_approval_and_stop_ends_it(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        approvals = setup.runtime.approvals(setup.approvals)

        async def ask(call: CommandCall) -> str:
            answer = await approvals.request(
                tool_id="nacre:core:export",
                tool_name="export",
                input={},
                reason="it leaves the machine",
                context=call.identity,
                call_id="export",
            )
            return type(answer).__name__

        command = ChatCommand(name="export", description="Export", handler=ask, right="owner")
        setup.service.commands.add(command)
        setup.model.will(say("hello"))
        await setup.turn("hi", session_key="chat")
        options = {"session_key": "chat", "rights": OWNER_RIGHTS}
        run = await setup.start("/export", **options)
        requested = await event_of(run, "approval.requested")
        await reply(setup, f"/approve {requested.data['approvalId']} once")
        assert (await run.wait()).text == "Granted"
        run = await setup.start("/export", **options)
        await event_of(run, "approval.requested")
        assert await reply(setup, "/stop") == f"Stopped: {run.id}."
        assert run.state == "aborted"
        assert setup.approvals.pending == ()
