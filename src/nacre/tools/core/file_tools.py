"""The tools `read`, `write`, `edit`, `list` and `search` for files of a workspace, with limits."""

from __future__ import annotations

import heapq
import os
import stat
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from nacre.foreign_calls import call_in_thread
from nacre.tools.core.file_search import SearchQuery, search_files
from nacre.tools.core.workspace import (
    FileProblem,
    FileVersion,
    Workspace,
    convert_os_errors,
    describe_kind,
    display_name,
)
from nacre.tools.definition import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from io import BufferedReader
    from pathlib import Path

    from nacre.config import FsToolsConfig
    from nacre.json_types import JsonObject
    from nacre.tools.core.workspace import ResolvedPath
    from nacre.tools.definition import ToolCall

# Behind this position, use the search tool instead of line numbers.
_MAX_SKIPPED_BYTES: Final = 64 * 1024 * 1024
_PEEK_BYTES: Final = 8_192

_MAX_LINES: Final = 2_000
_MAX_ENTRIES: Final = 1_000
_MAX_MATCHES: Final = 500
# A limit on threads and open files; a search may take 20 seconds.
_MAX_CONCURRENT_CALLS: Final = 8
_MAX_EDITED_BYTES: Final = 4 * 1024 * 1024

_PATH: Final[JsonObject] = {"type": "string", "description": "Path in the workspace"}
_WRITES: Final = "it changes files of the workspace"
_READS: Final = "it reads files of the workspace"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLines:
    """Lines of a text file."""

    text: str
    first_line: int
    line_count: int
    file_bytes: int
    is_truncated: bool
    """Whether the file continues after these lines."""
    is_exact: bool
    """Whether the text is valid UTF-8; if not, invalid bytes are replaced with U+FFFD."""


def read_lines(
    target: ResolvedPath,
    *,
    first_line: int,
    max_lines: int,
    max_bytes: int,
    is_cancelled: Callable[[], bool],
) -> FileLines:
    """Read complete lines from `first_line` on; raises FileProblem.

    Only a first line that exceeds `max_bytes` is truncated.
    """
    with os.fdopen(target.open_file(), "rb") as file, convert_os_errors(target.path):
        size = os.fstat(file.fileno()).st_size
        refuse_binary(target, file, size)
        _skip_lines(target, file, first_line - 1, is_cancelled)
        lines: list[bytes] = []
        left = max_bytes
        is_truncated = False
        while len(lines) < max_lines:
            line = file.readline(left + 1)
            if not line:
                break
            if len(line) > left:
                is_truncated = True
                if not lines:
                    lines.append(line[:left])
                break
            lines.append(line)
            left -= len(line)
        is_truncated = is_truncated or bool(file.peek(1))
    data = b"".join(lines)
    text = data.decode(errors="replace").removeprefix("\ufeff" if first_line == 1 else "")
    return FileLines(
        text=text,
        first_line=first_line,
        line_count=len(lines),
        file_bytes=size,
        is_truncated=is_truncated,
        is_exact="\ufffd" not in text,
    )


def read_file(target: ResolvedPath, *, max_bytes: int) -> tuple[str, FileVersion | None]:
    """Read a text file and its version; raises FileProblem if it is too large or not UTF-8."""
    with os.fdopen(target.open_file(), "rb") as file, convert_os_errors(target.path):
        # Taken before reading, so that a concurrent write is detected later.
        status = os.fstat(file.fileno())
        size = status.st_size
        refuse_binary(target, file, size)
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise FileProblem(f"{target.path} has {size} bytes; at most {max_bytes} can be edited")
    try:
        return data.decode(), FileVersion.of(status)
    except UnicodeDecodeError as error:
        raise FileProblem(f"{target.path} is not UTF-8 text; overwrite it instead") from error


def refuse_binary(target: ResolvedPath, file: BufferedReader, size: int) -> None:
    """Raise FileProblem for a binary file."""
    if b"\0" in file.peek(_PEEK_BYTES)[:_PEEK_BYTES]:
        raise FileProblem(f"{target.path} is a binary file of {size} bytes, not text")


def _skip_lines(
    target: ResolvedPath, file: BufferedReader, count: int, is_cancelled: Callable[[], bool]
) -> None:
    left, skipped = count, 0
    while left > 0:
        # Block by block, because a file may consist of line ends only.
        piece = file.peek(_PEEK_BYTES)[:_PEEK_BYTES]
        ends = piece.count(b"\n")
        used = len(piece) if ends < left else _position_after(piece, left)
        file.seek(used, os.SEEK_CUR)
        left -= min(left, ends)
        skipped += used
        if skipped > _MAX_SKIPPED_BYTES or is_cancelled():
            raise FileProblem(
                f"line {count + 1} of {target.path} is more than {_MAX_SKIPPED_BYTES} bytes from "
                "the start; use search"
            )
        if not piece:
            raise FileProblem(f"{target.path} has fewer than {count + 1} lines")


def _position_after(piece: bytes, line_count: int) -> int:
    """The position after the given number of lines."""
    return len(piece) - len(piece.split(b"\n", line_count)[-1])


_PERMISSIONS: Final = 0o777
_MODE_OF_NEW_FILE: Final = 0o666
"""The umask of the process applies."""
# Two files may share a lock; they then wait for each other.
_LOCKS: Final = tuple(threading.Lock() for _ in range(64))
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def write_lock(target: ResolvedPath) -> Generator[None]:
    """Lock the file against other writers in this process. Blocks."""
    folder = os.fstat(target.folder)
    with _LOCKS[hash((folder.st_dev, folder.st_ino, target.name)) % len(_LOCKS)]:
        yield


