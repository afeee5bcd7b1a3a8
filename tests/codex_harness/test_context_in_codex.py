"""What the model in the real Codex is told: profile, reference files, history, engines, hooks."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest

from nacre.agent import OWNER_RIGHTS
from nacre.codex_harness import AppServerClient
from nacre.errors import AppServerError
from nacre.json_types import JsonValue
from nacre.testing import Fail, Say, ScriptedProvider
from tests.codex_harness.context_turns import (
    COMPACTED,
    instructed,
    joined,
    logged,
    open_setup,
    plugin,
    texts,
)
from tests.contract.requirements import requirement

if TYPE_CHECKING:
    from nacre.testing.script import Script

pytestmark = pytest.mark.anyio


def write_files(workspace: Path) -> None:
    for name in ("AGENTS", "SOUL", "IDENTITY", "USER", "TOOLS", "MEMORY", "BOOTSTRAP"):
        (workspace / f"{name}.md").write_text(f"the {name.lower()} text")
    skill = workspace / "skills" / "bake"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: bake\ndescription: Bakes bread.\n---\nKnead.")


@requirement(
    "codex:prompt-base-is-native",
    "codex:prompt-no-personality",
    "codex:prompt-profile-files",
    "codex:prompt-reference-files",
    "codex:prompt-current-on-resume",
    "codex:prompt-light-runs",
)
async def test_the_files_of_the_workspace_reach_the_model_where_they_belong(
    tmp_path: Path,
) -> None:
    script: Script = [Say(str(number)) for number in range(6)]
    async with ScriptedProvider(script) as provider:
        async with open_setup(tmp_path, provider) as setup:
            write_files(setup.workspace)
            run = await setup.turn(
                "hello", sender="sender77", channel="web", instructions="BE BRIEF"
            )
            assert run.state == "completed", run.result
            first = setup.last
            developer, user = joined(first, "developer"), joined(first, "user")
            for part in ("You are Pearl", "soul text", "identity text", "user text", "tools text"):
                assert part in developer
                assert part not in user
            assert "BE BRIEF" in developer
            assert "You are Codex" in developer + first.instructions
            assert "# Personality" not in developer + first.instructions
            assert user.count("the agents text") == 1
            assert "# AGENTS.md instructions" in user
            for part in ("Bakes bread.", "memory text", "bootstrap text", "not instructions"):
                assert user.count(part) == 1
                assert part not in developer
            assert "Knead." not in user
            assert "sender77 (channel: web)" in user
            assert "sender77" not in developer
            assert texts(first, "user")[-1] == "hello"

            await setup.turn("again", sender="sender77", channel="web", instructions="BE BRIEF")
            assert joined(setup.last, "user").count("the memory text") == 1
            assert joined(setup.last, "developer").count("the soul text") == 1

            (setup.workspace / "SOUL.md").write_text("a second soul")
            (setup.workspace / "MEMORY.md").write_text("a second memory")
            await setup.turn("third")
            assert "a second soul" in instructed(setup.last)
            assert "a second memory" in joined(setup.last, "user")

        # Another process resumes the thread.
        async with open_setup(tmp_path, provider) as setup:
            (setup.workspace / "SOUL.md").write_text("a third soul")
            await setup.turn("fourth")
            assert "hello" in texts(setup.last, "user")
            assert instructed(setup.last).count("a third soul") == 1
            await setup.turn("fifth")
            assert instructed(setup.last).count("a third soul") == 1

            await setup.turn("light", session_key="other", light_context=True)
            light = joined(setup.last, "developer") + joined(setup.last, "user")
            for part in ("agents text", "soul", "memory", "Bakes bread."):
                assert part not in light


@requirement("codex:prompt-runtime-decides", "codex:continuity", "codex:harness-switch")
async def test_both_harnesses_know_what_was_said_in_the_other(tmp_path: Path) -> None:
    script: Script = [Say(f"answer {number}") for number in range(1, 7)]
    async with (
        ScriptedProvider(script) as provider,
        open_setup(tmp_path, provider) as setup,
    ):
        await setup.turn("built-in one", model="plain/gpt-5.5")
        assert "You are Pearl, an agent that works for a person. Do what" in setup.last.instructions
        assert "You are Codex" not in setup.last.instructions + joined(setup.last, "developer")

        await setup.turn("codex two")
        user = joined(setup.last, "user")
        assert "You are Codex" in setup.last.instructions + joined(setup.last, "developer")
        assert "[user] built-in one\n\n[assistant] answer 1" in user
        assert texts(setup.last, "user")[-1] == "codex two"

        await setup.turn("built-in three", model="plain/gpt-5.5")
        assert [
            text
            for role in ("user", "assistant")
            for text in texts(setup.last, role)
            if text.startswith(("built-in", "codex", "answer"))
        ] == ["built-in one", "codex two", "built-in three", "answer 1", "answer 2"]

        await setup.turn("codex four")
        user = joined(setup.last, "user")
        assert user.count("[user] built-in three\n\n[assistant] answer 3") == 1
        # The thread itself has the rest.
        assert user.count("built-in one") == 1
        assert "[user] codex two" not in user

        await setup.turn("codex five")
        assert joined(setup.last, "user").count("[user] built-in three") == 1


@requirement(
    "codex:prompt-and-context-plugins",
    "codex:lifecycle-hooks",
    "codex:adapter-observations",
)
async def test_plugins_add_to_turns_and_observe_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = AppServerClient.request

    async def refuse_turns(client: Any, method: str, params: Any, **options: Any) -> JsonValue:
        if method == "turn/start":
            raise AppServerError(method, code=-32600, message="no turns today")
        return await real(client, method, params, **options)

    script: Script = [Say("one"), Fail(400, "no such luck", is_final=True)]
    async with (
        ScriptedProvider(script) as provider,
        open_setup(
            tmp_path, provider, plugin(tmp_path, "llm_input", "llm_output", "agent_end")
        ) as setup,
    ):
        run = await setup.turn("hello")
        assert run.state == "completed", run.result
        developer = joined(setup.last, "developer")
        assert "CODEX HINT" in developer
        assert "GLOBAL HINT" not in developer + joined(setup.last, "user")
        assert "HOOK RULE" in instructed(setup.last)
        assert "\nHOOK CONTEXT" in "\n" + joined(setup.last, "user")
        failed = await setup.turn("fail")
        assert failed.state == "failed"
        monkeypatch.setattr(AppServerClient, "request", refuse_turns)
        unstarted = await setup.turn("do not start")
        assert unstarted.state == "failed"
        phases = [event.data.get("phase") for event in unstarted.events.events]
        assert phases[-2:-1] == ["turn_start_failed"]
        stored = await setup.system.store.messages(run.session_id)
        assert "HOOK" not in str([each.message for each in stored])
    events = logged(tmp_path)
    assert [name for name, _ in events] == ["llm_input", "llm_output", "agent_end"] * 3
    given, output, end, _, no_output, failed_end = [data for _, data in events[:6]]
    # A turn that Codex does not start has the same hooks, with what there is.
    unstarted_output, unstarted_end = [data for _, data in events[7:]]
    assert (unstarted_output["texts"], unstarted_output["finishReason"]) == ([], "error")
    assert unstarted_output["usage"]["outputTokens"] == 0
    assert unstarted_end["status"] == "failed"
    assert "no turns today" in unstarted_end["error"]
    assert [message["role"] for message in unstarted_end["messages"]] == ["user"]
    assert (given["harness"], given["model"]) == ("codex", "mock/gpt-5.5")
    assert given["instructions"] in developer
    assert [message["role"] for message in given["messages"]] == ["user"]
    assert (output["text"], output["texts"], output["harness"]) == ("one", ["one"], "codex")
    assert output["usage"]["outputTokens"] > 0
    assert (end["status"], len(end["messages"])) == ("completed", 2)
    assert end["durationMs"] > 0
    assert (no_output["texts"], no_output["finishReason"]) == ([], "error")
    assert failed_end["status"] == "failed"
    assert "no such luck" in failed_end["error"]


@requirement("codex:context-engine", "codex:thread-bootstrap")
async def test_a_context_engine_runs_around_turns_of_codex(tmp_path: Path) -> None:
    script: Script = [Say(f"answer {number}") for number in range(1, 4)]
    async with (
        ScriptedProvider(script) as provider,
        open_setup(tmp_path, provider, plugin(tmp_path, has_engine=True)) as setup,
    ):
        run = await setup.turn("first")
        assert run.state == "completed", run.result
        user = joined(setup.last, "user")
        assert "[user] recalled question" in user
        assert '[tool call] pay id=call_9 input={"card":"string"}' in user
        assert '"paid":7' in user
        for secret in ("4111", "hunter2222"):
            assert secret not in json.dumps(setup.last.body)
        assert "Use what you recall." in instructed(setup.last)
        thread = await setup.system.store.thread(run.session_id)

        await setup.turn("second")
        assert joined(setup.last, "user").count("recalled question") == 1
        assert await setup.system.store.thread(run.session_id) is not None

        (tmp_path / "epoch").write_text("2")
        await setup.turn("third")
        # A new thread: Codex knows only what the engine says.
        assert "first" not in texts(setup.last, "user")
        assert joined(setup.last, "user").count("recalled question") == 1
        after = await setup.system.store.thread(run.session_id)
        assert thread is not None
        assert after is not None
        assert after.thread_id != thread.thread_id
    steps = [name for name, _ in logged(tmp_path, "assemble", "ingest", "after_turn")]
    assert steps == ["assemble", "ingest", "after_turn"] * 3


@requirement(
    "codex:compaction-observed",
    "codex:compaction-metadata",
    "codex:compaction-not-replaced",
)
async def test_native_compaction_is_observed_and_neither_plugins_nor_nacre_replace_it(
    tmp_path: Path,
) -> None:
    script: Script = [Say("one"), Say("the summary of Codex"), Say("two")]
    sections = plugin(tmp_path, "before_compaction", "after_compaction", has_engine=True)
    async with (
        ScriptedProvider(script) as provider,
        open_setup(tmp_path, provider, sections) as setup,
    ):
        (setup.workspace / "MEMORY.md").write_text("a memory")
        run = await setup.turn("first")
        command = await setup.turn("/compact", rights=OWNER_RIGHTS)
        assert command.state == "completed", command.result
        assert await anyio.to_thread.run_sync(COMPACTED.wait, 60)
        # It was Codex that summarised, and Nacre stores no summary of its own.
        stored = await setup.system.store.messages(run.session_id)
        assert not any(each.is_summary for each in stored)
        await setup.turn("second")
        user = joined(setup.last, "user")
        assert "the summary of Codex" in user + joined(setup.last, "assistant")
        # The model may have lost the reference material, so it is told again.
        assert "a memory" in texts(setup.last, "user")[-2]
    events = logged(tmp_path, "before_compaction", "after_compaction")
    assert [name for name, _ in events] == ["before_compaction", "after_compaction"]
    for _, data in events:
        assert data["harness"] == "codex"
        details = [data.get(key) for key in ("messageCount", "estimatedTokens", "summary")]
        assert details == [None] * 3
    assert len(provider.requests) == 3
