"""Native hooks in whole turns: across turns, a changed configuration, a restart and compaction."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from nacre.agent import OWNER_RIGHTS, AgentRun, ClientTool
from nacre.codex_harness.app_server import find_program
from nacre.config import AppServerConfig
from nacre.testing import Call, RecordedRequest, Say
from nacre.testing.script import PlainTurn
from tests.codex_harness.codex_setup import (
    PROGRAM,
    codex_document,
    read_config,
    skip_old_codex,
)
from tests.codex_harness.test_harness import Setup, open_setup
from tests.contract.requirements import requirement

DENY = {"tools": {"deny": ["exec"]}}


def touch(request: RecordedRequest) -> PlainTurn:
    """A shell command for the file that the prompt names, then an answer."""
    # Older versions have the context of the turn in the same message.
    named = re.search(r"\b[a-z]\.txt$", request.prompt)
    if named is not None and request.messages[-1].role == "user":
        return Call("exec_command", {"cmd": f"touch {named[0]}"}, f"call_{named[0]}")
    return Say("done")


async def thread_of(setup: Setup, run: AgentRun) -> tuple[str, Any]:
    record = await setup.system.store.thread(run.session_id)
    assert record
    return record.thread_id, record.data["relayGeneration"]


def hook_events(run: AgentRun) -> list[tuple[Any, Any]]:
    events = [event.data for event in run.events.events if event.kind == "codex_app_server.hook"]
    return [(data["eventName"], data["status"]) for data in events]


@requirement("codex:native-hooks-are-stable", "codex:native-hook-events")
async def test_a_thread_keeps_its_hooks_over_turns_changes_restarts_and_compaction(
    tmp_path: Path,
) -> None:
    async with open_setup(tmp_path, touch) as setup:
        workspace = setup.system.config.agents.agent("main").workspace
        first = await setup.turn("a.txt")
        assert first.result
        assert first.result.error == ""
        assert (workspace / "a.txt").exists()
        assert hook_events(first) == [("preToolUse", "running"), ("preToolUse", "completed")]
        thread = await thread_of(setup, first)
        recorded = [it.event["kind"] for it in await setup.system.store.events(run_id=first.id)]
        assert recorded.count("codex_app_server.hook") == 2

        document = {**codex_document(setup.provider.openai_url), **DENY}
        await setup.system.apply(await read_config(document, tmp_path))
        second = await setup.turn("b.txt")
        assert not (workspace / "b.txt").exists()
        assert ("preToolUse", "blocked") in hook_events(second)
        assert "exec is not permitted" in setup.provider.requests[-1].tool_results[-1]
        assert await thread_of(setup, second) == thread
        await setup.turn("c.txt")
        assert not (workspace / "c.txt").exists()

    # Another process, with another socket; the first to load the thread is a compaction.
    async with open_setup(tmp_path, touch, DENY) as setup:
        compacted = await setup.turn("/compact")
        assert compacted.result
        assert compacted.result.error == ""
        third = await setup.turn("d.txt")
        assert third.result
        assert third.result.error == ""
        assert not (workspace / "d.txt").exists()
        assert ("preToolUse", "blocked") in hook_events(third)
        assert await thread_of(setup, third) == thread


@requirement("codex:native-hooks-are-stable")
async def test_a_review_that_loads_the_thread_is_subject_to_the_policy(tmp_path: Path) -> None:
    async with open_setup(tmp_path, touch, DENY) as setup:
        await setup.turn("hello")
    async with open_setup(tmp_path, touch, DENY) as setup:
        workspace = setup.system.config.agents.agent("main").workspace
        run = await setup.turn("/codex review e.txt", rights=OWNER_RIGHTS)
        assert run.result
        assert run.result.error == ""
        results = setup.provider.requests[-1].tool_results
        assert "exec is not permitted" in results[-1]
        # The thread is loaded now, and has its hooks in the next turn as well.
        await setup.turn("f.txt")
    assert not list(workspace.glob("*.txt"))


@requirement("codex:native-names-never-bypass-policy")
async def test_a_tool_of_a_client_with_the_name_of_the_shell_does_not_hide_it_from_the_policy(
    tmp_path: Path,
) -> None:
    async with open_setup(tmp_path, touch, DENY) as setup:
        workspace = setup.system.config.agents.agent("main").workspace
        run = await setup.turn("g.txt", client_tools=[ClientTool(name="Bash")])
        assert ("preToolUse", "blocked") in hook_events(run)
        assert not (workspace / "g.txt").exists()


MANAGED = """#!/bin/sh
# Codex with a requirements.toml of an administrator, in file systems of its own.
exec unshare {options} sh -c '
    mount -t tmpfs none "{folder}" && mkdir "{folder}/upper" "{folder}/work" &&
    mount -t overlay none -o lowerdir=/etc,upperdir="{folder}/upper",workdir="{folder}/work" /etc &&
    mkdir -p /etc/codex && printf "%s\\n" "{requirements}" > /etc/codex/requirements.toml &&
    exec "$@"' sh "{program}" "$@"
"""


def write_managed_codex(folder: Path, requirements: str) -> Path | None:
    """A program that runs Codex with these requirements; None if this machine cannot."""
    options = "-m" if os.geteuid() == 0 else "-rm"
    layers = folder / "layers"
    layers.mkdir()
    script = folder / "managed-codex"
    program = PROGRAM or find_program(AppServerConfig())
    script.write_text(
        MANAGED.format(options=options, folder=layers, requirements=requirements, program=program)
    )
    script.chmod(0o755)
    try:
        done = subprocess.run([script, "--version"], capture_output=True, check=False, timeout=60)
    except OSError:
        return None
    return script if done.returncode == 0 else None


@requirement("codex:managed-hooks")
@skip_old_codex("has no such requirement")
@pytest.mark.parametrize(
    "requirements", ["allow_managed_hooks_only = true", "[features]\nhooks = false"]
)
async def test_a_turn_that_needs_native_hooks_is_refused_where_codex_runs_none(
    tmp_path: Path, requirements: str
) -> None:
    program = await anyio.to_thread.run_sync(write_managed_codex, tmp_path, requirements)
    if program is None:
        pytest.skip("this machine gives no process its own file systems")
    codex = {"appServer": {"command": str(program)}}
    async with open_setup(tmp_path, touch, DENY, codex=codex) as setup:
        workspace = setup.system.config.agents.agent("main").workspace
        refused = await setup.turn("a.txt")
        assert refused.result
        assert "Codex on this machine runs only the hooks of its administrator" in (
            refused.result.error
        )
        assert setup.provider.requests == []
        # Without rules nothing has to be checked.
        document = codex_document(setup.provider.openai_url, codex=codex)
        await setup.system.apply(await read_config(document, tmp_path))
        free = await setup.turn("b.txt")
        assert free.result
        assert free.result.error == ""
        assert (workspace / "b.txt").exists()
        # A review has native calls as well.
        document = {**document, **DENY}
        await setup.system.apply(await read_config(document, tmp_path))
        review = await setup.turn("/codex review c.txt", rights=OWNER_RIGHTS)
        assert review.result
        assert "the hooks of its administrator" in review.result.error
    assert not (workspace / "a.txt").exists()
    assert not (workspace / "c.txt").exists()
