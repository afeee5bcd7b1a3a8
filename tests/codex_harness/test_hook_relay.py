"""The relay of native hooks: its configuration in the real Codex, its command and its limits."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import psutil
import pytest
from anyio import to_thread

from nacre.codex_harness import hook_relay
from nacre.codex_harness.hook_relay import (
    HookRelay,
    RelayRegistration,
    deny_tool_use,
    make_generation,
    make_relay_id,
    open_hook_relay,
)
from nacre.config import HookRelayConfig
from tests.contract.requirements import requirement

if TYPE_CHECKING:
    from asyncio import StreamWriter
    from collections.abc import Awaitable, Callable

    from nacre.config import RelayEvent
    from nacre.json_types import JsonObject

EVENTS: tuple[RelayEvent, ...] = (
    "pre_tool_use",
    "post_tool_use",
    "permission_request",
    "before_agent_finalize",
)
PYTHON = os.path.realpath(sys.executable)
COMMAND = Path(hook_relay.__file__).with_name("relay_command.py")


async def say_nothing(_event: RelayEvent, _payload: JsonObject) -> JsonObject | None:
    return None


@dataclass
class RecordingHandler:
    """Keeps all events, and answers with a function."""

    function: Callable[[RelayEvent, JsonObject], Awaitable[JsonObject | None]] = say_nothing
    events: list[tuple[RelayEvent, JsonObject]] = field(
        default_factory=list[tuple["RelayEvent", "JsonObject"]]
    )

    async def answer(self, event: RelayEvent, payload: JsonObject, /) -> JsonObject | None:
        self.events.append((event, payload))
        return await self.function(event, payload)


def register(
    relay: HookRelay, handler: RecordingHandler, *, config: HookRelayConfig | None = None
) -> RelayRegistration:
    return relay.register(
        handler,
        relay_id=make_relay_id("main", "session_1"),
        generation=make_generation(),
        config=config or HookRelayConfig(),
    )


def command_of(registration: RelayRegistration, name: str, *, must_answer: bool = True) -> str:
    config: Any = registration.thread_config(EVENTS, must_answer=must_answer)
    return config[f"hooks.{name}"][0]["hooks"][0]["command"]


async def run_command(command: str, payload: bytes = b'{"tool_name": "Bash"}') -> str:
    def run() -> str:
        done = subprocess.run(["/bin/sh", "-c", command], input=payload, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    return await to_thread.run_sync(run)


@requirement("codex:native-hooks-fail-closed")
async def test_a_call_is_blocked_when_nobody_answers_its_hook(tmp_path: Path) -> None:
    async with open_hook_relay() as relay:
        handler = RecordingHandler()
        registration = register(relay, handler)
        before, after = command_of(registration, "PreToolUse"), "PostToolUse"
        assert await run_command(before) == ""

        # A thread of an earlier generation, whose registration was replaced.
        register(relay, handler)
        assert "no turn of Nacre" in await run_command(before)
        assert await run_command(command_of(registration, after)) == ""
        # Such as a review, when there is nothing that could block its calls.
        assert await run_command(command_of(registration, "PreToolUse", must_answer=False)) == ""

        # The interpreter is gone, as after an upgrade.
        missing = command_of(registration, "PreToolUse").replace(PYTHON, str(tmp_path / "python"))
        assert '"deny"' in await run_command(missing)
    # The process has ended.
    assert "cannot be reached" in await run_command(before)
    assert '"deny"' in await run_command(command_of(registration, "PermissionRequest"))
    assert await run_command(command_of(registration, after)) == ""
    assert await run_command(command_of(registration, "Stop")) == ""
    # Nothing could have blocked it.
    assert await run_command(command_of(registration, "PreToolUse", must_answer=False)) == ""
    assert len(handler.events) == 1


@requirement("codex:native-hooks-fail-closed")
async def test_invalid_payloads_and_failing_handlers_block_the_call() -> None:
    async def fail(_event: RelayEvent, _payload: JsonObject) -> JsonObject | None:
        raise RuntimeError("a bug")

    async with open_hook_relay() as relay:
        command = command_of(register(relay, RecordingHandler(fail)), "PreToolUse")
        assert "see its log" in await run_command(command)
        assert "is not an object" in await run_command(command, b"[]")
        assert "cannot read" in await run_command(command, b"{")
        assert "more than 20,000 parts" in await run_command(command, b"[" + b"1," * 30_000 + b"1]")
        assert "cannot read" in await run_command(command, b"[" * 5_000)
        assert "cannot be reached" in await run_command(command, b'"' + b"x" * (5 << 20) + b'"')


_FORGED_SERVER = """
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print(flush=True)
while True:
    connection, _ = server.accept()
    # An empty answer lets Codex make the call.
    connection.sendall(b"00000000")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peer of a socket is known on Linux only")
