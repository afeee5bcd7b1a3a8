"""Values of a section that lead elsewhere: references, files and secrets. Never shown in errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from nacre.config.expansion import read_secret_text
from nacre.config.fields import refused
from nacre.config.folders import home_folder

if TYPE_CHECKING:
    from nacre.config.reading import Reading
    from nacre.config.section import Section

_OTHERS_MAY_READ = 0o004


def expanded_text(section: Section, key: str, *, default: object = "", allowed: str) -> str:
    """The text with its references replaced; empty where there is none."""
    found = section.find(key, default=default, allowed=allowed)
    if found is None:
        return ""
    if not isinstance(found.value, str):
        section.reading.note(refused(found.path, found.value, allowed))
        return ""
    return expanded(found.value, section.reading, path=found.path)


def expanded(text: str, reading: Reading, *, path: str) -> str:
    """The text with its references replaced; empty, and noted, if one cannot be."""
    return reading.attempt(lambda: reading.expander.expand(text, path=path), "")


def file_path(section: Section, key: str, *, default: Path | None = None) -> Path | None:
    """The path of a file or folder, which may not be there."""
    shown_default = "" if default is None else str(default)
    name = expanded_text(section, key, default=shown_default, allowed="a path")
    return path_from(name, section.reading) if name else default


def path_from(name: str, reading: Reading) -> Path:
    """`~` is the user's folder; what is relative is so to the document."""
    if name == "~" or name.startswith(("~/", "~\\")):
        return home_folder(reading.environment) / name[2:]
    return Path(os.path.normpath(reading.folder / name))


def file_text(section: Section, key: str) -> str:
    """What stands in the small file that the setting names; empty where there is no setting."""
    file, reading = file_path(section, key), section.reading
    if file is None:
        return ""
    return reading.attempt(lambda: read_secret_text(file, path=section.path_of(key)), "")


def secret(section: Section, key: str, *, file_key: str, variable: str) -> str:
    """A secret that is sent in a header: from the setting, its file, or else the variable."""
    written = expanded_text(section, key, allowed="text, ${NAME} for a variable")
    read = _secret_of_file(section, file_key)
    used = section.used_key(key, file_key)
    if used is None:
        value = section.reading.environment.get(variable, "") if variable else ""
    else:
        value = written if used == key else read
    if value.isascii() and value.isprintable() and " " not in value:
        return value
    section.refuse(
        used or key,
        "gives a secret that no header can carry: with spaces, line ends, control or non-ASCII "
        "characters",
    )
    return ""


def _secret_of_file(section: Section, key: str) -> str:
    file = file_path(section, key)
    if file is None:
        return ""
    text = file_text(section, key).rstrip("\r\n")
    if _is_open_to_others(file):
        section.reading.warn(
            section.path_of(key),
            f"names {file}, which everybody on this machine may read; `chmod 600` it",
        )
    return text


def _is_open_to_others(file: Path) -> bool:
    try:
        return os.name == "posix" and bool(file.stat().st_mode & _OTHERS_MAY_READ)
    except (OSError, ValueError):
        # Told by whoever reads it.
        return False
