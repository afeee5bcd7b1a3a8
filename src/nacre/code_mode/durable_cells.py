"""Durable cells: stores a suspended cell and the state of its calls, for another process.

A cell is stored when it is suspended, and deleted when it ends. While it is stored, each call is
recorded before its tool runs and after that. So after a crash it is known which calls are done,
which were under way, and which have not begun.
"""

from __future__ import annotations

import logging
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from nacre.errors import HostRequestError, StorageError, ToolFailedError
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.large_json import CheckedJson, encode_off_loop
from nacre.lazy_dataclasses import dataclass
from nacre.sandbox import StoredCell
from nacre.sandbox import results as cell_results
from nacre.sandbox.cell_leg import SHORT_PERSON_WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nacre.code_mode.cell import ExecInput
    from nacre.config import Language
    from nacre.json_types import JsonValue
    from nacre.run_context import RunContext
    from nacre.sandbox import CellId, Output
    from nacre.storage import CallRecord, CellRecord, CellStore, TurnState
    from nacre.tools import Tool

logger = logging.getLogger(__name__)

_MAX_SHOWN_CALLS: Final = 10


def _describe_nothing(_cell_id: str) -> TurnState | None:
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class DurableRun:
    """Where the cells of a run are stored, and what is stored about the run itself."""

    store: CellStore
    describe_turn: Callable[[str], TurnState | None] = _describe_nothing
    """What the turn needs to continue in another process; stored with the suspended cell that it
    is given the id of."""
    person_seconds: float = SHORT_PERSON_WAIT_SECONDS
    """How long a program runs on while it waits only for people, before its cell is stored."""


