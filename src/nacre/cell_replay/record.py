"""Reads the recorded cells of a trajectory, and checks them: a record may be damaged or edited."""

from __future__ import annotations

import base64
import binascii
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from nacre.config import LANGUAGES
from nacre.errors import ConfigError, ReplayError, WorkerProtocolError
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.sandbox import Limits, SharedData
from nacre.sandbox.worker_protocol import read_clock
from nacre.telemetry import Redaction

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from nacre.config import Language
    from nacre.json_types import JsonObject, JsonValue
    from nacre.sandbox.recording import BurstCommand
    from nacre.trajectory import TrajectoryEvent

_COMMANDS: Final = ("start", "deliver", "timers")
# All catalogs of a record. One has half a mebibyte; a small file could unpack to any size.
_MAX_CATALOG_BYTES: Final = 32 << 20
_MAX_SHOWN: Final = 80
_MAX_NAMED: Final = 10
_HOST_STOPS: Final = ("aborted", "expired")


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedAnswer:
    """The answer to one request of the program."""

    id: int
    is_success: bool
    value: JsonValue
    is_exact: bool = True
    """False if the value was redacted or cut."""

    @property
    def encoded(self) -> bytes:
        return encode_json(self.value)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRequest:
    """One request, such as a call of a tool."""

    id: int
    method: str
    payload: JsonValue


@dataclass(kw_only=True, slots=True)
class RecordedBurst:
    """One burst of the program, with its output."""

    command: BurstCommand
    seed: str
    clock: tuple[int, ...]
    answers: tuple[RecordedAnswer, ...]
    requests: tuple[RecordedRequest, ...]
    yields: tuple[str, ...]
    is_lost: bool
    """Whether its worker was lost, or it did not end within its time."""
    is_failed: bool
    output_count: int
    output: tuple[JsonObject, ...] = ()

    @property
    def is_restored(self) -> bool:
        """Whether the program was suspended before this burst: it then got a new seed."""
        return self.command != "start" and bool(self.seed)


@dataclass(kw_only=True, slots=True)
class RecordedCell:
    """The record of one cell."""

    cell_id: str
    call_id: str
    code: str
    language: Language
    limits: Limits
    image: str
    shared: SharedData
    redaction: Redaction
    """The rules of the record. A replay is compared after it was redacted in the same way."""
    started: float
    """The time of the first record, in seconds since the epoch."""
    is_code_exact: bool = True
    """False if the code was redacted or cut."""
    unknown: list[str] = field(default_factory=list[str])
    """What was redacted or left out, apart from answers."""
    bursts: list[RecordedBurst] = field(default_factory=list[RecordedBurst])
    output: list[JsonObject] = field(default_factory=list["JsonObject"])
    end: JsonObject | None = None
    """How the program ended; None if it did not."""
    stop: str = ""
    """Why the host ended the program, such as `aborted`; empty if it did not."""


def read_cells(
    events: Iterable[TrajectoryEvent], *, cell_id: str | None = None
) -> list[RecordedCell]:
    """The cells of a trajectory in the order of their records, or the one with this id. Raises
    ReplayError if there are none, or if the record of one of them was cut or damaged."""
    reader = _Reader(cell_id)
    for event in events:
        reader.add(event)
    known = {**reader.started, **reader.cells}
    if not known:
        raise ReplayError("the run has no programs, so there is nothing to replay")
    if cell_id is not None and cell_id not in known:
        shown = ", ".join(list(known)[:_MAX_NAMED])
        more = f" and {len(known) - _MAX_NAMED} more" if len(known) > _MAX_NAMED else ""
        problem = f"there is no cell {cell_id[:_MAX_SHOWN]!r} in this run"
        raise ReplayError(f"{problem}; its cells are {shown}{more}")
    wanted = known if cell_id is None else [cell_id]
    lost = [each for each in wanted if each not in reader.cells]
    if lost and not reader.has_replay_events:
        raise ReplayError(
            "the trajectory has no replay events: an older version of Nacre recorded it; run the "
            "program again with this version"
        )
    if lost:
        raise ReplayError(
            f"the record of the cell {lost[0]!r} was cut: it has no replay events; its process may "
            "have been killed; replay another cell with its id"
        )
    cells = [reader.cells[each] for each in wanted]
    for cell in cells:
        _assign_output(cell)
    return cells


