"""Processes that are killed with SIGKILL while a turn waits: the next one continues the turn."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from nacre import replay
from nacre.sandbox import new_key
from nacre.storage import open_store
from nacre.trajectory import parse_event
from tests.code_mode.test_killed_cells import KILL_ROUNDS
from tests.forked_python import FORKED_PYTHON

if TYPE_CHECKING:
    from nacre.cell_replay import Replay
    from tests.storage.conftest import PostgresServer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forks")


@pytest.fixture(params=range(KILL_ROUNDS), autouse=True)
def kill_round(request: pytest.FixtureRequest) -> int:
    return request.param


# On a busy machine, the server notices a moment later that a process is gone.
_WAIT_FOR_LOCKS: Final = """
DO $$ BEGIN
    WHILE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory') LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$
"""
_PROCESS: Final = Path(__file__).with_name("durable_turn_process.py")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A database, keys and a folder that several processes use one after the other."""

    url: str
    folder: Path
    keys: str
    server: PostgresServer | None = None

    def run(self, command: str, *, failpoint: str = "") -> list[dict[str, Any]]:
        """What a process has printed before it was killed."""
        done = subprocess.run(
            [FORKED_PYTHON, _PROCESS, self.url, self.folder, self.keys, failpoint, command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == -9, done.stderr
        if self.server is not None:
            self.server.sql(_WAIT_FOR_LOCKS)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def replay(self) -> Replay:
        """Replay the program of the only run."""

        async def read() -> Replay:
            async with open_store(self.url) as store:
                events = [parse_event(it.event) for it in await store.events(limit=1000)]
            return await replay(events)

        return anyio.run(read)

    def count_payments(self) -> int:
        effects = self.folder / "effects"
        return len(effects.read_text("utf-8").splitlines()) if effects.exists() else 0


@pytest.fixture(params=["file", "postgres"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    keys = new_key().to_line()
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return Machine(url=server.url(), folder=tmp_path, keys=keys, server=server)
    return Machine(url=f"sqlite:///{tmp_path}/nacre.db", folder=tmp_path, keys=keys)


_COMPLETED: Final = ["paid", "because"]
_UNKNOWN: Final = ["outcome_unknown", "because"]
_FAILPOINTS: Final = [
    # The first suspension, at the approval.
    ("suspend:after:1", _COMPLETED, 1),
    # The tool runs after the approval.
    ("start_call:before:1", _COMPLETED, 1),
    ("start_call:after:1", _UNKNOWN, 0),
    ("finish_call:before:1", _UNKNOWN, 1),
    ("finish_call:after:1", _COMPLETED, 1),
    # The client is asked, and the second suspension.
    ("start_call:before:2", _COMPLETED, 1),
    ("suspend:before:2", "worker_lost", 1),
    ("suspend:after:2", _COMPLETED, 1),
    # Its result arrives, and the program ends.
    ("finish_call:before:2", _COMPLETED, 1),
    ("finish_call:after:2", _COMPLETED, 1),
    ("delete:before:1", _COMPLETED, 1),
]


def check_continued(
    machine: Machine, lines: list[dict[str, Any]], told: list[str] | str, payments: int
) -> None:
    *_, ended, stored = lines
    assert ended["state"] == "completed"
    result = json.loads(ended["result"])
    assert result.get("reason", result.get("value")) == told, result
    assert stored == {"turns": [{"status": "completed", "error": ""}], "cells": 0}
    assert machine.count_payments() == payments


@pytest.mark.parametrize(("failpoint", "told", "payments"), _FAILPOINTS)
def test_a_turn_continues_after_a_kill(
    machine: Machine, failpoint: str, told: list[str] | str, payments: int
) -> None:
    first = machine.run("start", failpoint=failpoint)
    lines = machine.run("continue")
    check_continued(machine, lines, told, payments)
    # An approval keeps its id; it is asked for again only if the tool has not begun.
    asked = {line["approval"] for line in [*first, *lines] if "approval" in line}
    assert len(asked) == 1


@pytest.mark.parametrize(
    "failpoint", ["suspend:after:1", "finish_call:before:1", "suspend:after:2"]
)
def test_the_record_of_a_program_that_continued_after_a_kill_is_complete(
    machine: Machine, failpoint: str
) -> None:
    machine.run("start", failpoint=failpoint)
    machine.run("continue")
    (cell,) = machine.replay().cells
    assert (cell.difference, cell.notes) == ("", ())
    assert cell.end is not None
    assert (len(cell.steps), cell.end["status"]) == (3, "completed")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_while_turns_are_adopted_loses_nothing(machine: Machine, moment: str) -> None:
    machine.run("start", failpoint="suspend:after:1")
    name = "take_over" if machine.url.startswith("postgresql") else "adopt_turns"
    machine.run("continue", failpoint=f"{name}:{moment}:1")
    check_continued(machine, machine.run("continue"), _COMPLETED, 1)


@pytest.mark.parametrize("failpoint", ["claim:before:1", "claim:after:1", "suspend:after:1"])
def test_a_kill_of_the_process_that_continues_loses_nothing(
    machine: Machine, failpoint: str
) -> None:
    machine.run("start", failpoint="suspend:after:1")
    machine.run("continue", failpoint=failpoint)
    check_continued(machine, machine.run("continue"), _COMPLETED, 1)


@pytest.mark.parametrize("failpoint", ["suspend:before:1", "delete_turn_state:after:1"])
def test_a_turn_that_does_not_wait_is_interrupted(machine: Machine, failpoint: str) -> None:
    machine.run("start", failpoint=failpoint)
    (stored,) = machine.run("continue")
    assert [turn["status"] for turn in stored["turns"]] == ["interrupted"]
    assert stored["cells"] == 0
    assert machine.count_payments() == (0 if failpoint.startswith("suspend") else 1)


@pytest.mark.parametrize("failpoint", ["delete:after:1", "delete_turn_state:before:1"])
def test_the_result_of_a_program_that_had_ended_is_reported_as_lost(
    machine: Machine, failpoint: str
) -> None:
    machine.run("start", failpoint=failpoint)
    *_, ended, stored = machine.run("continue")
    is_known = ended["result"] == '{"status":"completed","value":["paid","because"]}'
    is_lost = "is not known whether it took effect" in ended["result"]
    # Between the two commits, the result may have been stored with the turn.
    assert is_lost or (is_known and failpoint.startswith("delete_turn_state"))
    assert [turn["status"] for turn in stored["turns"]] == ["completed"]
    assert machine.count_payments() == 1
