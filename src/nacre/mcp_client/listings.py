"""The tool list of a server: reads it page by page, and stores it in the private cache.

A stored list lets programs know the tools of a server that is not running yet.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from nacre.config import (
    NotPrivateError,
    check_private,
    default_cache_directory,
    private_cache_directory,
)
from nacre.json_types import (
    JsonObject,
    JsonValue,
    NotJsonError,
    decode_json,
    encode_json,
    has_too_many_parts,
)
from nacre.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from nacre.config import McpServerConfig

    Request: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject]]

logger = logging.getLogger(__name__)

MAX_TOOLS: Final = 10_000
_MAX_PAGES: Final = 1_000
_MAX_CURSOR_CHARACTERS: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class RawListing:
    """The tools as the server sent them, what it says about itself, and notes about the list."""

    tools: Sequence[JsonValue]
    notes: tuple[str, ...] = ()
    capabilities: JsonObject = field(default_factory=dict[str, JsonValue])
    description: str = ""
    version: str = ""

    def compute_digest(self) -> bytes:
        """Return a digest to compare listings, or empty bytes if it cannot be computed."""
        try:
            return hashlib.sha256(encode_json(self.to_json())).digest()
        except NotJsonError:
            return b""

    def to_json(self) -> JsonObject:
        return {
            "format": _FORMAT,
            "tools": list(self.tools),
            "notes": list(self.notes),
            "capabilities": self.capabilities,
            "description": self.description,
            "version": self.version,
        }


async def list_raw_tools(request: Request) -> RawListing:
    """Read all pages of `tools/list`, up to a limit. Raises the errors of `request`."""
    found: list[JsonValue] = []
    cursors: set[str] = set()
    params: JsonObject = {}
    for _ in range(_MAX_PAGES):
        page = await request("tools/list", params)
        tools = page.get("tools")
        if not isinstance(tools, list):
            return RawListing(tools=found, notes=("a page of its list has no tools",))
        found.extend(tools)
        cursor = page.get("nextCursor")
        if cursor is None or cursor == "":
            return _truncate_listing(found)
        if not isinstance(cursor, str) or len(cursor) > _MAX_CURSOR_CHARACTERS:
            return RawListing(tools=found, notes=("its list has an invalid cursor",))
        if cursor in cursors:
            return RawListing(tools=found, notes=("its list repeats a cursor",))
        if len(found) >= MAX_TOOLS:
            return _truncate_listing(found, has_more=True)
        cursors.add(cursor)
        params = {"cursor": cursor}
    return RawListing(tools=found, notes=(f"its list has more than {_MAX_PAGES:,} pages",))


def _truncate_listing(found: list[JsonValue], *, has_more: bool = False) -> RawListing:
    if len(found) <= MAX_TOOLS and not has_more:
        return RawListing(tools=found)
    note = f"it lists more than {MAX_TOOLS:,} tools; the rest is left out"
    return RawListing(tools=found[:MAX_TOOLS], notes=(note,))


# The cache.

_FORMAT: Final = 1
_FOLDER: Final = "mcp-listings"
_MAX_FILE_BYTES: Final = 8 * 1024 * 1024
_MAX_FILES: Final = 256
_MAX_AGE_SECONDS: Final = 30 * 24 * 3600.0
_OPEN_FLAGS: Final = (
    # A FIFO in the place of the file must not block, and a link must not lead elsewhere.
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)
_ERRORS: Final = (OSError, RuntimeError, NotPrivateError)


class ListingCache:
    """Stores listings in files that only their owner can read. All methods block.

    The name of a file is a hash of the connection settings, so no secret is in clear.
    """

    def __init__(self, directory: Path | None = None) -> None:
        """By default, the files are in Nacre's cache directory."""
        self._directory = directory

    def load_all(self, configs: Sequence[McpServerConfig]) -> dict[str, RawListing]:
        """Return the stored listings by server name. A file that cannot be trusted is ignored."""
        try:
            folder = self._open_folder()
        except _ERRORS:
            return {}
        found = {config.name: _load(folder / _file_name(config)) for config in configs}
        return {name: listing for name, listing in found.items() if listing is not None}

    def store(
        self, config: McpServerConfig, listing: RawListing, *, has_secret: Callable[[str], bool]
    ) -> None:
        """Store a listing. A full disk or a missing directory costs only the cache."""
        # An empty list may be temporary, for example until somebody logs in.
        if not listing.tools:
            return
        try:
            content = encode_json(listing.to_json())
            is_too_large = len(content) > _MAX_FILE_BYTES or has_too_many_parts(content)
            if is_too_large or has_secret(content.decode()):
                return
            folder = self._open_folder()
            write_private(folder / _file_name(config), content)
            _remove_oldest(folder)
        except (NotJsonError, *_ERRORS) as error:
            logger.debug("the tools of %s cannot be cached: %s", config.name, error)

    def _open_folder(self) -> Path:
        directory = self._directory or default_cache_directory().absolute()
        return private_cache_directory(private_cache_directory(directory) / _FOLDER)


def _file_name(config: McpServerConfig) -> str:
    """A hash of all settings that decide which server answers, and as whom."""
    identity = [
        config.transport,
        config.command,
        config.args,
        sorted(config.env.items()),
        config.cwd,
        config.url,
        sorted(config.headers.items()),
    ]
    return f"{hashlib.sha256(encode_json(identity)).hexdigest()}.json"


def _load(path: Path) -> RawListing | None:
    try:
        content = _read(path)
        return None if has_too_many_parts(content) else _parse(decode_json(content))
    except (NotJsonError, *_ERRORS):
        return None


def _read(path: Path) -> bytes:
    with os.fdopen(os.open(path, _OPEN_FLAGS), "rb") as file:
        info = os.fstat(file.fileno())
        check_private(path, info)
        is_recent = abs(time.time() - info.st_mtime) < _MAX_AGE_SECONDS
        if not stat.S_ISREG(info.st_mode) or info.st_size > _MAX_FILE_BYTES or not is_recent:
            raise NotPrivateError(f"{path} is not a listing")
        # It may grow while it is read.
        return file.read(_MAX_FILE_BYTES)


def _parse(value: JsonValue) -> RawListing | None:
    match value:
        case {
            "format": int(version_of_format),
            "tools": list(tools),
            "notes": list(notes),
            "capabilities": dict(capabilities),
            "description": str(description),
            "version": str(version),
        } if version_of_format == _FORMAT and 0 < len(tools) <= MAX_TOOLS:
            return RawListing(
                tools=tools,
                notes=tuple(map(str, notes)),
                capabilities=capabilities,
                description=description,
                version=version,
            )
        case _:
            return None


def _remove_oldest(folder: Path) -> None:
    files = list(folder.iterdir())
    if len(files) <= _MAX_FILES:
        return
    for path in sorted(files, key=lambda path: path.lstat().st_mtime)[:-_MAX_FILES]:
        with suppress(OSError):
            path.unlink()
