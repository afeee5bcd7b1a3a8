"""Nacre's configuration as the `mcp` commands read and change it: the servers in it, by name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nacre.cli.output import UsageProblem
from nacre.config.config_file import (
    find_config_file,
    read_config_file,
    remove_config_member,
    set_config_member,
)
from nacre.config.fields import object_without_showing
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.config.config_file import ConfigFile
    from nacre.json_types import JsonObject

# The second is what other clients have: such a file may be used as it is.
_SECTIONS: Final = (("mcp", "servers"), ("mcpServers",))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigDocument:
    """The configuration, and where in it the servers stand, or would."""

    file: ConfigFile
    members: Mapping[str, object]
    section: tuple[str, ...]
    entries: Mapping[str, object]

    @property
    def section_path(self) -> str:
        return ".".join(self.section)

    def set_entry(self, name: str, entry: JsonObject) -> None:
        """Write the server's entry; raises UsageProblem."""
        try:
            set_config_member(self.file.path, (*self.section, name), entry)
        except ConfigError as error:
            raise UsageProblem(str(error)) from None

    def remove_entry(self, name: str) -> bool:
        """Whether there was one; raises UsageProblem."""
        try:
            return remove_config_member(self.file.path, (*self.section, name))
        except ConfigError as error:
            raise UsageProblem(str(error)) from None


def read_config(named: str | None, *, is_made: bool = False) -> ConfigDocument:
    """Find and read the configuration; one that is to be made need not be there.

    Raises UsageProblem.
    """
    file = find_config_file(None if named is None else Path(named), environment=os.environ)
    try:
        is_missing = is_made and not file.path.exists()
        members: Mapping[str, object] = {} if is_missing else read_config_file(file)
        section, entries = _section_of(members, file.path)
    except ConfigError as error:
        raise UsageProblem(str(error)) from None
    return ConfigDocument(file=file, members=members, section=section, entries=entries)


def _section_of(
    members: Mapping[str, object], file: Path
) -> tuple[tuple[str, ...], Mapping[str, object]]:
    found = {section: _at(members, section, file) for section in _SECTIONS}
    used = [section for section, entries in found.items() if entries]
    if len(used) > 1:
        names = " and in ".join(f"`{'.'.join(section)}`" for section in used)
        raise ConfigError(str(file), f"has servers in {names}; keep them in one of the two")
    section = used[0] if used else _SECTIONS[0]
    return section, found[section]


def _at(members: Mapping[str, object], keys: tuple[str, ...], file: Path) -> Mapping[str, object]:
    here = members
    for count, key in enumerate(keys, 1):
        here = object_without_showing(here.get(key), f"{file}: {'.'.join(keys[:count])}")
    return here
