"""Where a database is: what its URL says, and how it is named in texts, without the password."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote, quote_plus

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from nacre.errors import StorageError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_SQLITE_SCHEMES: Final = ("sqlite", "sqlite+aiosqlite")
_POSTGRES_SCHEMES: Final = ("postgresql", "postgres", "postgresql+asyncpg")
_ALLOWED: Final = "allowed: sqlite:///<path>, sqlite:///:memory:, postgresql://<user>@<host>/<name>"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLocation:
    """Nowhere: gone when the store is closed. For tests."""

    address: str = ":memory:"
    shown: str = "the database in memory"

    def blank(self, text: str) -> str:
        return text


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLocation:
    """An SQLite file."""

    path: Path

    @property
    def address(self) -> str:
        return str(self.path)

    @property
    def shown(self) -> str:
        return f"the database {self.address}"

    def blank(self, text: str) -> str:
        return text


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerLocation:
    """A database of a PostgreSQL server."""

    url: URL = field(repr=False)
    """With the driver that we use, and the password."""

    @property
    def address(self) -> str:
        bare = self.url.set(drivername="postgresql", query={})
        return bare.render_as_string(hide_password=True)

    @property
    def shown(self) -> str:
        return f"the database {self.address}"

    def blank(self, text: str) -> str:
        """The text without the password, in whichever form it got there."""
        password = self.url.password
        if password:
            for form in {password, quote(password), quote(password, safe=""), quote_plus(password)}:
                text = text.replace(form, "***")
        return text


Place: TypeAlias = MemoryLocation | FileLocation | ServerLocation


def parse_storage_url(url: str) -> Place:
    """Raises StorageError for a URL that is none, or for another kind of database. Blocks."""
    scheme = url.partition(":")[0]
    if scheme in _SQLITE_SCHEMES:
        return _sqlite_place(url)
    if scheme in _POSTGRES_SCHEMES:
        return _server_place(url)
    # Only what stands before the first colon: anything behind it may be a password.
    raise StorageError(f"`storage.url` begins with {scheme[:20]!r}; {_ALLOWED}")


def _sqlite_place(url: str) -> MemoryLocation | FileLocation:
    _, separator, name = url.partition(":///")
    if name == ":memory:":
        return MemoryLocation()
    if not separator or not name or "?" in name or "\0" in name:
        raise StorageError(f"`storage.url` is {url!r}; {_ALLOWED}")
    try:
        return FileLocation(path=Path(name).expanduser().absolute())
    except RuntimeError as error:
        raise StorageError(f"`storage.url` is {url!r}: {error}") from error


def _server_place(url: str) -> ServerLocation:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The parser's own words may quote a password with an unescaped `@` or `/`.
        raise StorageError(
            "`storage.url` cannot be read; `@`, `:`, `/`, `?` and `%` in a password have to be "
            f"written as %40, %3A, %2F, %3F and %25; {_ALLOWED}"
        ) from None
    return ServerLocation(url=parsed.set(drivername="postgresql+asyncpg"))