@requirement("codex:native-hooks-fail-closed")
async def test_another_process_cannot_answer_at_the_place_of_the_socket() -> None:
    async def deny(_event: RelayEvent, _payload: JsonObject) -> JsonObject | None:
        return deny_tool_use("never")

    async with open_hook_relay() as relay:
        before = command_of(register(relay, RecordingHandler(deny)), "PreToolUse")
        assert "never" in await run_command(before)
        # A command of the model that may write to the directory of temporary files.
        await anyio.Path(relay.socket_path).unlink()
        server = [sys.executable, "-I", "-S", "-c", _FORGED_SERVER, relay.socket_path]
        async with await anyio.open_process(server, stderr=None) as forged:
            assert forged.stdout
            await forged.stdout.receive()
            answer = await run_command(before)
            forged.kill()
        assert "cannot be reached" in answer


async def test_an_answer_may_take_longer_than_the_relay_may_be_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signs: list[bytes] = []
    has_shown_life = anyio.Event()
    show_life = hook_relay._show_life  # pyright: ignore[reportPrivateUsage]

    class Counted:
        """The stream to the command, which counts the signs of life."""

        def __init__(self, writer: StreamWriter) -> None:
            self._writer = writer
            self.drain = writer.drain

        def write(self, data: bytes) -> None:
            self._writer.write(data)
            signs.append(data)
            if len(signs) == 4:
                has_shown_life.set()

    async def show_life_quickly(writer: StreamWriter, every_seconds: float) -> None:
        # Three signs within the time that the command waits for one.
        assert every_seconds == 3
        await show_life(cast("StreamWriter", Counted(writer)), 0.001)

    async def answer_late(_event: RelayEvent, _payload: JsonObject) -> JsonObject | None:
        await has_shown_life.wait()
        return deny_tool_use("after a while")

    monkeypatch.setattr(hook_relay, "_show_life", show_life_quickly)
    config = HookRelayConfig(answer_timeout_seconds=9)
    async with open_hook_relay() as relay:
        registration = register(relay, RecordingHandler(answer_late), config=config)
        with anyio.fail_after(60):
            answer = await run_command(command_of(registration, "PreToolUse"))
    assert "after a while" in answer
    assert set(signs) == {b"\n"}


@requirement("codex:native-hooks-fail-closed")
@pytest.mark.parametrize("killed", ["shell", "helper"])
async def test_a_hook_that_codex_ends_is_not_answered_and_a_killed_helper_denies(
    killed: str,
) -> None:
    began, cancelled = anyio.Event(), anyio.Event()

    async def wait(_event: RelayEvent, _payload: JsonObject) -> JsonObject | None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    config = HookRelayConfig(answer_timeout_seconds=1)
    async with open_hook_relay() as relay:
        registration = register(relay, RecordingHandler(wait), config=config)
        command = command_of(registration, "PreToolUse")
        # Codex knows the shell alone.
        async with await anyio.open_process(["/bin/sh", "-c", command]) as shell:
            assert shell.stdin
            assert shell.stdout
            await shell.stdin.send(b"{}")
            await shell.stdin.aclose()
            await began.wait()
            if killed == "shell":
                shell.kill()
            else:
                [helper] = psutil.Process(shell.pid).children()
                helper.kill()
                assert b'"deny"' in b"".join([chunk async for chunk in shell.stdout])
        with anyio.fail_after(30):
            await cancelled.wait()


