"""A process that is killed at any moment loses no turn that it had ended, and halves none."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import pytest

from nacre.messages import AssistantMessage, Usage, UserMessage
from nacre.storage import open_store
from tests.forked_python import FORKED_PYTHON

if TYPE_CHECKING:
    from nacre.storage import StoredMessage
    from tests.storage.conftest import PostgresServer

_KILLS: Final = 20
_WRITER: Final = Path(__file__).with_name("turn_writer.py")


def killed_writers(url: str, *, kills: int) -> dict[str, list[str]]:
    """The run ids that each writer had reported before it was killed, by session."""
    reported: dict[str, list[str]] = {}
    with subprocess.Popen(
        [FORKED_PYTHON, _WRITER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(kills):
            process.stdin.write(f"s{number}\n")
            process.stdin.flush()
            writer = int(process.stdout.readline())
            lines = [process.stdout.readline() for _ in range(random.randrange(1, 12))]
            # Not to wait for anything, but to hit another moment each time.
            time.sleep(random.random() * 0.004)
            os.kill(writer, signal.SIGKILL)
            while (line := process.stdout.readline()) != "gone\n":
                lines.append(line)
            reported[f"s{number}"] = [line.strip() for line in lines]
        process.stdin.close()
    return reported


def names_in(folder: Path) -> list[str]:
    return sorted(it.name for it in folder.iterdir())


def wait_until_nobody_is_connected(server: PostgresServer) -> None:
    """A server notices that a connection is gone when it next looks."""
    while server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") != "0":
        time.sleep(0.02)


def is_whole(run_id: str, messages: list[StoredMessage]) -> bool:
    match [it.message for it in messages]:
        case [UserMessage(text=asked), AssistantMessage(text=said)]:
            return (asked, said) == (f"{run_id} asks", f"{run_id} says " + "x" * 5_000)
        case _:
            return False


async def check_all_is_there(url: str, reported: dict[str, list[str]]) -> None:
    async with open_store(url) as store:
        interrupted = await store.interrupt_open_turns()
        open_turns = 0
        for session_id, run_ids in reported.items():
            assert run_ids
            messages = await store.messages(session_id)
            assert [it.sequence for it in messages] == list(range(len(messages)))
            turns = {it.run_id: it for it in await store.turns(session_id, limit=1000)}
            assert set(run_ids) <= set(turns)
            for run_id, turn in turns.items():
                of_turn = [it for it in messages if it.run_id == run_id]
                if turn.status == "completed":
                    assert is_whole(run_id, of_turn)
                else:
                    open_turns += 1
                    assert turn.status == "interrupted"
                    assert run_id not in run_ids
                    assert of_turn == []
        assert interrupted == open_turns


async def check_sessions_go_on(url: str) -> None:
    async with open_store(url) as store:
        await store.begin_turn(run_id="r", session_id="s0", prompt=None, model="", surface="")
        await store.end_turn("r", status="completed", messages=[], usage=Usage())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the writers are forks")
async def test_a_killed_process_loses_and_halves_no_turn_in_a_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nacre.db"
    with anyio.fail_after(100):
        reported = await anyio.to_thread.run_sync(lambda: killed_writers(url, kills=_KILLS))
        await check_all_is_there(url, reported)
        await check_sessions_go_on(url)
    assert names_in(tmp_path) == ["nacre.db"]


async def test_a_killed_process_loses_and_halves_no_turn_on_a_server(
    postgres: PostgresServer,
) -> None:
    url = postgres.url()
    with anyio.fail_after(100):
        reported = await anyio.to_thread.run_sync(lambda: killed_writers(url, kills=5))
        await anyio.to_thread.run_sync(wait_until_nobody_is_connected, postgres)
        await check_all_is_there(url, reported)
        await check_sessions_go_on(url)
