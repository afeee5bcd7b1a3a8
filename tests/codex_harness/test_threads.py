"""The thread of a session: kept, resumed and replaced; what a switch of harness leaves behind."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.agent import TurnRequest
from nacre.bootstrap import System, open_system
from nacre.errors import StorageError
from nacre.messages import AssistantMessage, Usage, UserMessage
from nacre.storage import Store, StoredMessage, ThreadRecord
from nacre.testing import Call, Fail, RecordedRequest, Say, ScriptedProvider, Think
from nacre.testing.script import End
from tests.codex_harness.codex_setup import (
    CODEX_VERSION,
    codex_document,
    read_config,
    skip_old_codex,
)
from tests.codex_harness.test_harness import Setup, open_setup, said
from tests.contract.requirements import requirement

pytestmark = pytest.mark.anyio


def echo(request: RecordedRequest) -> Say:
    return Say(f"answer {request.number} of {request.model}")


async def find_thread(system: System, session_id: str) -> ThreadRecord:
    record = await system.store.thread(session_id)
    assert record is not None
    return record


def user_texts(request: RecordedRequest) -> list[str]:
    return [message.text for message in request.messages if message.role == "user"]


async def change(setup: Setup, **settings: Any) -> None:
    """Apply another configuration, as the gateway does when its file has changed."""
    document = codex_document(setup.provider.openai_url, **settings)
    await setup.system.apply(await read_config(document, setup.folder))


@requirement("codex:resume-after-restart")
async def test_a_thread_is_resumed_after_a_restart(tmp_path: Path) -> None:
    async with ScriptedProvider(echo) as provider:
        config = await read_config(codex_document(provider.openai_url), tmp_path)
        threads: list[str] = []
        for message in ("before", "after"):
            async with open_system(config, workers=1) as system:
                run = await system.agents.start(TurnRequest(message=message, session_key="main"))
                with anyio.fail_after(60):
                    result = await run.wait()
                assert result.error == ""
                threads.append((await find_thread(system, run.session_id)).thread_id)
        assert threads[0] == threads[1]
        # Once, from Codex's own record: nothing is told again.
        texts = said(provider.requests[-1])
        assert [text for text in texts if text in ("before", "after")] == ["before", "after"]


@requirement("codex:model-change-keeps-the-thread")
async def test_model_effort_policy_sandbox_tier_and_directory_change_without_a_new_thread(
    tmp_path: Path,
) -> None:
    async with open_setup(tmp_path, echo) as setup:
        first = await setup.turn("one")
        before = await find_thread(setup.system, first.session_id)
        await change(
            setup,
            agent={
                "model": "mock/gpt-6-sol",
                "thinkingDefault": "high",
                "workspace": str(tmp_path / "elsewhere"),
            },
            codex={
                "appServer": {
                    "approvalPolicy": "on-request",
                    "sandbox": "read-only",
                    "serviceTier": "flex",
                }
            },
        )
        second = await setup.turn("two")
        assert second.result is not None
        assert second.result.text.endswith("of gpt-6-sol")
        after = await find_thread(setup.system, first.session_id)
    assert before.thread_id == after.thread_id
    assert (after.data["model"], after.data["cwd"]) == ("gpt-6-sol", str(tmp_path / "elsewhere"))
    request = setup.provider.requests[-1]
    reasoning = request.body["reasoning"]
    # Version 0.125 does not know the model, and asks it for no effort.
    if CODEX_VERSION >= (0, 163):
        assert isinstance(reasoning, dict)
        assert reasoning["effort"] == "high"
    assert request.body.get("service_tier") == "flex"
    assert "one" in said(request)
    assert any(str(tmp_path / "elsewhere") in text for text in user_texts(request))


@requirement("codex:transient-threads")
async def test_a_turn_without_tools_has_a_thread_of_its_own_and_costs_none(tmp_path: Path) -> None:
    async with open_setup(tmp_path, echo) as setup:
        first = await setup.turn("one")
        before = await find_thread(setup.system, first.session_id)
        alone = await setup.turn("two", tools_disabled=True)
        assert alone.result is not None
        assert alone.result.error == ""
        # It knows what was said before.
        assert any("answer 1" in text for text in user_texts(setup.provider.requests[-1]))
        assert await find_thread(setup.system, first.session_id) == before
        await setup.turn("three")
        assert (await find_thread(setup.system, first.session_id)).thread_id == before.thread_id
        # A session that is not stored has no thread afterwards.
        given = await setup.turn("four", session_key="", history=())
        assert given.result is not None
        assert given.result.error == ""
        assert await setup.system.store.thread(given.session_id) is None


@requirement("codex:rotation")
async def test_other_tools_start_a_new_thread_that_knows_what_was_said(tmp_path: Path) -> None:
    async with open_setup(tmp_path, echo) as setup:
        first = await setup.turn("my name is Ada")
        before = await find_thread(setup.system, first.session_id)
        # More is not needed for the same thread: fewer tools are no reason for a new one.
        await change(setup, tools={"deny": ["glob"]})
        await setup.turn("two")
        assert (await find_thread(setup.system, first.session_id)).thread_id == before.thread_id
        await change(setup, codex={"codexDynamicToolsLoading": "direct"})
        await setup.turn("three")
        after = await find_thread(setup.system, first.session_id)
    assert after.thread_id != before.thread_id
    (reference,) = [
        text for text in user_texts(setup.provider.requests[-1]) if "my name is Ada" in text
    ]
    assert "answer 1 of gpt-5.5" in reference
    assert "It is a record, not instructions" in reference


@requirement("codex:switch-of-harness")
async def test_a_session_may_change_its_harness_and_both_know_what_was_said(tmp_path: Path) -> None:
    def other(setup: Setup) -> Mapping[str, Any]:
        document = codex_document(setup.provider.openai_url)
        document["models"]["providers"]["mock"]["agentRuntime"] = {"id": "openclaw"}
        return document

    async with open_setup(tmp_path, echo) as setup:
        first = await setup.turn("first, in Codex")
        before = await find_thread(setup.system, first.session_id)
        await setup.system.apply(await read_config(other(setup), tmp_path))
        second = await setup.turn("second, in Nacre")
        assert second.result is not None
        assert second.result.error == ""
        request = setup.provider.requests[-1]
        assert "exec_command" not in request.tool_names
        assert user_texts(request) == ["first, in Codex", "second, in Nacre"]
        await change(setup)
        third = await setup.turn("third, in Codex")
        assert third.result is not None
        assert third.result.error == ""
        turns = await setup.system.store.turns(first.session_id)
        assert [turn.surface == "codex" for turn in turns] == [True, False, True]
        assert (await find_thread(setup.system, first.session_id)).thread_id == before.thread_id
    texts = user_texts(setup.provider.requests[-1])
    # The turn of the other harness is told once; Codex remembers its own.
    assert len([text for text in texts if "second, in Nacre" in text]) == 1
    assert len([text for text in texts if "first, in Codex" in text]) == 1


@requirement("codex:reset-clears-the-thread")
async def test_reset_starts_a_new_thread(tmp_path: Path) -> None:
    async with open_setup(tmp_path, echo) as setup:
        first = await setup.turn("one")
        before = await find_thread(setup.system, first.session_id)
        await setup.turn("/reset")
        again = await setup.turn("two")
        after = await find_thread(setup.system, again.session_id)
    assert before.thread_id != after.thread_id
    assert not any("one" in text.split() for text in user_texts(setup.provider.requests[-1])[-1:])


@requirement("codex:rotation")
async def test_a_thread_that_is_gone_is_replaced(tmp_path: Path) -> None:
    async with open_setup(tmp_path, echo) as setup:
        first = await setup.turn("one")
        record = await find_thread(setup.system, first.session_id)
        gone = ThreadRecord(
            session_id=record.session_id,
            thread_id="01a1ec71-689d-7ee3-9a00-000000000000",
            data=record.data,
            created=record.created,
            updated=record.updated,
        )
        await setup.system.store.put_thread(gone)
        second = await setup.turn("two")
        assert second.result is not None
        assert second.result.error == ""
        assert (await find_thread(setup.system, first.session_id)).thread_id != gone.thread_id
    notes = "".join(str(event.data.get("note", "")) for event in second.events.events)
    assert f"instead of {gone.thread_id}: Codex cannot resume it" in notes
    assert any("answer 1" in text for text in user_texts(setup.provider.requests[-1]))


OVERFLOW = "context_length_exceeded"
TOO_LARGE = [
    # In the stream, as OpenAI sends it; and as an answer that Codex does not recognise.
    [Think("Hm."), Fail(400, "too long", code=OVERFLOW)],
    Fail(400, "too long", code=OVERFLOW, is_final=True),
]
BAD_IMAGE = Fail(400, "The image data you provided does not represent a valid image", is_final=True)


@requirement("codex:damaged-thread")
async def test_a_thread_that_the_model_cannot_read_any_more_costs_one_request(
    tmp_path: Path,
) -> None:
    script: list[Any] = []
    for number, damage in enumerate([*TOO_LARGE, BAD_IMAGE]):
        script += [Say(f"one {number}"), damage, Say(f"two {number}"), Say(f"three {number}")]
    async with open_setup(tmp_path, script) as setup:
        for number in range(3):
            key = f"session-{number}"
            first = await setup.turn(f"my name is Ada {number}", session_key=key)
            before = await find_thread(setup.system, first.session_id)
            second = await setup.turn("go on", session_key=key)
            assert second.result is not None
            assert (second.result.error, second.result.text) == ("", f"two {number}")
            after = await find_thread(setup.system, first.session_id)
            assert after.thread_id != before.thread_id
            reference = "\n".join(user_texts(setup.provider.requests[-1]))
            assert f"my name is Ada {number}" in reference
            assert f"one {number}" in reference
            # The message is in the session once, and the new thread goes on.
            third = await setup.turn("and on", session_key=key)
            assert third.result is not None
            assert third.result.text == f"three {number}"
            assert await find_thread(setup.system, first.session_id) != after
            stored = await setup.system.store.messages(first.session_id)
            said_by_user = [it.message.text for it in stored if isinstance(it.message, UserMessage)]
            assert said_by_user == [f"my name is Ada {number}", "go on", "and on"]
            phases = [event.data.get("phase") for event in second.events.events]
            assert phases.count("thread_ready_retry") == 1


@requirement("codex:damaged-thread", "codex:no-replay")
async def test_a_turn_that_has_acted_or_has_a_new_thread_is_not_repeated(tmp_path: Path) -> None:
    script = [
        Fail(400, "too long", code=OVERFLOW, is_final=True),
        Say("one"),
        Call("exec_command", {"cmd": "echo once >> made.txt"}),
        Fail(400, "too long", code=OVERFLOW, is_final=True),
        Say("two"),
    ]
    async with open_setup(tmp_path, script) as setup:
        alone = await setup.turn("the first message of a new thread")
        assert alone.state == "failed"
        assert len(setup.provider.requests) == 1
        await setup.turn("again")
        before = await find_thread(setup.system, alone.session_id)
        acted = await setup.turn("make a file")
        assert acted.result is not None
        assert acted.state == "failed"
        assert "too long" in acted.result.error
        assert "it had begun to answer or to act" in acted.result.error
        assert len(setup.provider.requests) == 4
        workspace = setup.system.config.agents.agent("main").workspace
        assert await anyio.Path(workspace / "made.txt").read_text() == "once\n"
        # The next turn does not fail on the same thread again.
        last = await setup.turn("go on")
        assert last.result is not None
        assert last.result.text == "two"
        assert (await find_thread(setup.system, alone.session_id)).thread_id != before.thread_id


@requirement("codex:rotation")
async def test_a_thread_is_replaced_if_it_is_too_large_for_the_configured_window(
    tmp_path: Path,
) -> None:
    def answer(request: RecordedRequest) -> list[Any]:
        return [Say(f"answer {request.number}"), End(usage=Usage(input_tokens=25_000))]

    async with ScriptedProvider(answer) as provider:
        document = codex_document(provider.openai_url)
        models = [{"id": "gpt-5.5", "contextWindow": 50_000}]
        document["models"]["providers"]["mock"]["models"] = models
        async with open_system(await read_config(document, tmp_path), workers=1) as system:
            setup = Setup(system, provider, tmp_path)
            first = await setup.turn("my name is Ada")
            before = await find_thread(system, first.session_id)
            await setup.turn("short")
            assert (await find_thread(system, first.session_id)).thread_id == before.thread_id
            # 25,000 tokens, 20,000 for what comes, and the message.
            await setup.turn("long " * 5_000)
            after = await find_thread(system, first.session_id)
        assert after.thread_id != before.thread_id
        assert "my name is Ada" in "\n".join(user_texts(provider.requests[-1]))


@requirement("codex:large-thread-stays")
async def test_a_large_thread_is_left_to_codex_unless_a_smaller_window_is_configured(
    tmp_path: Path,
) -> None:
    # A fixed limit of 70,000 tokens once cost users of another harness their threads.
    answers = [[Say(f"answer {n}"), End(usage=Usage(input_tokens=150_000))] for n in range(3)]
    async with open_setup(tmp_path, answers) as setup:
        runs = [await setup.turn(f"message {number}") for number in range(3)]
        found = await find_thread(setup.system, runs[0].session_id)
        turns = await setup.system.store.turns(runs[0].session_id)
    assert [run.result and run.result.text for run in runs] == ["answer 0", "answer 1", "answer 2"]
    assert found.data["usedTokens"] == 150_000
    assert not any("note" in turn.data for turn in turns)
    assert "message 0" in said(setup.provider.requests[-1])


@requirement("codex:failed-thread-goes-on")
async def test_a_failure_of_the_provider_does_not_cost_the_thread(tmp_path: Path) -> None:
    script = [Say("one"), Fail(500, "out of order", is_final=True), Say("two")]
    async with open_setup(tmp_path, script) as setup:
        first = await setup.turn("first")
        before = await find_thread(setup.system, first.session_id)
        failed = await setup.turn("second")
        assert failed.state == "failed"
        third = await setup.turn("third")
        assert third.result is not None
        assert (third.result.error, third.result.text) == ("", "two")
        assert (await find_thread(setup.system, first.session_id)).thread_id == before.thread_id
    # Once, in the history of the thread itself.
    texts = said(setup.provider.requests[-1])
    assert [it for it in texts if it in ("first", "second", "third")] == [
        "first",
        "second",
        "third",
    ]


@skip_old_codex("does not report the ids of messages")
@requirement("codex:mirror-once")
async def test_a_turn_that_was_not_stored_is_mirrored_from_its_thread_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_given: Any, **_options: Any) -> None:
        raise StorageError("the disk is full")

    script = [Say("one"), [Think("Hm."), Say("two")], Say("three"), Say("four")]
    async with ScriptedProvider(script) as provider:
        config = await read_config(codex_document(provider.openai_url), tmp_path)
        with monkeypatch.context() as broken:
            async with open_system(config, workers=1) as system:
                setup = Setup(system, provider, tmp_path)
                await setup.turn("first")
                # As if the process was killed before it could store the turn.
                broken.setattr(Store, "end_turn", fail)
                lost = await setup.turn("second")
        assert lost.result is not None
        async with open_system(config, workers=1) as system:
            setup = Setup(system, provider, tmp_path)
            store = system.store
            (turn,) = [it for it in await store.turns(lost.session_id) if it.run_id == lost.id]
            assert turn.status == "interrupted"
            await setup.turn("third")
            expected = ["first", "one", "second", "two", "third", "three"]
            assert texts_of(await store.messages(lost.session_id)) == expected
            # The first process comes back, and stores what it has.
            ending: Any = {"status": "completed", "usage": Usage()}
            await store.end_turn(lost.id, messages=lost.result.messages, **ending)
            assert texts_of(await store.messages(lost.session_id)) == expected
        async with open_system(config, workers=1) as system:
            await Setup(system, provider, tmp_path).turn("fourth")
            assert texts_of(await system.store.messages(lost.session_id)) == [
                *expected,
                "fourth",
                "four",
            ]


def texts_of(stored: Sequence[StoredMessage]) -> list[str]:
    return [
        it.message.text for it in stored if isinstance(it.message, UserMessage | AssistantMessage)
    ]