class _Reader:
    """Collects the records of all cells, or of one."""

    def __init__(self, wanted: str | None) -> None:
        self.cells: dict[str, RecordedCell] = {}
        self.started: dict[str, None] = {}
        self.has_replay_events = False
        self._wanted = wanted
        self._catalogs: dict[str, tuple[SharedData, list[str]]] = {}
        self._bytes_left = _MAX_CATALOG_BYTES
        self._results: dict[str, JsonValue] = {}

    def add(self, event: TrajectoryEvent) -> None:
        data = event.data
        cell = self.cells.get(str(data.get("runId", "")))
        match event.kind:
            case "replay.catalog":
                digest = str(data.get("digest"))
                with _describe_damage("a recorded catalog"):
                    shared, unknown = _read_catalog(data, max_bytes=self._bytes_left)
                    self._bytes_left -= sum(map(len, shared.parts.values()))
                    self._catalogs[digest] = (shared, unknown)
            case "replay.bursts":
                self.has_replay_events = True
                cell_id = str(data.get("runId", ""))
                self.started[cell_id] = None
                if self._wanted in (None, cell_id):
                    self._add_bursts(event, cell_id)
            case "cell.started":
                self.started[str(data.get("runId", ""))] = None
            case "call.ended" if event.parent_id and data.get("outcome") == "completed":
                self._results[event.call_id] = data.get("result")
            case "cell.output" if cell is not None:
                cell.output.append({key: each for key, each in data.items() if key != "runId"})
            case "cell.ended" if cell is not None and data.get("status") in _HOST_STOPS:
                cell.stop = str(data["status"])
            case _:
                pass

    def _add_bursts(self, event: TrajectoryEvent, cell_id: str) -> None:
        data = event.data
        with _describe_damage(f"the record of the cell {cell_id[:_MAX_SHOWN]!r}"):
            if cell_id not in self.cells:
                self.cells[cell_id] = self._read_program(event, cell_id)
            cell = self.cells[cell_id]
            first = cast("int", data["first"])
            if not 0 <= first <= len(cell.bursts):
                raise ValueError(f"{first} bursts should be before this, not {len(cell.bursts)}")
            if first < len(cell.bursts):
                # A process was killed before it stored the cell: the next one ran these again.
                del cell.bursts[first:]
                del cell.output[sum(burst.output_count for burst in cell.bursts) :]
            for burst in cast("list[Any]", data["bursts"]):
                cell.bursts.append(self._read_burst(cast("dict[str, Any]", burst), cell.call_id))
            end = data.get("end")
            if end is not None:
                cell.end = _check_end(end)

    def _read_program(self, event: TrajectoryEvent, cell_id: str) -> RecordedCell:
        program = event.data.get("program")
        if not isinstance(program, dict):
            raise TypeError("its beginning was dropped from the trajectory")
        language = program["language"]
        if language not in LANGUAGES:
            raise ValueError(f"the language is {language!r}")
        code, digest = program["code"], str(program["catalog"])
        if not isinstance(code, str):
            raise TypeError("the program is not text")
        if digest not in self._catalogs:
            raise ValueError("its catalog was dropped from the trajectory")
        shared, unknown = self._catalogs[digest]
        limits = cast("dict[str, Any]", program["limits"])
        redaction = cast("dict[str, Any]", program.get("redaction") or {})
        return RecordedCell(
            cell_id=cell_id,
            call_id=event.call_id,
            code=code,
            language=language,
            limits=Limits(**limits),
            image=str(program.get("image", "")),
            shared=shared,
            redaction=Redaction(**redaction),
            started=event.time,
            is_code_exact=program.get("isExact") is not False,
            unknown=list(unknown),
        )

    def _read_burst(self, burst: dict[str, Any], call_id: str) -> RecordedBurst:
        command = burst["command"]
        if command not in _COMMANDS:
            raise ValueError(f"the command of a burst is {command!r}")
        seed = burst.get("seed", "")
        bytes.fromhex(seed)
        if seed and len(seed) != 32:
            raise ValueError("a seed does not have 32 digits")
        clock = burst.get("clock")
        return RecordedBurst(
            command=command,
            seed=seed,
            clock=() if clock is None else read_clock(clock),
            answers=tuple(self._read_answer(each, call_id) for each in burst.get("answers", [])),
            requests=tuple(
                RecordedRequest(id=int(number), method=str(method), payload=payload)
                for number, method, payload in burst.get("requests", [])
            ),
            yields=tuple(str(reason) for _, reason in burst.get("yields", [])),
            is_lost=bool(burst.get("isLost", False)),
            is_failed=bool(burst.get("isFailed", False)),
            output_count=int(burst.get("output", 0)),
        )

    def _read_answer(self, answer: Any, call_id: str) -> RecordedAnswer:
        if isinstance(answer, int):
            result_id = f"{call_id}.{answer}"
            if result_id not in self._results:
                raise ValueError(f"the result of {result_id} was dropped from the trajectory")
            return RecordedAnswer(id=answer, is_success=True, value=self._results[result_id])
        number, is_success, value, *inexact = answer
        return RecordedAnswer(
            id=int(number), is_success=bool(is_success), value=value, is_exact=not inexact
        )


