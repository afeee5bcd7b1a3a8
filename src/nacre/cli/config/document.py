"""The configuration that a command of `nacre config` is about: found, read and looked into."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from nacre.cli.output import UsageProblem
from nacre.config.config_file import find_config_file, read_config_file
from nacre.config.fields import is_object, member_path
from nacre.config.nearest_keys import nearest_key
from nacre.config.paths import keys_from
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from nacre.config.config_file import ConfigFile
    from nacre.config.json5_edits import Key

_MAX_PATHS: Final = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigDocument:
    """A file, and what is in it."""

    file: ConfigFile
    members: Mapping[str, object]


def config_file(named: str | None) -> ConfigFile:
    return find_config_file(None if named is None else Path(named), environment=os.environ)


def read_document(named: str | None) -> ConfigDocument:
    """Raises UsageProblem for a file that cannot be read."""
    file = config_file(named)
    try:
        return ConfigDocument(file=file, members=read_config_file(file))
    except ConfigError as error:
        raise UsageProblem(str(error)) from None


def keys_of(path: str) -> tuple[Key, ...]:
    """Raises UsageProblem for what is no path."""
    try:
        return keys_from(path)
    except ConfigError as error:
        raise UsageProblem(str(error)) from None


def not_there(path: str, document: ConfigDocument, settings: Iterable[str]) -> UsageProblem:
    """What to say about a path that leads nowhere, with the one that may have been meant."""
    # Those of which there may be many have no path that could be written.
    written = (name for name in settings if "<" not in name and "[]" not in name)
    near = nearest_key(path, (*_paths_in(document.members), *written))
    hint = f"; did you mean `{near}`?" if near else ""
    return UsageProblem(f"{document.file.path} has no `{path}`{hint}")


def _paths_in(members: Mapping[str, object]) -> list[str]:
    return list(islice(_walk(members, ""), _MAX_PATHS))


def _walk(value: object, path: str) -> Iterator[str]:
    if path:
        yield path
    if is_object(value):
        for key, member in value.items():
            yield from _walk(member, member_path(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            yield from _walk(item, f"{path}[{index}]")
