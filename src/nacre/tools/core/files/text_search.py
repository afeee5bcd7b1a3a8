"""Looking for text in files: literal or by a regular expression that has to be done in time."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from nacre.tools.core.files.workspace import FileProblem, problems_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nacre.json_types import JsonObject
    from nacre.tools.core.files.workspace import Place

_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_MAX_FILES: Final = 50_000
_MAX_SECONDS: Final = 20.0
_MAX_LINE_CHARACTERS: Final = 300
_LOOK_BYTES: Final = 8_192
# What people did not write.
_SKIPPED_FOLDERS: Final = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"))
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
    """Why it ended before it had seen everything; empty if it did."""


def search_files(place: Place, query: SearchQuery, *, is_over: Callable[[], bool]) -> SearchFound:
    """All lines that fit, in the order of their paths; raises FileProblem."""
    deadline = time.monotonic() + _MAX_SECONDS
    finds = _matcher(query, deadline)
    found = SearchFound()
    try:
        for path, name, folder in _files_in(place):
            if is_over() or time.monotonic() > deadline:
                found.end = f"it took longer than {_MAX_SECONDS:g} seconds"
                break
            if found.file_count >= _MAX_FILES:
                found.end = f"there are more than {_MAX_FILES} files; search in a folder of it"
                break
            if not fnmatchcase(path if "/" in query.glob else name, query.glob):
                continue
            text = _text_of(name, folder)
            if text is None:
                found.skipped_count += 1
                continue
            found.file_count += 1
            # Most files do not have it at all; lines matter to expressions.
            if not query.is_regex and not finds(text):
                continue
            if not _add_matches(found, path, text, finds, query.most):
                found.end = f"there are more than {query.most} matches"
                break
    except TimeoutError:
        found.end = "the regular expression took too long; make it simpler"
    return found


def _add_matches(
    found: SearchFound, path: str, text: str, finds: Callable[[str], bool], most: int
) -> bool:
    """Whether all that fits could be taken."""
    for number, line in enumerate(text.splitlines(), start=1):
        if finds(line):
            if len(found.matches) == most:
                return False
            shown = line.strip()[:_MAX_LINE_CHARACTERS]
            found.matches.append({"path": path, "line": number, "text": shown})
    return True


def _matcher(query: SearchQuery, deadline: float) -> Callable[[str], bool]:
    if not query.text:
        raise FileProblem("query is empty; say what to look for")
    if query.is_regex:
        return _regex_matcher(query, deadline)
    wanted = query.text.casefold() if query.is_case_ignored else query.text
    if query.is_case_ignored:
        return lambda line: wanted in line.casefold()
    return lambda line: wanted in line


def _regex_matcher(query: SearchQuery, deadline: float) -> Callable[[str], bool]:
    try:
        # Unlike `re`, it can be stopped, and lets others run meanwhile.
        import regex
    except ImportError:
        raise FileProblem("isRegex needs `pip install 'nacre[gateway]'`; search for text") from None
    try:
        pattern = regex.compile(query.text, regex.IGNORECASE if query.is_case_ignored else 0)
    except regex.error as error:
        raise FileProblem(f"query is not a regular expression: {error}") from error

    def finds(line: str) -> bool:
        left = max(0.001, deadline - time.monotonic())
        return pattern.search(line, timeout=left, concurrent=True) is not None

    return finds


def _files_in(place: Place) -> Iterator[tuple[str, str, int]]:
    """Path, name and folder of every plain file, by folders; links are not followed."""
    status = place.status()
    if status is not None and stat.S_ISREG(status.st_mode):
        yield place.shown, place.name, place.folder
        return
    top = place.open_folder()
    prefix = "" if place.shown == "." else f"{place.shown}/"
    try:
        with problems_of(place.shown):
            for folder, folders, files, descriptor in os.fwalk(".", dir_fd=top):
                folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
                inside = prefix if folder == "." else f"{prefix}{folder.removeprefix('./')}/"
                for name in sorted(files):
                    yield _shown(f"{inside}{name}"), name, descriptor
    finally:
        os.close(top)


def _text_of(name: str, folder: int) -> str | None:
    """None for what is not to be searched."""
    try:
        descriptor = os.open(name, _OPEN, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            return None
        data = file.read(_MAX_FILE_BYTES)
    if b"\0" in data[:_LOOK_BYTES]:
        return None
    return data.decode(errors="replace")


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="replace")
