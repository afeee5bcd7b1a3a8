"""Searches files for literal text or a regular expression, within a time limit.

A short pattern can occupy a backtracking engine forever, usually while it holds the GIL. So this
uses the linear-time engine of the JSON Schema validator.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import translate
from typing import TYPE_CHECKING, Final

from nacre.tools.core.workspace import MAX_DEPTH, OPEN_FILE, OPEN_FOLDER, FileProblem, display_name
from nacre.tools.input_checks.validation import count_states

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import jsonschema_rs

    from nacre.json_types import JsonObject
    from nacre.tools.core.workspace import ResolvedPath


# Directories with generated or downloaded files.
_SKIPPED_FOLDERS: Final = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"))


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """A directory entry that is not a directory; its type is checked when it is opened."""

    path: str
    """The path relative to the workspace, for messages."""
    name: str
    folder: int
    """The descriptor of its directory, open until the next file is requested."""


@dataclass(kw_only=True, slots=True)
class DirectoryWalk:
    """A walk through a directory tree: the files of a directory first, then its directories."""

    prefix: str
    """The prefix of the paths."""
    at_each_folder: Callable[[], None]
    """Called for each directory; may raise to end the walk."""
    unread_folders: int = 0
    """The number of directories that cannot be opened or are nested too deeply."""
    _open: list[int] = field(default_factory=list[int])

    def files(self, top: int) -> Generator[FileEntry]:
        """All files below the directory, whose descriptor is closed at the end."""
        self._open = [top]
        pending = [self._list_folder(top, self.prefix)]
        try:
            yield from pending[-1].files
            while pending:
                here = pending[-1]
                name = next(here.folders, None)
                if name is None:
                    pending.pop()
                    os.close(self._open.pop())
                    continue
                entered = self._enter(here, name)
                if entered is not None:
                    pending.append(entered)
                    yield from entered.files
        finally:
            while self._open:
                os.close(self._open.pop())

    def _enter(self, here: _FolderContent, name: str) -> _FolderContent | None:
        self.at_each_folder()
        if len(self._open) > MAX_DEPTH:
            self.unread_folders += 1
            return None
        try:
            # It may have been replaced by a link or a pipe; the flags refuse both.
            folder = os.open(name, OPEN_FOLDER, dir_fd=self._open[-1])
        except OSError:
            self.unread_folders += 1
            return None
        self._open.append(folder)
        return self._list_folder(folder, f"{here.prefix}{name}/")

    def _list_folder(self, folder: int, prefix: str) -> _FolderContent:
        files: list[str] = []
        folders: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    (folders if is_folder else files).append(entry.name)
        except OSError:
            self.unread_folders += 1
        return _FolderContent(
            prefix=prefix,
            folders=iter(sorted(set(folders) - _SKIPPED_FOLDERS)),
            files=(
                FileEntry(path=display_name(f"{prefix}{name}"), name=name, folder=folder)
                for name in sorted(files)
            ),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _FolderContent:
    """The content of one directory."""

    prefix: str
    folders: Iterator[str]
    files: Iterator[FileEntry]


_MAX_STATES: Final = 400
_MAX_COMPILED_BYTES: Final = 1 << 18
# One step takes up to about 30 ns, and no other thread can run while a line is matched.
_MAX_STEPS_PER_LINE: Final = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePattern:
    """A compiled regular expression for lines."""

    max_characters: int
    """The length of a line that can still be matched quickly."""
    _validator: jsonschema_rs.Validator

    @classmethod
    def compile(cls, pattern: str, *, is_case_ignored: bool) -> LinePattern:
        """Compile a pattern; raises FileProblem if it is invalid or too large."""
        states = count_states(pattern)
        if states > _MAX_STATES:
            raise FileProblem(
                f"query is a regular expression with about {states} parts, including repetitions; "
                f"the limit is {_MAX_STATES}"
            )
        return cls(
            max_characters=_MAX_STEPS_PER_LINE // states,
            _validator=_validator_of(f"(?i:{pattern})" if is_case_ignored else pattern),
        )

    def is_in(self, line: str) -> bool:
        return self._validator.is_valid(line)


def _validator_of(pattern: str) -> jsonschema_rs.Validator:
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(
        size_limit=_MAX_COMPILED_BYTES, dfa_size_limit=_MAX_COMPILED_BYTES
    )
    try:
        return jsonschema_rs.validator_for(
            {"pattern": pattern}, offline=True, pattern_options=options, validate_formats=False
        )
    except ValueError as error:
        raise FileProblem(
            "query is not a supported regular expression: it is invalid or too large, or it uses "
            "look-around (`(?=`) or back references (`\\1`)"
        ) from error


_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_MAX_FILES: Final = 50_000
_MAX_SECONDS: Final = 20.0
_MAX_LINE_CHARACTERS: Final = 300
_MAX_QUERY_CHARACTERS: Final = 1_000
_PEEK_BYTES: Final = 8_192
# The number of lines between two checks of the deadline.
_LINES_PER_CHECK: Final = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchQuery:
    """The text or pattern to search for, and the files to search."""

    text: str
    is_regex: bool = False
    is_case_ignored: bool = False
    glob: str = "*"
    """Matched with the name of the file, or with its path if the glob contains a `/`."""
    limit: int = 50


@dataclass(kw_only=True, slots=True)
class SearchResult:
    """The matching lines, and which files were searched."""

    matches: list[JsonObject] = field(default_factory=list["JsonObject"])
    file_count: int = 0
    skipped_count: int = 0
    """The number of files that are binary, too large or not readable."""
    end: str = ""
    """Why the result is incomplete; empty if it is complete."""


class _SearchStopped(Exception):
    """The search ends early; the message says why."""


def search_files(
    target: ResolvedPath, query: SearchQuery, *, is_cancelled: Callable[[], bool]
) -> SearchResult:
    """All matching lines in the order of their paths; raises FileProblem."""
    if max(len(query.text), len(query.glob)) > _MAX_QUERY_CHARACTERS:
        raise FileProblem(f"query and glob may have at most {_MAX_QUERY_CHARACTERS} characters")
    search = _Search(query, is_cancelled)
    try:
        with _files_in(target, search) as files:
            search.search(files)
    except _SearchStopped as over:
        search.result.end = str(over)
    return search.result


class _Search:
    """One search with its deadline."""

    def __init__(self, query: SearchQuery, is_cancelled: Callable[[], bool]) -> None:
        self.result = SearchResult()
        self._query = query
        self._is_cancelled = is_cancelled
        self._deadline = time.monotonic() + _MAX_SECONDS
        self._matches, self._max_characters = _matcher(query)
        # Not `fnmatch.fnmatch`, which caches patterns.
        self._matches_name = re.compile(translate(query.glob)).match

    def search(self, files: Iterator[FileEntry]) -> None:
        """Search all files; raises _SearchStopped."""
        for file in files:
            self.check_deadline()
            if self.result.file_count >= _MAX_FILES:
                raise _SearchStopped(
                    f"there are more than {_MAX_FILES} files; search in a subfolder"
                )
            if not self._matches_name(file.path if "/" in self._query.glob else file.name):
                continue
            text = _text_of(file)
            if text is None:
                self.result.skipped_count += 1
                continue
            self.result.file_count += 1
            # Most files do not contain the text at all. A regular expression needs single lines.
            if self._query.is_regex or self._matches(text):
                self._add_matches(file.path, text)

    def _add_matches(self, path: str, text: str) -> None:
        for number, line in enumerate(text.splitlines(), start=1):
            if number % _LINES_PER_CHECK == 0:
                self.check_deadline()
            if len(line) > self._max_characters:
                self.result.end = (
                    f"lines with more than {self._max_characters} characters were skipped, such as "
                    f"line {number} of {path}; search for text without isRegex"
                )
            elif self._matches(line):
                if len(self.result.matches) == self._query.limit:
                    raise _SearchStopped(f"there are more than {self._query.limit} matches")
                excerpt = line.strip()[:_MAX_LINE_CHARACTERS]
                self.result.matches.append({"path": path, "line": number, "text": excerpt})

    def check_deadline(self) -> None:
        """Raise _SearchStopped after the deadline or an abort."""
        if self._is_cancelled() or time.monotonic() > self._deadline:
            raise _SearchStopped(f"it took longer than {_MAX_SECONDS:g} seconds")


def _matcher(query: SearchQuery) -> tuple[Callable[[str], bool], float]:
    """A function that matches a line, and the maximum length of a line."""
    if not query.text:
        raise FileProblem("query is empty")
    if query.is_regex:
        pattern = LinePattern.compile(query.text, is_case_ignored=query.is_case_ignored)
        return pattern.is_in, pattern.max_characters
    if query.is_case_ignored:
        wanted = query.text.casefold()
        return lambda line: wanted in line.casefold(), float("inf")
    return lambda line: query.text in line, float("inf")


@contextmanager
def _files_in(target: ResolvedPath, search: _Search) -> Generator[Iterator[FileEntry]]:
    """All files below the target, or the target itself if it is a file."""
    status = target.status()
    if status is not None and stat.S_ISREG(status.st_mode):
        yield iter([FileEntry(path=target.path, name=target.name, folder=target.folder)])
        return
    prefix = "" if target.path == "." else f"{target.path}/"
    walk = DirectoryWalk(prefix=prefix, at_each_folder=search.check_deadline)
    files = walk.files(target.open_folder())
    try:
        yield files
    finally:
        files.close()
        if walk.unread_folders:
            search.result.end = (
                f"{walk.unread_folders} folders are not readable or are nested in more than "
                f"{MAX_DEPTH} others; search in a deeper folder"
            )


def _text_of(file: FileEntry) -> str | None:
    """The text of a file; None if it is not searchable."""
    try:
        descriptor = os.open(file.name, OPEN_FILE, dir_fd=file.folder)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            return None
        data = opened.read(_MAX_FILE_BYTES)
    if b"\0" in data[:_PEEK_BYTES]:
        return None
    return data.decode(errors="replace")
