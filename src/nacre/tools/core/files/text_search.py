"""Looking for text in files: literal, or a regular expression, within a time."""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import translate
from typing import TYPE_CHECKING, Final

from nacre.tools.core.files.folder_walk import FolderWalk, FoundFile
from nacre.tools.core.files.line_patterns import LinePattern
from nacre.tools.core.workspace import MAX_DEPTH, OPEN_FILE, FileProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from nacre.json_types import JsonObject
    from nacre.tools.core.workspace import Place

_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_MAX_FILES: Final = 50_000
_MAX_SECONDS: Final = 20.0
_MAX_LINE_CHARACTERS: Final = 300
_MAX_QUERY_CHARACTERS: Final = 1_000
_LOOK_BYTES: Final = 8_192
# Between two looks at the clock.
_LINES_AT_ONCE: Final = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchQuery:
    """What is looked for, and where."""

    text: str
    is_regex: bool = False
    is_case_ignored: bool = False
    glob: str = "*"
    """Of the file's name, or of its path from where the search begins if it has a `/`."""
    most: int = 50


@dataclass(kw_only=True, slots=True)
class SearchFound:
    """Lines, and how far the search came."""

    matches: list[JsonObject] = field(default_factory=list["JsonObject"])
    file_count: int = 0
    skipped_count: int = 0
    """Files that are binary, too large, or may not be read."""
    end: str = ""
    """Why there may be more; empty if it has seen everything."""


class _OverError(Exception):
    """The search ends before it has seen everything; the message says why."""


def search_files(place: Place, query: SearchQuery, *, is_over: Callable[[], bool]) -> SearchFound:
    """All lines that fit, in the order of their paths; raises FileProblem."""
    if max(len(query.text), len(query.glob)) > _MAX_QUERY_CHARACTERS:
        raise FileProblem(f"query and glob may have {_MAX_QUERY_CHARACTERS} characters")
    search = _Search(query, is_over)
    try:
        with _files_in(place, search) as files:
            search.look_through(files)
    except _OverError as over:
        search.found.end = str(over)
    return search.found


class _Search:
    """One search, until its time is over."""

    def __init__(self, query: SearchQuery, is_over: Callable[[], bool]) -> None:
        self.found = SearchFound()
        self._query = query
        self._is_over = is_over
        self._deadline = time.monotonic() + _MAX_SECONDS
        self._fits, self._most_characters = _matcher(query)
        # Not by `fnmatch` itself, which keeps tens of thousands of patterns for ever.
        self._is_named_so = re.compile(translate(query.glob)).match

    def look_through(self, files: Iterator[FoundFile]) -> None:
        """Raises _OverError."""
        for file in files:
            self.look_at_clock()
            if self.found.file_count >= _MAX_FILES:
                raise _OverError(
                    f"there are more than {_MAX_FILES} files; search in a folder of it"
                )
            if not self._is_named_so(file.path if "/" in self._query.glob else file.name):
                continue
            text = _text_of(file)
            if text is None:
                self.found.skipped_count += 1
                continue
            self.found.file_count += 1
            # Most files do not have it at all; lines matter to expressions.
            if self._query.is_regex or self._fits(text):
                self._add_matches(file.path, text)

    def _add_matches(self, path: str, text: str) -> None:
        for number, line in enumerate(text.splitlines(), start=1):
            if number % _LINES_AT_ONCE == 0:
                self.look_at_clock()
            if len(line) > self._most_characters:
                self.found.end = (
                    f"lines of more than {self._most_characters} characters were left out, such as "
                    f"line {number} of {path}; search for text without isRegex"
                )
            elif self._fits(line):
                if len(self.found.matches) == self._query.most:
                    raise _OverError(f"there are more than {self._query.most} matches")
                shown = line.strip()[:_MAX_LINE_CHARACTERS]
                self.found.matches.append({"path": path, "line": number, "text": shown})

    def look_at_clock(self) -> None:
        """Raises _OverError when the time is over."""
        if self._is_over() or time.monotonic() > self._deadline:
            raise _OverError(f"it took longer than {_MAX_SECONDS:g} seconds")


def _matcher(query: SearchQuery) -> tuple[Callable[[str], bool], float]:
    """What says whether a line fits, and how long a line it may be asked about."""
    if not query.text:
        raise FileProblem("query is empty; say what to look for")
    if query.is_regex:
        pattern = LinePattern.compile(query.text, is_case_ignored=query.is_case_ignored)
        return pattern.is_in, pattern.most_characters
    if query.is_case_ignored:
        wanted = query.text.casefold()
        return lambda line: wanted in line.casefold(), float("inf")
    return lambda line: query.text in line, float("inf")


@contextmanager
def _files_in(place: Place, search: _Search) -> Generator[Iterator[FoundFile]]:
    """Every file of the place, which may be one itself."""
    status = place.status()
    if status is not None and stat.S_ISREG(status.st_mode):
        yield iter([FoundFile(path=place.shown, name=place.name, folder=place.folder)])
        return
    prefix = "" if place.shown == "." else f"{place.shown}/"
    walk = FolderWalk(prefix=prefix, at_each_folder=search.look_at_clock)
    files = walk.files(place.open_folder())
    try:
        yield files
    finally:
        files.close()
        if walk.unread_folders:
            search.found.end = (
                f"{walk.unread_folders} folders may not be read, or are in more than {MAX_DEPTH} "
                "others; search in a folder further down"
            )


def _text_of(file: FoundFile) -> str | None:
    """None for what is not to be searched."""
    try:
        descriptor = os.open(file.name, OPEN_FILE, dir_fd=file.folder)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            return None
        data = opened.read(_MAX_FILE_BYTES)
    if b"\0" in data[:_LOOK_BYTES]:
        return None
    return data.decode(errors="replace")
