"""Chat commands of sessions in the real Codex: `/codex`, `/compact`, `/new` and `/reset`."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread
import pytest

from nacre.agent import OWNER_RIGHTS, AgentRun
from nacre.bootstrap import open_system
from nacre.codex_harness.client import is_unsupported
from nacre.codex_harness.threads import LiveThread
from nacre.errors import AppServerError
from nacre.json_types import JsonObject
from nacre.storage import ThreadRecord
from nacre.testing import RecordedRequest, Say, ScriptedProvider, Stall
from nacre.testing.script import PlainTurn
from tests.codex_harness.codex_setup import (
    CODEX_VERSION,
    HAS_CONTEXT,
    codex_document,
    read_config,
    skip_old_codex,
)
from tests.codex_harness.test_harness import Setup, app_servers, open_setup
from tests.contract.requirements import requirement

if TYPE_CHECKING:
    from nacre.codex_harness import AppServerClient

pytestmark = pytest.mark.anyio

FAST_TIER = "priority" if HAS_CONTEXT else "fast"
UNKNOWN_THREAD = "0199a213-81c0-7800-8aa1-bbab2a035a53"


async def command(setup: Setup, text: str, **options: Any) -> str:
    """The reply to a command of the owner, or its error."""
    run = await setup.turn(text, **{"rights": OWNER_RIGHTS, **options})
    assert run.result is not None
    return run.result.text or run.result.error


async def said(setup: Setup, text: str, **options: Any) -> AgentRun:
    """A whole turn that has succeeded."""
    run = await setup.turn(text, **options)
    assert run.result is not None
    assert run.result.error == ""
    return run


async def thread_of(setup: Setup, run: AgentRun) -> str:
    record = await setup.system.store.thread(run.session_id)
    return "" if record is None else record.thread_id


async def turn_params(setup: Setup, run: AgentRun) -> JsonObject:
    """What Codex was sent to start the turn."""
    for stored in await setup.system.store.events(run_id=run.id):
        data = stored.event.get("data")
        if isinstance(data, dict) and data.get("method") == "turn/start":
            params = data["params"]
            assert isinstance(params, dict)
            return params
    raise AssertionError("no turn was started")


def users(setup: Setup) -> list[str]:
    """The last line of each message: older versions have facts of the turn before it."""
    messages = setup.provider.requests[-1].messages
    return [it.text.rpartition("\n")[2] for it in messages if it.role == "user"]


@requirement("codex:codex-commands", "codex:status-runtime", "codex:owner-only-commands")
async def test_codex_commands_show_the_facts_of_the_app_server(tmp_path: Path) -> None:
    agent = {"workspace": "workspace"}
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "MEMORY.md").write_text("Ada likes tea.", encoding="utf-8")
    async with open_setup(tmp_path, [Say("Hello.")], agent=agent) as setup:
        refused = await command(setup, "/codex status", rights=frozenset(("approve",)))
        assert refused.startswith("You may not use /codex: it is for the owner")
        # The first use starts the app-server.
        text = await command(setup, "/codex")
        assert text.splitlines() == [
            f"Codex: {'.'.join(map(str, CODEX_VERSION))}",
            "Account: none; the keys of Nacre's providers are used",
            "Model: mock/gpt-5.5",
        ]
        assert "no session yet; send a message first" in await command(setup, "/codex binding")
        run = await said(setup, "hi there")
        thread_id = await thread_of(setup, run)
        assert (await command(setup, "/codex binding")).startswith(f"Thread: {thread_id} (gpt-5.5")
        assert "Runtime: OpenAI Codex" in await command(setup, "/status")
        assert "- gpt-5.5: " in await command(setup, "/codex models")
        # Though the input begins with reference material.
        shown = f"- {thread_id} [{run.session_id}]: hi there"
        assert await command(setup, "/codex threads") == shown
        assert await command(setup, "/codex threads nothing-like-it") == "There are no threads."
        assert "Rate limits: not known" in await command(setup, "/codex account")
        assert await command(setup, "/codex mcp") == "Codex has no MCP servers of its own."
        assert "- imagegen: " in await command(setup, "/codex skills")
        assert "/codex steer <text>" in await command(setup, "/codex help")
        assert "to OpenAI's servers" in await command(setup, "/codex diagnostics")
        assert "There is no subcommand 'dance'." in await command(setup, "/codex dance")
        processes = await anyio.to_thread.run_sync(app_servers)
        assert len({it.parent() for it in processes} - set(processes)) == 1
        client = setup.system.codex.servers.find_by_thread(thread_id)
        assert client is not None
        with pytest.raises(AppServerError) as refusal:
            await client.request("no/such/method", {})
        assert is_unsupported(refusal.value)
        assert not is_unsupported(AppServerError("x", code=-32600, message="bad id"))
        assert is_unsupported(AppServerError("x", code=-32601, message="not found"))
    assert len(setup.provider.requests) == 1


def write_marketplace(workspace: Path) -> None:
    """A marketplace in the workspace with one plugin."""
    place = workspace / ".agents" / "plugins"
    place.mkdir(parents=True)
    entry = {
        "name": "bread",
        "source": {"source": "local", "path": "./bread"},
        "policy": {"installation": "AVAILABLE", "authentication": "ON_USE"},
        "category": "Food",
    }
    (place / "marketplace.json").write_text(json.dumps({"name": "bakery", "plugins": [entry]}))
    manifest = workspace / "bread" / ".codex-plugin"
    manifest.mkdir(parents=True)
    described = {"name": "bread", "description": "Bakes bread.", "version": "1.0.0"}
    (manifest / "plugin.json").write_text(json.dumps(described))


@requirement("codex:codex-commands")
@skip_old_codex("lists the plugins of its servers as well")
async def test_native_plugins_are_listed_and_switched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Codex looks for more plugins on its servers, and must not reach them.
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    workspace = tmp_path / "work"
    write_marketplace(workspace)
    agent = {"workspace": str(workspace)}
    async with open_setup(tmp_path, [], agent=agent) as setup:
        assert "native plugins are off; set" in await command(setup, "/codex plugins")
    args = ["app-server", "-c", "features.apps=false"]
    codex = {"codexPlugins": {"enabled": True}, "appServer": {"args": args}}
    async with open_setup(tmp_path, [], agent=agent, codex=codex) as setup:
        assert await command(setup, "/codex plugins") == "- bread@bakery: not installed"
        for action, state in (
            ("enable", "enabled"),
            ("disable", "disabled"),
            ("enable", "enabled"),
        ):
            text = await command(setup, f"/codex plugins {action} bread@bakery")
            assert text == f"The plugin bread@bakery is {state}, for new threads."
            assert await command(setup, "/codex plugins list") == f"- bread@bakery: {state}"
        text = await command(setup, "/codex plugins enable cake")
        assert "Codex knows no plugin 'cake'; known: bread@bakery" in text
        assert "Use /codex plugins" in await command(setup, "/codex plugins eat")


@requirement("codex:busy-thread-waits")
async def test_a_message_during_a_review_waits_for_its_end(tmp_path: Path) -> None:
    is_asked, may_end = anyio.Event(), anyio.Event()

    def review(_request: RecordedRequest) -> PlainTurn:
        is_asked.set()
        return [Stall(until=may_end), Say("Looks fine.")]

    async with open_setup(tmp_path, [Say("One."), review, Say("Two.")]) as setup:
        first = await said(setup, "alpha")
        run = await setup.start("/codex review Look at nothing.", rights=OWNER_RIGHTS)
        with anyio.fail_after(60):
            await is_asked.wait()
        second = await setup.start("beta")
        await anyio.wait_all_tasks_blocked()
        # Codex refuses to steer a review, so the model has not been asked yet.
        assert len(setup.provider.requests) == 2
        may_end.set()
        with anyio.fail_after(60):
            reviewed, answered = await run.wait(), await second.wait()
        assert (reviewed.text, answered.text) == ("Looks fine.", "Two.")
        assert await thread_of(setup, second) == await thread_of(setup, first)


@requirement("codex:bind-and-detach")
async def test_a_session_leaves_its_thread_and_continues_another(tmp_path: Path) -> None:
    script = [Say("One."), Say("Two."), Say("Three."), Say("Four.")]
    async with open_setup(tmp_path, script) as setup:
        first = await said(setup, "alpha")
        thread_id = await thread_of(setup, first)
        text = await command(setup, f"/codex bind {thread_id}", session_key="other")
        assert "no session yet" in text
        other = await said(setup, "beta", session_key="other")
        text = await command(setup, f"/codex bind {thread_id}", session_key="other")
        assert f"belongs to the session {first.session_id}" in text
        assert "Codex refused thread/read" in await command(setup, f"/codex bind {UNKNOWN_THREAD}")

        text = await command(setup, "/codex detach")
        assert text.startswith(f"This session has left the thread {thread_id}")
        assert await command(setup, "/codex unbind") == "This session has no thread."
        text = await command(setup, f"/codex resume {thread_id}", session_key="other")
        assert text == f"This session continues the thread {thread_id}."
        assert await thread_of(setup, other) == thread_id
        await said(setup, "gamma", session_key="other")
        # Codex knows what was said in the thread.
        assert {"alpha", "gamma"} <= set(users(setup))
        assert await thread_of(setup, other) == thread_id

        again = await said(setup, "delta")
        assert await thread_of(setup, again) not in ("", thread_id)


@requirement("codex:new-and-reset")
async def test_new_and_reset_leave_a_thread_even_if_it_cannot_be_used(tmp_path: Path) -> None:
    async with open_setup(tmp_path, [Say("One."), Say("Two."), Say("Three.")]) as setup:
        first = await said(setup, "alpha")
        store = setup.system.store
        await store.put_thread(
            ThreadRecord(
                session_id=first.session_id, thread_id=UNKNOWN_THREAD, created=1.0, updated=1.0
            )
        )
        await command(setup, "/new")
        second = await said(setup, "beta")
        assert second.session_id != first.session_id
        assert await thread_of(setup, second) not in ("", UNKNOWN_THREAD)
        assert "alpha" not in str(users(setup))
        # The old session keeps what it has.
        assert await thread_of(setup, first) == UNKNOWN_THREAD
        await command(setup, "/reset")
        assert await thread_of(setup, second) == ""
        third = await said(setup, "gamma")
        assert await thread_of(setup, third) != ""
        assert "beta" not in str(users(setup))


@requirement("codex:native-compaction")
async def test_compact_starts_native_compaction_and_the_next_message_waits_for_it(
    tmp_path: Path,
) -> None:
    script = [Say("One."), Say("SUMMARY"), Say("Two."), Say("SUMMARY 2"), Say("Three.")]
    async with open_setup(tmp_path, script) as setup:
        assert "nothing to compact" in await command(setup, "/compact")
        first = await said(setup, "alpha")
        thread_id = await thread_of(setup, first)
        run = await setup.turn("/compact")
        assert run.result is not None
        assert run.result.text.startswith(f"Codex compacts its thread {thread_id} now")
        # At once: it must neither be lost in the compaction nor be refused.
        second = await said(setup, "beta")
        assert second.result is not None
        assert second.result.text == "Two."
        assert await thread_of(setup, second) == thread_id
        assert "SUMMARY" in str([it.text for it in setup.provider.requests[-1].messages])
        # Nacre has recorded no compaction of its own.
        stored = await setup.system.store.messages(first.session_id)
        assert not any(it.is_summary for it in stored)

        # Another process of the app-server resumes the thread first.
        client = setup.system.codex.servers.find_by_thread(thread_id)
        assert client is not None
        for process in await anyio.to_thread.run_sync(app_servers):
            process.send_signal(signal.SIGKILL)
        with anyio.fail_after(60):
            await client.wait_closed()
        text = await command(setup, "/codex compact")
        assert text.startswith(f"Codex compacts its thread {thread_id} now")
        assert (await said(setup, "gamma")).result is not None
        count = len(setup.provider.requests)

        await setup.system.store.put_thread(
            ThreadRecord(
                session_id=first.session_id, thread_id=UNKNOWN_THREAD, created=1.0, updated=1.0
            )
        )
        failed = await setup.turn("/compact")
        assert failed.state == "failed"
        assert failed.result is not None
        assert "Codex refused thread/resume" in failed.result.error
        # Nobody else writes a summary.
        assert len(setup.provider.requests) == count


@requirement("codex:codex-commands")
async def test_model_tier_and_permissions_change_with_the_next_turn_of_the_thread(
    tmp_path: Path,
) -> None:
    guardian = {"appServer": {"mode": "guardian"}}
    # Codex compacts by itself for a model of another family.
    script = [Say("One."), Say("SUMMARY"), Say("Two."), Say("Three.")]
    async with open_setup(tmp_path, script, codex=guardian) as setup:
        first = await said(setup, "alpha")
        thread_id = await thread_of(setup, first)
        before = await turn_params(setup, first)
        assert await command(setup, "/codex fast") == "Fast: off (configured)"
        text = await command(setup, "/codex permissions status")
        assert text == "Permissions: on-request, workspace-write (configured)"
        await command(setup, "/codex fast on")
        text = await command(setup, "/codex permissions yolo")
        assert text.startswith("Permissions: yolo (chosen)")
        text = await command(setup, "/codex model gpt-6.1-sol")
        assert text == "The model is mock/gpt-6.1-sol, from the next turn on; the thread stays."
        second = await said(setup, "beta")
        after = await turn_params(setup, second)
        assert await thread_of(setup, second) == thread_id
        keys = ("model", "serviceTier", "approvalPolicy")
        assert [before[key] for key in keys] == ["gpt-5.5", None, "on-request"]
        assert [after[key] for key in keys] == ["gpt-6.1-sol", FAST_TIER, "never"]
        assert after["sandboxPolicy"] == {"type": "dangerFullAccess"}
        assert setup.provider.requests[-1].body["model"] == "gpt-6.1-sol"

        for text in ("fast default", "permissions default"):
            await command(setup, f"/codex {text}")
        third = await turn_params(setup, await said(setup, "gamma"))
        assert [third[key] for key in keys] == ["gpt-6.1-sol", None, "on-request"]
        text = await command(setup, "/codex model default")
        assert text == "The model is mock/gpt-5.5 again, from the next turn on."
        assert "cannot run in Codex" in await command(setup, "/codex model demo/demo")


async def running(setup: Setup, text: str) -> AgentRun:
    """A turn whose model has begun to answer."""
    run = await setup.start(text)
    with anyio.fail_after(60):
        async for event in run.events.follow():
            if event.kind == "text.delta":
                break
    return run


@requirement("codex:codex-commands")
@skip_old_codex("adds a steered message only when the model has answered")
async def test_the_running_turn_is_steered(tmp_path: Path) -> None:
    script = [[Say("I begin "), Stall()], Say("Steered.")]
    queue = {"messages": {"queue": {"debounceMs": 0}}}
    async with open_setup(tmp_path, script, queue) as setup:
        run = await running(setup, "alpha")
        assert "a turn of this session is running" in await command(setup, "/codex detach")
        assert await command(setup, "/codex steer") == "Use /codex steer <text>."
        text = await command(setup, "/codex steer be quick")
        assert text == "Codex gets it in the running turn."
        with anyio.fail_after(60):
            result = await run.wait()
        assert (result.error, result.text) == ("", "Steered.")
        assert "be quick" in users(setup)

        text = await command(setup, "/codex steer too late")
        assert text == "No turn is running; send it as a message."


@requirement("codex:codex-commands")
async def test_the_running_turn_is_stopped_and_a_review_is_shown(tmp_path: Path) -> None:
    script = [[Say("I begin "), Stall()], Say("Looks fine."), Say("Last.")]
    async with open_setup(tmp_path, script) as setup:
        text = await command(setup, "/codex review")
        assert "no session yet" in text
        run = await running(setup, "beta")
        assert await command(setup, "/codex stop") == f"Stopped: {run.id}."
        assert run.state == "aborted"
        with anyio.fail_after(60):
            # Codex may still be ending the turn.
            while (text := await command(setup, "/codex stop")) != "The thread does nothing.":
                assert text == "Codex interrupts what the thread does."

        text = await command(setup, "/codex review Look at nothing.")
        assert text == "Looks fine."
        assert "Look at nothing." in str(users(setup))
        # The review has ended, also for the thread.
        last = await said(setup, "gamma")
        assert last.result is not None
        assert last.result.text == "Last."


@skip_old_codex("changes the settings of a thread only with its next turn")
@requirement("codex:codex-commands", "codex:manual-compaction")
async def test_a_review_and_a_compaction_have_the_settings_of_the_session(tmp_path: Path) -> None:
    has_compacted = anyio.Event()

    def answer(request: RecordedRequest) -> Say:
        if request.number == 5:
            has_compacted.set()
        return Say(f"answer {request.number}")

    async with ScriptedProvider(answer) as provider:
        server = {"approvalPolicy": "untrusted", "sandbox": "read-only"}
        document = codex_document(provider.openai_url, codex={"appServer": server})
        providers = document["models"]["providers"]
        providers["other"] = providers["mock"]
        async with open_system(await read_config(document, tmp_path), workers=1) as system:
            setup = Setup(system, provider, tmp_path)
            await said(setup, "alpha")
            assert "danger-full-access" not in str(provider.requests[-1].body)
            await command(setup, "/codex permissions yolo")
            await command(setup, "/codex fast on")
            await command(setup, "/codex model gpt-6-sol")
            assert await command(setup, "/codex review Look at nothing.") == "answer 2"
            await command(setup, "/codex fast off")
            await command(setup, "/compact")
            # It waits for the end of the compaction.
            await said(setup, "beta")
            # The next model has a process of its own; the old one still has the thread.
            await command(setup, "/codex model other/gpt-5.5")
            text = await command(setup, "/compact")
            assert text.startswith("Codex compacts its thread ")
            with anyio.fail_after(60):
                await has_compacted.wait()
    seen = [(it.model, it.body.get("service_tier")) for it in provider.requests]
    assert seen[1:4] == [("gpt-6-sol", "priority"), ("gpt-6-sol", None), ("gpt-6-sol", None)]
    assert seen[4][0] == "gpt-6-sol"
    assert "danger-full-access" in str(provider.requests[1].body)
    assert [it.prompt.endswith("beta") for it in provider.requests[2:5]] == [False, True, False]


class _NoServer:
    """An app-server that says nothing by itself."""

    def subscribe(self, thread_id: str, listener: object) -> Callable[[], None]:
        return lambda: None


# A review starts with an id of its own and ends with that of its root. Old versions name no root.
@pytest.mark.parametrize("root", [{"rootTurnId": "root"}, {}])
async def test_a_turn_waits_for_a_compaction_whose_start_codex_has_not_reported(
    root: JsonObject,
) -> None:
    live = LiveThread(cast("AppServerClient", _NoServer()), "t")
    await live.wait_until_idle()
    is_idle = anyio.Event()

    async def wait() -> None:
        await live.wait_until_idle()
        is_idle.set()

    live.expect_turn()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        for method in ("turn/started", "turn/completed"):
            await anyio.wait_all_tasks_blocked()
            assert not is_idle.is_set()
            live.on_notification(method, {"threadId": "t", "turn": {"id": method, **root}})
    assert is_idle.is_set()
