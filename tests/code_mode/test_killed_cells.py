"""Processes that are killed with SIGKILL at each commit: no call is repeated or lost silently."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from nacre.sandbox import new_key
from nacre.storage import open_store
from tests.forked_python import FORKED_PYTHON

if TYPE_CHECKING:
    from tests.storage.conftest import PostgresServer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forks")

# `make test-kills` hits each failpoint more often.
KILL_ROUNDS: Final = int(os.environ.get("NACRE_KILL_ROUNDS", "1"))


@pytest.fixture(params=range(KILL_ROUNDS), autouse=True)
def kill_round(request: pytest.FixtureRequest) -> int:
    return request.param


_PROCESS: Final = Path(__file__).with_name("durable_process.py")
# More than a suspension and a resumption have.
_MAX_BOUNDARIES: Final = 31
_CHARGES: Final = """
const seen = [];
text("begun");
await yield_control("first");
seen.push(await tools.charge({}).catch((error) => error.code));
await yield_control("second");
text("end");
return seen;
"""
_OPEN_CALLS: Final = """
const held = tools.hold({ name: "hold" }).catch((error) => error.code);
const fetched = tools.fetch({ name: "fetch" });
return [await held, await fetched];
"""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A database, keys and a file of effects that several processes use one after the other."""

    url: str
    effects: Path
    keys: str

    def run(self, command: str, given: str, *, failpoint: str = "") -> dict[str, Any] | None:
        """The result that a process has printed before it was killed; None if it has not."""
        done = subprocess.run(
            [
                FORKED_PYTHON,
                _PROCESS,
                *(self.url, self.keys, str(self.effects), failpoint, command, given),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == -9, done.stderr
        return json.loads(done.stdout) if done.stdout else None

    def stored_cells(self) -> list[str]:
        async def read() -> list[str]:
            async with open_store(self.url) as store:
                return [cell.id for cell in await store.cells.of_run("r1")]

        return anyio.run(read)

    def done_effects(self) -> list[str]:
        if not self.effects.exists():
            return []
        return self.effects.read_text("utf-8").split("\n")[:-1]


@pytest.fixture(params=["file", "postgres"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    url = f"sqlite:///{tmp_path}/nacre.db"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url()
    return Machine(url=url, effects=tmp_path / "effects", keys=new_key().to_line())


def run_to_the_end(machine: Machine, cell_id: str) -> dict[str, Any]:
    """Resume the cell as often as it yields."""
    for _ in range(5):
        result = machine.run("wait", cell_id)
        assert result is not None
        if result["status"] != "waiting":
            return result
    raise AssertionError("the cell does not end")


@pytest.mark.parametrize(
    ("failpoint", "expected", "effects"),
    [
        ("start_call:before:1", ["charged"], 1),
        ("start_call:after:1", "calls with an unknown outcome: openclaw:core:charge", 0),
        ("finish_call:before:1", "calls with an unknown outcome: openclaw:core:charge", 1),
        ("finish_call:after:1", "completed calls: openclaw:core:charge", 1),
        ("suspend:before:1", "completed calls: openclaw:core:charge", 1),
        ("suspend:after:1", ["charged"], 1),
    ],
)
def test_a_kill_while_a_stored_cell_runs_repeats_no_call(
    machine: Machine, failpoint: str, expected: list[str] | str, effects: int
) -> None:
    waiting = machine.run("exec", _CHARGES)
    assert waiting is not None
    assert machine.run("wait", waiting["runId"], failpoint=failpoint) is None
    result = run_to_the_end(machine, waiting["runId"])
    if isinstance(expected, str):
        assert (result["status"], result["reason"]) == ("failed", "worker_lost")
        assert expected in result["error"]
    else:
        assert result["value"] == expected
    assert len(machine.done_effects()) == effects
    assert machine.stored_cells() == []


def test_a_kill_before_the_first_suspension_is_stored_leaves_nothing(machine: Machine) -> None:
    assert machine.run("exec", _CHARGES, failpoint="suspend:before:1") is None
    assert machine.stored_cells() == []
    assert machine.done_effects() == []


def test_a_kill_after_the_first_suspension_is_stored_loses_nothing(machine: Machine) -> None:
    assert machine.run("exec", _CHARGES, failpoint="suspend:after:1") is None
    (cell_id,) = machine.stored_cells()
    assert run_to_the_end(machine, cell_id)["value"] == ["charged"]
    assert len(machine.done_effects()) == 1


@pytest.mark.parametrize(("moment", "is_there"), [("before", True), ("after", False)])
def test_a_kill_at_the_end_of_a_cell_repeats_no_call(
    machine: Machine, moment: str, is_there: bool
) -> None:
    waiting = machine.run("exec", _CHARGES)
    assert waiting is not None
    cell_id = waiting["runId"]
    assert machine.run("wait", cell_id) is not None
    assert machine.run("wait", cell_id, failpoint=f"delete:{moment}:1") is None
    result = machine.run("wait", cell_id)
    assert result is not None
    if is_there:
        assert result["value"] == ["charged"]
        assert result["output"] == [{"type": "text", "text": "end"}]
    else:
        assert result["reason"] == "run_unavailable"
    assert len(machine.done_effects()) == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_while_a_cell_is_taken_over_loses_nothing(machine: Machine, moment: str) -> None:
    waiting = machine.run("exec", _CHARGES)
    assert waiting is not None
    assert machine.run("wait", waiting["runId"], failpoint=f"claim:{moment}:1") is None
    assert run_to_the_end(machine, waiting["runId"])["value"] == ["charged"]
    assert len(machine.done_effects()) == 1


@pytest.mark.parametrize("command", ["exec", "wait"])
@pytest.mark.parametrize("boundary", range(1, _MAX_BOUNDARIES, 1 if KILL_ROUNDS > 1 else 5))
def test_a_kill_at_the_boundary_of_any_statement_repeats_and_loses_nothing(
    machine: Machine, command: str, boundary: int
) -> None:
    failpoint = f"statement:{boundary}"
    first = machine.run("exec", _CHARGES, failpoint=failpoint if command == "exec" else "")
    if first is None:
        # The caller has not got the id, so the cell is there or not. If it is, it is complete.
        found = machine.stored_cells()
        assert len(found) <= 1
        assert machine.done_effects() == []
        cell_id = found[0] if found else ""
    else:
        cell_id = first["runId"]
    if command == "wait":
        machine.run("wait", cell_id, failpoint=failpoint)
    if not cell_id:
        return
    result = run_to_the_end(machine, cell_id)
    effects = len(machine.done_effects())
    assert effects <= 1
    if result["status"] == "completed":
        assert (result["value"], effects) == (["charged"], 1)
    else:
        # The call is named, whether it is done or not known.
        assert result["reason"] == "worker_lost", result
        assert "openclaw:core:charge" in result["error"]
    assert machine.stored_cells() == []


def test_a_call_under_way_has_an_unknown_outcome_unless_it_can_be_repeated(
    machine: Machine,
) -> None:
    waiting = machine.run("exec", _OPEN_CALLS)
    assert waiting is not None
    assert waiting["status"] == "waiting"
    result = run_to_the_end(machine, waiting["runId"])
    assert result["value"] == ["outcome_unknown", {"name": "fetch"}]
    held, fetched, repeated = machine.done_effects()
    assert held.startswith("hold r1:")
    # The same idempotency key.
    assert fetched == repeated
    assert fetched.startswith("fetch r1:")
