"""The report: complete, and the same after a journey as JSON."""

import json

import pytest

from nacre.sandbox.hardening import HardeningReport, Measure, attempt
from nacre.sandbox.hardening.linux import NotApplied


def test_a_report_survives_json() -> None:
    report = HardeningReport(
        measures=(
            Measure(name="seccomp", applied=True, detail="186 instructions"),
            Measure(name="landlock", applied=False, detail="no such call"),
        )
    )
    assert HardeningReport.from_json(json.loads(json.dumps(report.to_json()))) == report


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"measures": "all"},
        {"measures": ["seccomp"]},
        {"measures": [{"name": "seccomp", "applied": 1, "detail": ""}]},
        {"measures": [{"name": "seccomp", "applied": True}]},
    ],
)
def test_what_is_not_a_report_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="a hardening report needs"):
        HardeningReport.from_json(value)


def test_a_step_that_fails_becomes_a_measure_that_is_missing() -> None:
    def refuse() -> str:
        raise NotApplied("too old")

    def break_down() -> str:
        raise ZeroDivisionError("by accident")

    report = HardeningReport(
        measures=(
            attempt("good", lambda: "done"),
            attempt("refused", refuse),
            attempt("broken", break_down),
        )
    )
    assert report.measures[0] == Measure(name="good", applied=True, detail="done")
    assert report.missing == (
        Measure(name="refused", applied=False, detail="too old"),
        Measure(name="broken", applied=False, detail="ZeroDivisionError: by accident"),
    )
