"""What `wait` takes as a run id."""

import pytest

from nacre.code_mode.cell_registry import CellRefused
from nacre.code_mode.control_tools import parse_wait_input, wait_parameters
from nacre.ids import new_cell_id


def test_the_schema_asks_for_a_run_id() -> None:
    assert wait_parameters() == {
        "type": "object",
        "properties": {"runId": {"type": "string"}},
        "required": ["runId"],
    }


def test_the_id_of_a_run_is_taken() -> None:
    cell_id = new_cell_id()
    assert parse_wait_input({"runId": cell_id, "extra": 1}) == cell_id
    assert parse_wait_input({"runId": f" {cell_id}\n"}) == cell_id


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (None, "wait takes an object: {runId}"),
        ("run_1", "wait takes an object: {runId}"),
        ({}, "wait needs `runId`"),
        ({"run_id": "run_1"}, "wait needs `runId`"),
        ({"runId": None}, "wait needs `runId`"),
        ({"runId": 7}, "`runId` is a int, not text"),
        ({"runId": ["run_1"]}, "`runId` is a list, not text"),
    ],
)
def test_what_is_no_text_is_refused(arguments: object, problem: str) -> None:
    with pytest.raises(CellRefused) as caught:
        parse_wait_input(arguments)
    assert caught.value.message.startswith(problem)
    assert caught.value.reason == "invalid_input"


@pytest.mark.parametrize(
    "given", ["", "call_1", "run_", "run_../x", "run_1 run_2", "run_" + "a" * 10_000]
)
def test_text_that_is_no_run_id_is_a_run_that_is_not_there(given: str) -> None:
    with pytest.raises(CellRefused) as caught:
        parse_wait_input({"runId": given})
    assert caught.value.message.startswith(
        f"code mode run is unavailable or expired. {given[:60]!r} is not a run id of exec; "
    )
    assert caught.value.reason == "run_unavailable"
    assert len(caught.value.message) < 250