def write_file(
    target: ResolvedPath,
    data: bytes,
    *,
    expected: FileVersion | None = None,
    mode: int = _MODE_OF_NEW_FILE,
) -> bool:
    """Write a file atomically, and return whether it is new; raises FileProblem.

    With `expected`, it is written only if it still has that version. `mode` is that of a new file.
    """
    before = target.status()
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise FileProblem(f"{target.path} is {describe_kind(before.st_mode)}, not a file")
    # Without set-user-id and set-group-id: new content must not run with rights of the old one.
    if before is not None:
        mode = before.st_mode & _PERMISSIONS
    temporary = f".{os.urandom(8).hex()}.nacre"
    with convert_os_errors(target.path):
        descriptor = os.open(temporary, _CREATE, mode, dir_fd=target.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if before is not None:
                    os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            if expected is not None and FileVersion.of(target.status()) != expected:
                raise FileProblem(f"{target.path} was changed in the meantime; read it again")
            os.rename(temporary, target.name, src_dir_fd=target.folder, dst_dir_fd=target.folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=target.folder)
            raise
    return before is None


EntryKind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class FolderEntry:
    """One entry of a directory."""

    name: str
    kind: EntryKind
    size: int = 0

    def to_json(self) -> JsonObject:
        entry: JsonObject = {"name": self.name, "type": self.kind}
        return {**entry, "bytes": self.size} if self.kind == "file" else entry


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """One page of the entries of a directory, and their total number."""

    entries: tuple[FolderEntry, ...]
    total: int
    is_truncated: bool
    """Whether more entries follow."""


def list_folder(target: ResolvedPath, *, after: str, limit: int) -> Listing:
    """List the first entries after the name `after`; raises FileProblem."""
    folder = target.open_folder()
    try:
        with convert_os_errors(target.path), os.scandir(folder) as scanned:
            names = [entry.name for entry in scanned]
        # By display name, because `after` is the display name of an earlier entry.
        following = [name for name in names if display_name(name) > after]
        # A directory may have a million names, so only the selected ones are inspected.
        selected = heapq.nsmallest(limit, following, key=display_name)
        entries = tuple(_make_entry(folder, name) for name in selected)
    finally:
        os.close(folder)
    return Listing(entries=entries, total=len(names), is_truncated=len(following) > len(selected))


def _make_entry(folder: int, name: str) -> FolderEntry:
    label = display_name(name)
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        # Deleted in the meantime.
        return FolderEntry(name=label, kind="other")
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return FolderEntry(name=label, kind="file", size=status.st_size)
    kind: EntryKind = "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"
    return FolderEntry(name=label, kind=kind)


# The limit is such that the result of an edit can be edited again.
MAX_EDITED_CHARACTERS: Final = 4 * 1024 * 1024
_MAX_LINES_COMPARED: Final = 5_000
# The exact comparison takes quadratic time.
_MAX_LINES_COMPARED_EXACTLY: Final = 20
_MIN_SIMILARITY: Final = 0.6
_MAX_SHOWN_CHARACTERS: Final = 160
# Longer lines cannot be similar enough.
_MAX_COMPARED_CHARACTERS: Final = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """The new text, the number of replacements, and the line of the first one."""

    text: str
    count: int
    first_line: int


def replace_text(text: str, *, path: str, old: str, new: str, replace_all: bool) -> Edit:
    """Replace `old` in the text; raises FileProblem with a hint."""
    if not old:
        raise FileProblem("oldText is empty; write the file instead")
    if "\r\n" in text and "\r\n" not in old:
        # Models do not see whether a line ends with CRLF.
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    count = text.count(old)
    if count == 0:
        raise FileProblem(f"oldText does not occur in {path}{_hint(text, old)}")
    if count > 1 and not replace_all:
        raise FileProblem(
            f"oldText occurs {count} times in {path}; add surrounding lines until it is unique, "
            "or set replaceAll"
        )
    if old == new:
        raise FileProblem("oldText and newText are the same")
    characters = len(text) + count * (len(new) - len(old))
    if characters > max(len(text), MAX_EDITED_CHARACTERS):
        raise FileProblem(
            f"{path} would have {characters} characters; the limit is {MAX_EDITED_CHARACTERS}"
        )
    return Edit(
        text=text.replace(old, new),
        count=count,
        first_line=text.count("\n", 0, text.index(old)) + 1,
    )


def _hint(text: str, old: str) -> str:
    """The line that is most similar to the first line of `old`."""
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = text.splitlines()[:_MAX_LINES_COMPARED]
    numbers = {line.strip(): number for number, line in enumerate(lines, start=1)}
    near = _nearest(
        wanted[:_MAX_SHOWN_CHARACTERS],
        [line for line in numbers if len(line) <= _MAX_COMPARED_CHARACTERS],
    )
    if near is None:
        return "; read the file first, because every character must match"
    return f"; the most similar line is {numbers[near]}: {near[:_MAX_SHOWN_CHARACTERS]}"


def _nearest(wanted: str, lines: list[str]) -> str | None:
    matcher = SequenceMatcher[str](None, "", wanted)

    def estimate_similarity(line: str) -> float:
        matcher.set_seq1(line)
        return matcher.quick_ratio()

    def compute_similarity(line: str) -> float:
        matcher.set_seq1(line)
        return matcher.ratio()

    candidates = nlargest(_MAX_LINES_COMPARED_EXACTLY, lines, key=estimate_similarity)
    best = max(candidates, key=compute_similarity, default=None)
    return best if best is not None and compute_similarity(best) >= _MIN_SIMILARITY else None


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