def _check_end(end: JsonValue) -> JsonObject:
    if not isinstance(end, dict):
        raise TypeError("the end is not an object")
    for key in ("status", "reason"):
        if not isinstance(end.get(key, ""), str):
            raise TypeError(f"the {key} of the end is not text")
    return end


_PROBLEMS: Final = (
    AttributeError, ConfigError, KeyError, TypeError, ValueError, WorkerProtocolError,
)  # fmt: skip


@contextmanager
def _describe_damage(what: str) -> Generator[None]:
    """Convert errors in a record to ReplayError."""
    try:
        yield
    except _PROBLEMS as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ReplayError(f"{what} is damaged or was cut: {problem}") from error


def _read_catalog(data: JsonObject, *, max_bytes: int) -> tuple[SharedData, list[str]]:
    """The recorded parts of a catalog, and which parts are missing or have no secrets any more.
    Parts that would be larger together are missing."""
    parts: dict[str, bytes] = {}
    unknown: list[str] = []
    missing = _names(data, "missing")
    for name, encoded in cast("dict[str, Any]", data.get("parts") or {}).items():
        try:
            unpacker = zlib.decompressobj()
            # Zero would mean no limit.
            text = unpacker.decompress(base64.b64decode(str(encoded)), max(1, max_bytes))
            decode_json(text)
        except (binascii.Error, zlib.error, NotJsonError, ValueError):
            missing.append(name)
        else:
            parts[name] = text
            max_bytes -= len(text)
    if missing:
        unknown.append(f"parts of the catalog are missing: {', '.join(missing)}")
    redacted = _names(data, "redacted")
    if redacted:
        unknown.append(f"parts of the catalog were redacted: {', '.join(redacted)}")
    return SharedData(parts, methods=_names(data, "methods")), unknown


def _names(data: JsonObject, key: str) -> list[str]:
    names = data.get(key)
    return [str(name) for name in names] if isinstance(names, list) else []


def _assign_output(cell: RecordedCell) -> None:
    """Give each burst its items of output. The last one has those that are left."""
    at = 0
    for burst in cell.bursts:
        burst.output = tuple(cell.output[at : at + burst.output_count])
        at += burst.output_count
    if at > len(cell.output):
        cell.unknown.append(f"{at - len(cell.output)} items of output were not recorded")
    if cell.bursts and cell.bursts[-1].is_lost:
        cell.bursts[-1].output += tuple(cell.output[at:])
