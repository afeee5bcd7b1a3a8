"""The tools `read`, `write`, `edit`, `list` and `search` for files of a workspace."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from nacre.foreign_calls import call_in_thread
from nacre.tools.core.file_access import (
    list_folder,
    read_file,
    read_lines,
    replace_text,
    write_file,
    write_lock,
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
# A limit on threads and open files; a search may take 20 seconds.
_MAX_CONCURRENT_CALLS: Final = 8
_MAX_EDITED_BYTES: Final = 4 * 1024 * 1024

_PATH: Final[JsonObject] = {"type": "string", "description": "Path in the workspace"}
_WRITES: Final = "it changes files of the workspace"
_READS: Final = "it reads files of the workspace"


def file_tools(config: FsToolsConfig, root: Path) -> list[Tool]:
    """The file tools of one workspace; none if they are disabled."""
    if not config.is_enabled:
        return []
    files = _Files(Workspace(root), config.max_read_bytes)
    threads = anyio.CapacityLimiter(_MAX_CONCURRENT_CALLS)
    reads = _READS if config.ask == "always" else ""
    writes = "" if config.ask == "never" else _WRITES
    return [
        _make_tool("read", files.read, _READ_INPUT, reads, threads),
        _make_tool("write", files.write, _WRITE_INPUT, writes, threads),
        _make_tool("edit", files.edit, _EDIT_INPUT, writes, threads),
        _make_tool("list", files.list, _LIST_INPUT, reads, threads),
        _make_tool("search", files.search, _SEARCH_INPUT, reads, threads),
    ]


class _Files:
    """The functions of the tools. They block, so each call runs in a thread."""

    def __init__(self, workspace: Workspace, max_read_bytes: int) -> None:
        self._workspace = workspace
        self._max_read_bytes = max_read_bytes

    def read(self, given: dict[str, Any], call: ToolCall) -> JsonObject:
        """Read lines of a text file."""
        with self._workspace.locate(given["path"]) as target:
            result = read_lines(
                target,
                first_line=given.get("firstLine", 1),
                max_lines=given.get("lines", _MAX_LINES),
                max_bytes=self._max_read_bytes,
                is_cancelled=_is_cancelled(call),
            )
        response: JsonObject = {
            "path": target.path,
            "text": result.text,
            "firstLine": result.first_line,
            "lines": result.line_count,
            "fileBytes": result.file_bytes,
        }
        if result.is_truncated:
            response["nextLine"] = result.first_line + result.line_count
        if not result.is_exact:
            response["note"] = "the file is not valid UTF-8; invalid bytes are shown as U+FFFD"
        return response

    def write(self, given: dict[str, Any], _call: ToolCall) -> JsonObject:
        """Write a whole file; creates its directories and replaces an existing file."""
        data = _encode(given["content"])
        location = self._workspace.locate(given["path"], create_parents=True)
        with location as target, write_lock(target):
            is_new = write_file(target, data)
        return {"path": target.path, "bytes": len(data), "created": is_new}

    def edit(self, given: dict[str, Any], _call: ToolCall) -> JsonObject:
        """Replace exact text in a file."""
        with self._workspace.locate(given["path"]) as target, write_lock(target):
            text, version = read_file(target, max_bytes=_MAX_EDITED_BYTES)
            change = replace_text(
                text,
                path=target.path,
                old=given["oldText"],
                new=given["newText"],
                replace_all=given.get("replaceAll", False),
            )
            write_file(target, _encode(change.text), expected=version)
        return {"path": target.path, "replacements": change.count, "line": change.first_line}

    def list(self, given: dict[str, Any], _call: ToolCall) -> JsonObject:
        """List a directory by name."""
        with self._workspace.locate(given.get("path", ".")) as target:
            limit = given.get("limit", 200)
            result = list_folder(target, after=given.get("after", ""), limit=limit)
        response: JsonObject = {
            "path": target.path,
            "entries": [entry.to_json() for entry in result.entries],
            "total": result.total,
        }
        if result.is_truncated:
            response["after"] = result.entries[-1].name
        return response

    def search(self, given: dict[str, Any], call: ToolCall) -> JsonObject:
        """Find lines in the files of a directory."""
        query = SearchQuery(
            text=given["query"],
            is_regex=given.get("isRegex", False),
            is_case_ignored=given.get("ignoreCase", False),
            glob=given.get("glob", "*"),
            limit=given.get("limit", 50),
        )
        with self._workspace.locate(given.get("path", ".")) as target:
            result = search_files(target, query, is_cancelled=_is_cancelled(call))
        response: JsonObject = {
            "matches": [*result.matches],
            "filesSearched": result.file_count,
            "filesSkipped": result.skipped_count,
        }
        return {**response, "incomplete": result.end} if result.end else response


def _make_tool(
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


def _is_cancelled(call: ToolCall) -> Callable[[], bool]:
    return lambda: call.abort.is_aborted


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FileProblem("content contains an unpaired surrogate, which is not text") from error


def _input(required: list[str], **properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": {**properties},
        "required": [*required],
        "additionalProperties": False,
    }


def _integer(description: str, *, maximum: int) -> JsonObject:
    return {"type": "integer", "minimum": 1, "maximum": maximum, "description": description}


_DESCRIPTIONS: Final = {
    "read": "Read lines of a text file in the workspace; `nextLine` is where to continue.",
    "write": "Write a whole file in the workspace; creates folders, replaces an existing file.",
    "edit": "Replace exact text in a file of the workspace; oldText must occur exactly once.",
    "list": "List a folder of the workspace; `after` is where to continue.",
    "search": "Find lines in files of the workspace by literal text or regular expression.",
}
_READ_INPUT: Final = _input(
    ["path"],
    path=_PATH,
    firstLine=_integer("The first line; default 1", maximum=1_000_000_000),
    lines=_integer(f"How many lines; default {_MAX_LINES}", maximum=_MAX_LINES),
)
_WRITE_INPUT: Final = _input(
    ["path", "content"],
    path=_PATH,
    content={"type": "string", "description": "The whole file", "maxLength": 8_388_608},
)
_EDIT_INPUT: Final = _input(
    ["path", "oldText", "newText"],
    path=_PATH,
    oldText={"type": "string", "description": "The exact text in the file, including spaces"},
    newText={"type": "string", "description": "The replacement"},
    replaceAll={"type": "boolean", "description": "Replace all occurrences; default false"},
)
_LIST_INPUT: Final = _input(
    [],
    path=_PATH,
    after={"type": "string", "description": "The last name of the previous page"},
    limit=_integer("How many entries; default 200", maximum=_MAX_ENTRIES),
)
_SEARCH_INPUT: Final = _input(
    ["query"],
    query={"type": "string", "description": "The text or regular expression to find in a line"},
    path=_PATH,
    isRegex={
        "type": "boolean",
        "description": "Whether query is a regular expression; no look-around, no back references",
    },
    ignoreCase={"type": "boolean", "description": "Whether to ignore case"},
    glob={"type": "string", "description": "Only matching files, such as *.py or src/*.py"},
    limit=_integer("How many matches; default 50", maximum=_MAX_MATCHES),
)
