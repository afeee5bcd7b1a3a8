"""Records of the bursts of a cell: what a program got, and what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonValue
    from nacre.sandbox.results import Failed
    from nacre.sandbox.worker_protocol import RequestEvent, YieldEvent

BurstCommand = Literal["start", "deliver", "timers"]
"""Why a burst runs: the program starts, gets answers, or has timers that are due."""


@dataclass(kw_only=True, slots=True)
class BurstRecord:
    """One burst. It is made when the burst begins; the second part is set when it has ended."""

    command: BurstCommand
    seed: str
    """The key of the random bytes from this burst on; empty if it is the same as before."""
    answers: Sequence[tuple[int, bool, Sequence[bytes]]]
    """The delivered answers in their order: id of the request, whether it succeeded, and JSON in
    pieces."""
    output_start: int

    is_ended: bool = False
    """False if its worker was lost, or the program did not stop at its deadline."""
    clock: tuple[int, ...] = ()
    """What the program read from its clock: see `GuestInputs.clock`."""
    requests: Sequence[RequestEvent] = ()
    yields: Sequence[YieldEvent] = ()
    output_count: int = 0
    value: tuple[JsonValue, ...] = ()
    """The value of the program, if it returned in this burst."""
    failed: Failed | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedInputs:
    """The clock and the seed of one burst, from a record."""

    seed: str = ""
    clock: Sequence[int] = ()

    def fields(self) -> dict[str, object]:
        """As fields of a command. A worker without a recorded clock uses the real one."""
        fields: dict[str, object] = {}
        if self.clock:
            fields["clock"] = list(self.clock)
        if self.seed:
            fields["seed"] = self.seed
        return fields
