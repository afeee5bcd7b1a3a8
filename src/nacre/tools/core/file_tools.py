"""The tools `read`, `write`, `edit`, `list` and `search` for files of a workspace."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from nacre.foreign_calls import call_in_thread
from nacre.tools.core.file_access import (
    list_folder,
    one_writer,
    read_lines,
    read_whole,
    replace_text,
    write_file,
)
from nacre.tools.core.file_search import SearchQuery, search_files
from nacre.tools.core.workspace import FileProblem, Workspace
from nacre.tools.definition import Tool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nacre.config import FsToolsConfig
    from nacre.json_types import JsonObject
    from nacre.tools.definition import ToolCall


_MAX_LINES: Final = 2_000
_MAX_ENTRIES: Final = 1_000
_MAX_MATCHES: Final = 500
# Others need threads and open files as well; a search may have one of them for 20 seconds.
_MAX_CONCURRENT_CALLS: Final = 8
_MAX_EDITED_BYTES: Final = 4 * 1024 * 1024

_PATH: Final[JsonObject] = {"type": "string", "description": "Path in the workspace"}
_WRITES: Final = "it changes files of the workspace"
_READS: Final = "it reads files of the workspace"


def file_tools(config: FsToolsConfig, root: Path) -> list[Tool]:
    """The tools of one workspace; none where they are switched off."""
    if not config.is_enabled:
        return []
    files = _Files(Workspace(root), config.max_read_bytes)
    threads = anyio.CapacityLimiter(_MAX_CONCURRENT_CALLS)
    reads = _READS if config.ask == "always" else ""
    writes = "" if config.ask == "never" else _WRITES
    return [
        _tool("read", files.read, _READ_INPUT, reads, threads),
        _tool("write", files.write, _WRITE_INPUT, writes, threads),
        _tool("edit", files.edit, _EDIT_INPUT, writes, threads),
        _tool("list", files.list, _LIST_INPUT, reads, threads),
        _tool("search", files.search, _SEARCH_INPUT, reads, threads),
    ]


class _Files:
    """What the tools do. Blocks: each runs in a thread, and looks up whether it is still wanted."""

    def __init__(self, workspace: Workspace, max_read_bytes: int) -> None:
        self._workspace = workspace
        self._max_read_bytes = max_read_bytes

    def read(self, given: dict[str, Any], call: ToolCall) -> JsonObject:
        """Read lines of a text file."""
        with self._workspace.locate(given["path"]) as place:
            found = read_lines(
                place,
                first_line=given.get("firstLine", 1),
                most_lines=given.get("lines", _MAX_LINES),
                most_bytes=self._max_read_bytes,
                is_over=_is_over(call),
            )
        shown: JsonObject = {
            "path": place.shown,
            "text": found.text,
            "firstLine": found.first_line,
            "lines": found.line_count,
            "fileBytes": found.file_bytes,
        }
        if found.is_cut:
            shown["nextLine"] = found.first_line + found.line_count
        if not found.is_exact:
            shown["note"] = "the file is not all UTF-8; U+FFFD stands for what is not"
        return shown

    def write(self, given: dict[str, Any], _call: ToolCall) -> JsonObject:
        """Write a whole file; its folders are made. What was there is replaced."""
        data = _encode(given["content"])
        where = self._workspace.locate(given["path"], is_made=True)
        with where as place, one_writer(place):
            is_new = write_file(place, data)
        return {"path": place.shown, "bytes": len(data), "created": is_new}

    def edit(self, given: dict[str, Any], _call: ToolCall) -> JsonObject:
        """Replace exact text in a file."""
        with self._workspace.locate(given["path"]) as place, one_writer(place):
            text, version = read_whole(place, most_bytes=_MAX_EDITED_BYTES)
            change = replace_text(
                text,
                path=place.shown,
                old=given["oldText"],
                new=given["newText"],
                is_everywhere=given.get("replaceAll", False),
            )
            write_file(place, _encode(change.text), expected=version)
        return {"path": place.shown, "replacements": change.count, "line": change.first_line}

    def list(self, given: dict[str, Any], _call: ToolCall) -> JsonObject:
        """List a folder by name."""
        with self._workspace.locate(given.get("path", ".")) as place:
            most = given.get("limit", 200)
            found = list_folder(place, after=given.get("after", ""), most=most)
        shown: JsonObject = {
            "path": place.shown,
            "entries": [entry.to_json() for entry in found.entries],
            "total": found.total,
        }
        if found.is_cut:
            shown["after"] = found.entries[-1].name
        return shown

    def search(self, given: dict[str, Any], call: ToolCall) -> JsonObject:
        """Find lines in the files of a folder."""
        query = SearchQuery(
            text=given["query"],
            is_regex=given.get("isRegex", False),
            is_case_ignored=given.get("ignoreCase", False),
            glob=given.get("glob", "*"),
            most=given.get("limit", 50),
        )
        with self._workspace.locate(given.get("path", ".")) as place:
            found = search_files(place, query, is_over=_is_over(call))
        shown: JsonObject = {
            "matches": [*found.matches],
            "filesSearched": found.file_count,
            "filesSkipped": found.skipped_count,
        }
        return {**shown, "incomplete": found.end} if found.end else shown


def _tool(
    name: str,
    work: Callable[[dict[str, Any], ToolCall], JsonObject],
    parameters: JsonObject,
    needs_approval: str,
    threads: anyio.CapacityLimiter,
) -> Tool:
    async def execute(given: dict[str, Any], call: ToolCall) -> JsonObject:
        return await call_in_thread(partial(work, given, call), limiter=threads)

    return Tool(
        name=name,
        description=_DESCRIPTIONS[name],
        parameters=parameters,
        execute=execute,
        needs_approval=needs_approval,
    )


def _is_over(call: ToolCall) -> Callable[[], bool]:
    return lambda: call.abort.is_aborted


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FileProblem("content holds half a character, which is no text") from error


def _input(required: list[str], **properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": {**properties},
        "required": [*required],
        "additionalProperties": False,
    }


def _whole(description: str, *, most: int, least: int = 1) -> JsonObject:
    return {"type": "integer", "minimum": least, "maximum": most, "description": description}


_DESCRIPTIONS: Final = {
    "read": "Read a text file of the workspace, by lines; `nextLine` says where to go on.",
    "write": "Write a whole file of the workspace; folders are made, what was there is replaced.",
    "edit": "Replace exact text in a file of the workspace; oldText has to be in it once.",
    "list": "List a folder of the workspace; `after` says where to go on.",
    "search": "Find lines in files of the workspace: literal text, or a regular expression.",
}
_READ_INPUT: Final = _input(
    ["path"],
    path=_PATH,
    firstLine=_whole("Where to begin; default 1", most=1_000_000_000),
    lines=_whole(f"How many lines; default {_MAX_LINES}", most=_MAX_LINES),
)
_WRITE_INPUT: Final = _input(
    ["path", "content"],
    path=_PATH,
    content={"type": "string", "description": "All of the file", "maxLength": 8_388_608},
)
_EDIT_INPUT: Final = _input(
    ["path", "oldText", "newText"],
    path=_PATH,
    oldText={"type": "string", "description": "As it stands in the file, spaces and all"},
    newText={"type": "string", "description": "What is to stand there instead"},
    replaceAll={"type": "boolean", "description": "Replace it everywhere; default false"},
)
_LIST_INPUT: Final = _input(
    [],
    path=_PATH,
    after={"type": "string", "description": "The last name of the page before"},
    limit=_whole("How many; default 200", most=_MAX_ENTRIES),
)
_SEARCH_INPUT: Final = _input(
    ["query"],
    query={"type": "string", "description": "What a line has to hold"},
    path=_PATH,
    isRegex={
        "type": "boolean",
        "description": "Whether query is a regular expression; no look-around, no back references",
    },
    ignoreCase={"type": "boolean", "description": "Whether case does not matter"},
    glob={"type": "string", "description": "Only files named so, such as *.py or src/*.py"},
    limit=_whole("How many matches; default 50", most=_MAX_MATCHES),
)
