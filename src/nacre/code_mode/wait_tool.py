"""The model-facing `wait` tool: its schema, and its input as a run id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from nacre.code_mode.cell_registry import UNAVAILABLE
from nacre.code_mode.exec_tool import InvalidInput
from nacre.ids import CellId

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

_RUN_ID: Final = re.compile(r"run_[A-Za-z0-9_-]{1,128}")
_MAX_SHOWN_ID: Final = 60


def wait_parameters() -> JsonObject:
    """JSON Schema of the input."""
    return {
        "type": "object",
        "properties": {"runId": {"type": "string"}},
        "required": ["runId"],
    }


def parse_wait_input(arguments: object) -> CellId:
    """Raises InvalidInput for what cannot be the id of a run, whoever's it is."""
    if not isinstance(arguments, Mapping):
        raise InvalidInput("wait takes an object: {runId}", reason="invalid_input")
    given = cast("Mapping[object, object]", arguments).get("runId")
    if given is None:
        raise InvalidInput(
            "wait needs `runId`, from the exec result whose status is waiting",
            reason="invalid_input",
        )
    if not isinstance(given, str):
        raise InvalidInput(f"`runId` is a {type(given).__name__}, not text", reason="invalid_input")
    if not _RUN_ID.fullmatch(given.strip()):
        # Models take it for the id of a shell session, or of some other job.
        raise InvalidInput(
            f"{UNAVAILABLE} {given[:_MAX_SHOWN_ID]!r} is not a run id of exec; "
            "take it from the result whose status is waiting",
            reason="run_unavailable",
        )
    return CellId(given.strip())