class CellJournal:
    """The stored state of one cell."""

    def __init__(
        self,
        run: DurableRun,
        *,
        context: RunContext,
        scope: str,
        call_id: str,
        record: CellRecord | None = None,
        epoch: int = 0,
    ) -> None:
        """`record` is a cell of another process that was claimed with this epoch."""
        self._run = run
        self._store = run.store
        self._context = context
        self._scope = scope
        self._call_id = call_id
        self._epoch = epoch
        """The epoch in the store; 0 if the cell is not stored."""
        self._cell_id = "" if record is None else record.id
        self._calls = {} if record is None else {it.request_id: it for it in record.calls}
        self._inherited = set(self._calls)
        # A suspension stores the calls as they are at that moment.
        self._lock = anyio.Lock()
        self._is_detached = False

    def find_inherited(self, request_id: int) -> CallRecord | None:
        """The call of this request that another process has begun, unless it was repeated."""
        return self._calls.get(request_id) if request_id in self._inherited else None

    async def start_call(self, request_id: int, tool_id: str) -> None:
        """Record that a tool is about to run. Raises StorageError."""
        async with self._lock:
            # Imported here, as below: few cells are durable.
            from nacre.storage import CallRecord

            call = CallRecord(request_id=request_id, tool_id=tool_id, state="started")
            if self.is_stored:
                await self._store.start_call(self._cell_id, call, epoch=self._epoch)
            # A cell that is not stored is lost with its process. Its calls are stored with it.
            self._calls[request_id] = call
            self._inherited.discard(request_id)

    async def finish_call(self, request_id: int, answer: CheckedJson) -> None:
        """Record the answer of a call whose tool has run."""
        call = self._calls.get(request_id)
        if call is None or request_id in self._inherited:
            return
        try:
            text = (await encode_off_loop(answer)).decode()
        except (NotJsonError, ValueError):
            # The program gets an error instead of this answer, now and after a restart.
            text = encode_json({"error": {"message": "the result is not JSON"}}).decode()
        async with self._lock:
            from nacre.storage import CallRecord

            self._calls[request_id] = CallRecord(
                request_id=request_id, tool_id=call.tool_id, state="done", result=text
            )
            if not self.is_stored:
                return
            try:
                await self._store.finish_call(self._cell_id, request_id, text, epoch=self._epoch)
            except StorageError as error:
                # The program gets its answer. After a crash, the outcome would be unknown.
                logger.error("the result of %s is not stored: %s", call.tool_id, error)

    async def suspend(
        self,
        cell: StoredCell,
        program: ExecInput,
        output: Sequence[Output],
        *,
        recorded_bursts: int,
        ttl_seconds: float,
        max_per_session: int,
    ) -> bool:
        """Store the cell; False if its session has too many of them. Raises StorageError."""
        async with self._lock:
            open_ids = {number for number, _, _ in cast("Any", cell.data["requests"])}
            calls = {key: call for key, call in self._calls.items() if key in open_ids}
            from nacre.storage import CellRecord

            record = CellRecord(
                id=cell.cell_id,
                session_id=self._context.session_id,
                run_id=self._context.run_id,
                call_id=self._call_id,
                scope=self._scope,
                epoch=self._epoch + 1,
                number=cell.number,
                snapshot=cell.snapshot,
                data={
                    "cell": cell.data,
                    "seal": cell.seal,
                    "code": program.code,
                    "language": program.language,
                    "output": [_output_to_json(item) for item in output],
                    "recordedBursts": recorded_bursts,
                },
                calls=tuple(calls.values()),
                image=cell.image,
            )
            is_stored = await self._store.suspend(
                record,
                ttl_seconds=ttl_seconds,
                max_per_session=max_per_session,
                turn_state=self._run.describe_turn(cell.cell_id),
            )
            if is_stored:
                self._cell_id, self._epoch, self._calls = cell.cell_id, record.epoch, calls
            return is_stored

    async def delete(self) -> None:
        """The cell has ended; nobody can resume it any more."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                if not self.is_stored:
                    return
                try:
                    await self._store.delete(self._cell_id, epoch=self._epoch)
                except StorageError as error:
                    logger.error("the cell %s is not deleted: %s", self._cell_id, error)
                self._epoch = 0

    async def settle(self) -> None:
        """Wait until a write that has begun has ended."""
        async with self._lock:
            pass

    def detach(self) -> None:
        """Leave the cell in the store for the next process."""
        self._is_detached = True

    @property
    def person_seconds(self) -> float:
        """How long the program runs on while it waits only for people."""
        return self._run.person_seconds

    @property
    def is_stored(self) -> bool:
        """Whether another process finds the cell."""
        return self._epoch > 0 and not self._is_detached


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredProgram:
    """The parts of a stored cell that the sandbox does not know."""

    stored: StoredCell
    code: str
    language: Language
    recorded_bursts: int
    """How many bursts are in the trajectory."""
    output: tuple[Output, ...] = ()
    """What the program wrote before, and the model has not seen yet."""
    lost_calls: tuple[CallRecord, ...] = field(default=())
    """Calls that were made after the snapshot, so that it cannot be restored."""


def read_record(record: CellRecord) -> RestoredProgram:
    """Parse a stored cell. Raises KeyError, TypeError or ValueError for one that is damaged."""
    data = cast("dict[str, Any]", record.data)
    cell: dict[str, Any] = data["cell"]
    open_ids = {number for number, _, _ in cell["requests"]}
    # The seal covers `cell` only.
    for key, kind in (("seal", str), ("code", str), ("language", str), ("recordedBursts", int)):
        if not isinstance(data[key], kind):
            raise TypeError(f"{key} is {data[key]!r}")
    return RestoredProgram(
        stored=StoredCell(
            cell_id=cast("CellId", record.id),
            number=record.number,
            image=record.image,
            snapshot=record.snapshot,
            data=cell,
            seal=data["seal"],
        ),
        code=data["code"],
        language=data["language"],
        recorded_bursts=data["recordedBursts"],
        output=tuple(map(_output_from_json, data["output"])),
        lost_calls=tuple(call for call in record.calls if call.request_id not in open_ids),
    )


def describe_lost(calls: Sequence[CallRecord]) -> str:
    """Why a cell cannot be continued, with the calls that it made since it was stored."""
    done = [call.tool_id for call in calls if call.state == "done"]
    unknown = [call.tool_id for call in calls if call.state == "started"]
    parts = [
        f"{label}: {', '.join(ids[:_MAX_SHOWN_CALLS])}{' and more' * (len(ids) > _MAX_SHOWN_CALLS)}"
        for label, ids in (("completed calls", done), ("calls with an unknown outcome", unknown))
        if ids
    ]
    return (
        "the process that ran the program ended, and the program had made calls since it was last "
        f"stored, which are not repeated; {'; '.join(parts)}; check their effects before you "
        "continue with a new program"
    )


def can_repeat(tool: Tool) -> bool:
    """Whether a call with an unknown outcome may be made again. A client sees that a call with the
    same id is the same call."""
    return tool.is_idempotent or tool.source == "client"


def outcome_unknown(tool_id: str) -> ToolFailedError:
    """The error of a call that was under way when its process ended."""
    return ToolFailedError(
        f"the process ended while {tool_id} was running, so it is not known whether the call took "
        "effect; it was not repeated. Check before you call it again",
        code="outcome_unknown",
        tool_id=tool_id,
    )


def answer_from(call: CallRecord) -> CheckedJson:
    """The recorded answer of a call. Raises HostRequestError if the call has failed, and
    ToolFailedError if the record is damaged."""
    try:
        answer = decode_json(call.result.encode())
    except (NotJsonError, ValueError):
        answer = None
    match answer:
        case {"error": {"message": str(message), **rest}}:
            data = rest.get("data", {})
            raise HostRequestError(
                message,
                name=str(rest.get("name", "Error")),
                code=cast("Any", rest.get("code")),
                data=data if isinstance(data, dict) else {},
            )
        case {"value": value, **rest} if not rest:
            return CheckedJson(value)
        case _:
            raise ToolFailedError(
                f"the stored result of {call.tool_id} is damaged; the call was not repeated. Check "
                "what it did before you call it again",
                code="outcome_unknown",
                tool_id=call.tool_id,
            )


def _output_to_json(item: Output) -> JsonValue:
    match item:
        case cell_results.ImageOutput():
            return {"type": "image", "mimeType": item.media_type, "data": item.data}
        case _:
            return item.to_json()


def _output_from_json(item: dict[str, Any]) -> Output:
    match item:
        case {"type": "image", "mimeType": str(media_type), "data": str(data)}:
            return cell_results.ImageOutput(media_type=media_type, data=data)
        case {"type": "json", "value": value}:
            return cell_results.JsonOutput(value=value)
        case {"type": "text", "text": str(text)}:
            return cell_results.TextOutput(text=text)
        case _:
            raise ValueError("an item of the output is not an image, JSON or text")
