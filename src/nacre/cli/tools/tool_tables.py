"""Tools as rows of a table and as JSON, and which are missing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from nacre.cli.output import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.output import Printer
    from nacre.cli.tool_catalog import OpenCatalog
    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools import CatalogEntry

_MAX_READ_CHARACTERS: Final = 1_000
_MIN_SENTENCE_CHARACTERS: Final = 10
# After a full stop and a space, the signs of Chinese and Japanese, or before an empty line.
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])|\n\s*\n")


def tool_row(entry: CatalogEntry) -> tuple[str, str, str]:
    """Id, title and what it does in a sentence."""
    return entry.id, entry.label or entry.name, first_sentence(entry.description)


def first_sentence(text: str) -> str:
    """The first sentence or paragraph; an abbreviation at the start ends none."""
    start = text[:_MAX_READ_CHARACTERS].strip()
    end = _SENTENCE_END.search(start, _MIN_SENTENCE_CHARACTERS)
    return start if end is None else start[: end.start()].rstrip()


def write_tools_json(
    printer: Printer, catalog: OpenCatalog, key: str, tools: Sequence[JsonObject]
) -> None:
    listed: list[JsonValue] = [*tools]
    document: JsonObject = {key: listed, "problems": {**catalog.problems}}
    printer.write_json(document, is_indented=printer.is_terminal)


def end_status(printer: Printer, catalog: OpenCatalog) -> ExitStatus:
    """Say what is missing; the exit status says whether something is."""
    catalog.warn_of_problems()
    return printer.problem or (ExitStatus.FAILED if catalog.problems else ExitStatus.COMPLETED)
