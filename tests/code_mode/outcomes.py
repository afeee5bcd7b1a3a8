"""What came of a call, for tests that know which of the three it has to be."""

from typing import Any

import anyio

from nacre import CodeModeResult, CodeModeRun, Completed, DirectResult, Failed, Waiting
from nacre.json_types import JsonValue
from nacre.trajectory import EventKind, TrajectoryEvent


def value_of(result: CodeModeResult | DirectResult) -> Any:
    assert isinstance(result, Completed), result
    return result.value


def waiting_of(result: CodeModeResult | DirectResult) -> Waiting:
    assert isinstance(result, Waiting), result
    return result


def failure_of(result: CodeModeResult | DirectResult) -> Failed:
    assert isinstance(result, Failed), result
    return result


def events_of(run: CodeModeRun, kind: EventKind) -> list[TrajectoryEvent]:
    return [event for event in run.trajectory.events if event.kind == kind]


class Recorded:
    """Notices when a run records something; made before that can happen."""

    def __init__(self, run: CodeModeRun, kind: EventKind, **data: JsonValue) -> None:
        self._kind = kind
        self._data = data
        self._happened = anyio.Event()
        run.trajectory.subscribe(self._notice)

    async def wait(self) -> None:
        with anyio.fail_after(30):
            await self._happened.wait()

    def _notice(self, event: TrajectoryEvent) -> None:
        if event.kind == self._kind and event.data.items() >= self._data.items():
            self._happened.set()