async def test_a_command_may_go_away_in_the_moment_of_its_answer() -> None:
    with socket.socket(socket.AF_UNIX) as command:
        is_answered = anyio.Event()

        async def answer(_event: RelayEvent, _payload: JsonObject) -> JsonObject | None:
            # Until the relay watches for the end of the command.
            for _ in range(10):
                await asyncio.sleep(0)
            command.close()
            # The next step of the loop both sees the end of the stream and goes on here.
            await asyncio.sleep(0)
            is_answered.set()
            return None

        async with open_hook_relay() as relay:
            registration = register(relay, RecordingHandler(answer))
            address = f"{registration.relay_id} {registration.generation} required pre_tool_use"
            request = f"{address}\n{{}}".encode()
            await to_thread.run_sync(command.connect, relay.socket_path)
            await to_thread.run_sync(command.sendall, b"%08x" % len(request) + request)
            # An exception in a callback of the loop fails the test.
            with anyio.fail_after(30):
                await is_answered.wait()
            assert '"deny"' not in await run_command(command_of(registration, "PostToolUse"))


@requirement("codex:native-hooks-last")
async def test_a_registration_lasts_while_its_turn_runs_and_a_while_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(anyio, "current_time", lambda: now)
    relay = HookRelay("/nowhere")
    registration = register(relay, RecordingHandler(), config=HookRelayConfig(ttl_seconds=60))
    now += 59
    assert relay.count == 1
    registration.renew()
    now += 59
    assert relay.count == 1
    relay.unregister(registration)
    now += 14
    assert relay.count == 1
    now += 2
    assert relay.count == 0


async def test_only_the_user_reaches_the_socket_and_killed_processes_leave_none() -> None:
    async with open_hook_relay() as relay:
        directory = Path(relay.socket_path).parent
        assert directory.stat().st_mode & 0o777 == 0o700
        # The directory of a process that was killed.
        abandoned = directory.with_name("nacre-relay-abandon")
        abandoned.mkdir(mode=0o700, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(abandoned / "socket"))
        async with open_hook_relay():
            assert not abandoned.exists()
            assert directory.exists()
    assert not directory.exists()


@requirement("codex:relay-is-small")
async def test_programs_of_the_user_do_not_print_into_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sitecustomize.py", "usercustomize.py", "posix.py", "startup.py"):
        (tmp_path / name).write_text("print('Welcome!')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "startup.py"))
    monkeypatch.setenv("PYTHONVERBOSE", "1")
    monkeypatch.chdir(tmp_path)

    async def block(_event: RelayEvent, _payload: JsonObject) -> JsonObject:
        return deny_tool_use("not now")

    async with open_hook_relay() as relay:
        registration = register(relay, RecordingHandler(block))
        printed = await run_command(command_of(registration, "PreToolUse"))
    assert json.loads(printed) == deny_tool_use("not now")


@requirement("codex:relay-is-small")
def test_the_command_imports_nothing_but_built_in_modules() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        f"exec(open({str(COMMAND)!r}).read(), {{'__name__': 'command'}})\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True)
    assert done.stdout.decode().strip() == "[]", done.stderr


def test_the_relay_of_a_session_is_stable_and_its_own() -> None:
    assert make_relay_id("main", "a") == make_relay_id("main", "a")
    assert (
        len({make_relay_id("main", "a"), make_relay_id("main", "b"), make_relay_id("x", "a")}) == 3
    )
    assert len(make_relay_id("main", "a")) == 46


def test_hooks_without_work_are_removed_from_a_thread() -> None:
    registration = RelayRegistration(
        relay_id="codex-1",
        generation="g",
        handler=RecordingHandler(),
        config=HookRelayConfig(),
        socket_path="/nowhere",
    )
    config: Any = registration.thread_config((), must_answer=True)
    assert config["features.hooks"] is False
    assert [config[f"hooks.{name}"] for name in ("PreToolUse", "PostToolUse", "Stop")] == [[]] * 3
    assert all(state == {"enabled": False} for state in config["hooks.state"].values())


async def test_searchable_tools_of_nacre_cost_no_process() -> None:
    async with open_hook_relay() as relay:
        config: Any = register(relay, RecordingHandler()).thread_config(EVENTS, must_answer=True)
    (group,) = config["hooks.PreToolUse"]
    names = ("Bash", "apply_patch", "mcp__openclaw__x", "openclaw", "open", "openclam", "o")
    asked = [name for name in (*names, "openclawlist") if re.search(group["matcher"], name)]
    assert asked == [name for name in names if name != "openclaw"]
