"""Writes what a replay of a cell needs to the trajectory: `replay.catalog` and `replay.bursts`.

Results of tools are in the trajectory already, and most of them are exact. A burst then has only
the number of the request. Other answers are part of the burst. Bursts are written together, at the
end of each leg or after some bursts.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from nacre.json_types import NotJsonError, decode_json
from nacre.lazy_dataclasses import dataclass
from nacre.sandbox.results import Completed, Failed
from nacre.telemetry import Redaction
from nacre.telemetry.redaction import remove_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.config import Language
    from nacre.json_types import JsonObject, JsonValue
    from nacre.sandbox import CellId, CellResult, Limits, Sandbox, SharedData
    from nacre.sandbox.recording import BurstRecord
    from nacre.trajectory import TrajectoryRecorder

# Larger than the limits of other events: a program that got half of a result takes another path.
MAX_ANSWER_CHARACTERS: Final = 65_536
ANSWER_REDACTION: Final = Redaction(
    max_text_characters=MAX_ANSWER_CHARACTERS,
    max_items=20_000,
    max_total_characters=MAX_ANSWER_CHARACTERS,
)
_MAX_CODE_CHARACTERS: Final = 262_144
CODE_REDACTION: Final = Redaction(max_text_characters=_MAX_CODE_CHARACTERS)
# The answers of one burst.
_MAX_BURST_BYTES: Final = 4 * MAX_ANSWER_CHARACTERS
# The bursts of one event.
_MAX_BURSTS: Final = 64
_MAX_EVENT_BYTES: Final = 65_536
# All parts of a catalog. Compressing more would stop the event loop.
_MAX_CATALOG_BYTES: Final = 512 << 10
_BYTES_PER_BURST: Final = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramInfo:
    """The program of a cell and what it runs with."""

    code: str
    language: Language
    limits: Limits
    shared: SharedData
    sandbox: Sandbox


class CellRecorder:
    """Records the bursts of one cell. Pass `add` as `on_burst` of the cell."""

    def __init__(
        self,
        recorder: TrajectoryRecorder,
        program: ProgramInfo,
        *,
        call_id: str,
        earlier_bursts: int | None = None,
    ) -> None:
        """`earlier_bursts` is how many bursts another process has recorded, with the program."""
        self.cell_id: CellId | str = ""
        self._recorder = recorder
        self._call_id = call_id
        self._program = program if earlier_bursts is None else None
        self._pending: list[tuple[BurstRecord, list[JsonValue]]] = []
        self._size = 0
        self.count = earlier_bursts or 0
        """How many bursts are written."""

    def add(self, burst: BurstRecord) -> None:
        """Add a burst that begins. All earlier ones have ended."""
        if len(self._pending) >= _MAX_BURSTS or self._size > _MAX_EVENT_BYTES:
            self.write()
        left = _MAX_BURST_BYTES
        answers: list[JsonValue] = []
        for request_id, is_success, pieces in burst.answers:
            answer, size = self._encode_answer(request_id, pieces, is_success, left)
            answers.append(answer)
            left -= size
        # Only the encoded form is needed from now on.
        burst.answers = ()
        self._pending.append((burst, answers))
        self._size += _MAX_BURST_BYTES - left + _BYTES_PER_BURST

    def write(self, result: CellResult | None = None) -> None:
        """Write the bursts so far, and the end of the program if this is its last result."""
        end = self._encode_end(result)
        if not self._pending and self._program is None and end is None:
            return
        data: JsonObject = {"runId": self.cell_id, "first": self.count}
        size = self._size
        if self._program is not None:
            data["program"] = self._encode_program(self._program)
            size += min(len(self._program.code), _MAX_CODE_CHARACTERS)
            self._program = None
        data["bursts"] = [self._encode_burst(*pending) for pending in self._pending]
        if end is not None:
            data["end"] = end
        self.count += len(self._pending)
        self._pending = []
        self._size = 0
        self._recorder.record_redacted("replay.bursts", data, size=size, call_id=self._call_id)

    def _encode_program(self, program: ProgramInfo) -> JsonObject:
        digest = program.shared.digest
        if digest not in self._recorder.recorded_catalogs:
            self._recorder.recorded_catalogs.add(digest)
            catalog, size = encode_catalog(program.shared)
            self._recorder.record_redacted(
                "replay.catalog", catalog, size=size, call_id=self._call_id
            )
        code = redact_code(program.code, self._recorder.redaction)
        limits = program.limits
        encoded: JsonObject = {
            "code": code,
            "language": program.language,
            # Not `asdict`, for which the class would need more methods.
            "limits": {name: getattr(limits, name) for name in limits.__slots__},
            "image": program.sandbox.image,
            "catalog": digest,
        }
        if self._recorder.redaction != Redaction():
            encoded["redaction"] = asdict(self._recorder.redaction)
        return encoded if code == program.code else {**encoded, "isExact": False}

    def _encode_answer(
        self, request_id: int, pieces: Sequence[bytes], is_success: bool, max_bytes: int
    ) -> tuple[JsonValue, int]:
        exact = self._recorder.exact_results
        call_id = f"{self._call_id}.{request_id}"
        if is_success and call_id in exact:
            del exact[call_id]
            return request_id, 0
        # A longer text cannot be recorded whole, unless it is full of escapes.
        if (total := sum(map(len, pieces))) > min(max_bytes, 2 * MAX_ANSWER_CHARACTERS):
            return [request_id, is_success, f"[{total:,} bytes]", False], 0
        try:
            value = decode_json(b"".join(pieces))
        except NotJsonError:
            return [request_id, is_success, None, False], 0
        redacted, size, is_exact = ANSWER_REDACTION.sized_value(value)
        answer: list[JsonValue] = [request_id, is_success, redacted]
        return answer if is_exact else [*answer, False], size

    def _encode_burst(self, burst: BurstRecord, answers: list[JsonValue]) -> JsonObject:
        encoded: JsonObject = {"command": burst.command}
        if burst.seed:
            encoded["seed"] = burst.seed
        if answers:
            encoded["answers"] = answers
        if burst.clock:
            encoded["clock"] = [*burst.clock]
        if burst.output_count:
            encoded["output"] = burst.output_count
        if burst.requests:
            redact = self._recorder.redaction
            encoded["requests"] = [
                [each.id, each.method, redact.input(each.payload)] for each in burst.requests
            ]
        if burst.yields:
            text = self._recorder.redaction.text
            encoded["yields"] = [[each.id, text(each.reason)] for each in burst.yields]
        if not burst.is_ended:
            encoded["isLost"] = True
        if burst.failed is not None:
            encoded["isFailed"] = True
        return encoded

    def _encode_end(self, result: CellResult | None) -> JsonObject | None:
        match result:
            case Completed() | Failed():
                return encode_end(result, self._recorder.redaction)
            case _:
                return None


def encode_end(result: Completed | Failed, redaction: Redaction) -> JsonObject:
    """The end of a program as it is recorded; a replay compares it in this form."""
    if isinstance(result, Completed):
        return {"status": "completed", "value": redaction.value(result.value)}
    error = redaction.text(result.error)
    return {"status": "failed", "reason": result.reason, "error": error}


def redact_code(code: str, redaction: Redaction) -> str:
    """The source of a program as it is recorded: almost any program fits."""
    if not redaction.keep_inputs:
        return str(redaction.input(code))
    return CODE_REDACTION.text(code)


@lru_cache(maxsize=8)
def encode_catalog(shared: SharedData) -> tuple[JsonObject, int]:
    """The parts of a catalog without secrets, compressed, and their size. The names of parts that
    do not fit, or had a secret, are under `missing` and `redacted`.

    Cached, also for equal data: a client that brings its tools makes new data with each run.
    """
    parts: JsonObject = {}
    missing: list[JsonValue] = []
    redacted: list[JsonValue] = []
    left = _MAX_CATALOG_BYTES
    for name in sorted(shared.parts, key=lambda name: len(shared.parts[name])):
        text = shared.parts[name]
        left -= len(text)
        if left < 0:
            missing.append(name)
            continue
        clean = remove_secrets(text.decode()).encode()
        if clean != text:
            redacted.append(name)
        parts[name] = base64.b64encode(zlib.compress(clean, 1)).decode()
    data: JsonObject = {
        "digest": shared.digest,
        "methods": [*sorted(shared.methods)],
        "parts": parts,
        "missing": missing,
        "redacted": redacted,
    }
    return data, sum(len(str(part)) for part in parts.values())
