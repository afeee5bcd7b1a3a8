"""The `storage` contract: the database that holds sessions and trajectories."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nacre.config.folders import user_folder
from nacre.config.section_values import expanded_text, path_from

if TYPE_CHECKING:
    from nacre.config.section import Section

_ALLOWED: Final = "sqlite:///<path> and postgresql://<user>@<host>/<database>"
_SQLITE = re.compile(r"sqlite:///(.+)")
_POSTGRES = re.compile(r"postgres(?:ql)?(://\S+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageConfig:
    """Where sessions are kept."""

    url: str = field(repr=False)
    """`sqlite:///<absolute path>` or `postgresql://…`, which may hold a password."""


def read_storage(storage: Section) -> StorageConfig:
    """Read `storage`; faults are noted, without the URL, which may hold a password."""
    default = user_folder("data", storage.reading.environment) / "nacre.db"
    default_url = f"sqlite:///{default}"
    given = expanded_text(storage, "url", default=default_url, allowed=_ALLOWED)
    if not given:
        return StorageConfig(url=default_url)
    if sqlite := _SQLITE.fullmatch(given):
        return StorageConfig(url=f"sqlite:///{_file(sqlite[1], storage)}")
    if postgres := _POSTGRES.fullmatch(given):
        return StorageConfig(url=f"postgresql{postgres[1]}")
    storage.refuse("url", f"is no address of a database that Nacre knows; allowed: {_ALLOWED}")
    return StorageConfig(url=default_url)


def _file(name: str, storage: Section) -> str:
    return name if name == ":memory:" else str(path_from(name, storage.reading))
