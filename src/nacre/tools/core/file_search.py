"""Searches the text of files: literal text or a regular expression, within a time limit.

An engine that goes back, or writes repetitions out, can be kept busy for ever by a short pattern,
and most of them hold Python's lock meanwhile. So it is the engine that checks inputs of tools.
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

from nacre.tools.core.workspace import MAX_DEPTH, OPEN_FILE, OPEN_FOLDER, FileProblem, shown_name
from nacre.tools.input_checks.pattern_size import states_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import jsonschema_rs

    from nacre.json_types import JsonObject
    from nacre.tools.core.workspace import Place


# What people did not write.
_SKIPPED_FOLDERS: Final = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"))


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundFile:
    """A name that is no folder's; what it is has to be looked at when it is opened."""

    path: str
    """From the workspace, as it may be shown."""
    name: str
    folder: int
    """A descriptor, open until the next file is asked for."""


@dataclass(kw_only=True, slots=True)
class FolderWalk:
    """One way through a tree, by folders: first the files of one, then the folders in it."""

    prefix: str
    """What stands before the paths."""
    at_each_folder: Callable[[], None]
    """May end the walk by raising: there may be folders without end, and no file in them."""
    unread_folders: int = 0
    """Folders that could not be opened, or are too deep."""
    _open: list[int] = field(default_factory=list[int])

    def files(self, top: int) -> Generator[FoundFile]:
        """All files below the folder, whose descriptor is closed at the end."""
        self._open = [top]
        ahead = [self._list_folder(top, self.prefix)]
        try:
            yield from ahead[-1].files
            while ahead:
                here = ahead[-1]
                name = next(here.folders, None)
                if name is None:
                    ahead.pop()
                    os.close(self._open.pop())
                    continue
                entered = self._enter(here, name)
                if entered is not None:
                    ahead.append(entered)
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
            # Not followed, should it be a link by now; nor waited for, should it be a pipe.
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
                FoundFile(path=shown_name(f"{prefix}{name}"), name=name, folder=folder)
                for name in sorted(files)
            ),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _FolderContent:
    """What is in one folder."""

    prefix: str
    folders: Iterator[str]
    files: Iterator[FoundFile]


_MAX_STATES: Final = 400
_MAX_COMPILED_BYTES: Final = 1 << 18
# One step takes some 30 ns at worst, and nobody else can run during one line.
_MAX_STEPS_OF_A_LINE: Final = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePattern:
    """A pattern that is ready."""

    most_characters: int
    """How long a line may be, so that it does not take long."""
    _validator: jsonschema_rs.Validator

    @classmethod
    def compile(cls, pattern: str, *, is_case_ignored: bool) -> LinePattern:
        """Raises FileProblem for what is none, or too large."""
        states = states_of(pattern)
        if states > _MAX_STATES:
            raise FileProblem(
                f"query is a regular expression of about {states} parts, repetitions written out; "
                f"at most {_MAX_STATES} can be searched for"
            )
        return cls(
            most_characters=_MAX_STEPS_OF_A_LINE // states,
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
            "query is not a regular expression that can be searched for: it is broken or too "
            "large, or looks around or back (`(?=`, `\\1`), which is not possible here"
        ) from error


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
