"""Finds, reads and changes the config file."""

from __future__ import annotations

import json
import os
import stat
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from nacre.config.folders import user_folder
from nacre.config.json5 import parse_json5, with_member, without_member
from nacre.config.setting_paths import object_at, value_at
from nacre.errors import ConfigError
from nacre.lazy_dataclasses import dataclass
from nacre.private_files import replace_private

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from nacre.config.setting_paths import Key
    from nacre.json_types import JsonObject, JsonValue

Origin = Literal["option", "environment", "project", "user"]

CONFIG_VARIABLE: Final = "NACRE_CONFIG"
DEFAULT_DOCUMENT: Final[Mapping[str, object]] = {"tools": {"codeMode": True}}
"""Used without a configuration, and the content of a new file."""
_NEW_FILE: Final = f"{json.dumps(DEFAULT_DOCUMENT, indent=2)}\n"
_NAMES: Final = ("nacre.json5", "nacre.json")
# Far more than people write. Reading a device would never end.
_MAX_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFile:
    """The config file, which may not exist yet."""

    path: Path
    origin: Origin
    """Why it is this file: `--config`, `NACRE_CONFIG`, or the directory where it was found."""


def find_config_file(
    named: Path | None = None, *, environment: Mapping[str, str], project: Path | None = None
) -> ConfigFile:
    """Find the config file: the named one, that of the environment, of the project, or of the user.
    If none exists, it is the file that would be created for the user."""
    if named is not None:
        return ConfigFile(path=named, origin="option")
    if environment.get(CONFIG_VARIABLE):
        return ConfigFile(path=Path(environment[CONFIG_VARIABLE]), origin="environment")
    here, home = project or Path.cwd(), user_folder("config", environment)
    places: tuple[tuple[Path, Origin], ...] = ((here, "project"), (home, "user"))
    for folder, origin in places:
        for name in _NAMES:
            if (folder / name).is_file():
                return ConfigFile(path=folder / name, origin=origin)
    return ConfigFile(path=home / _NAMES[0], origin="user")


def read_config_file(file: ConfigFile, *, may_be_special: bool = True) -> Mapping[str, object]:
    """Read the document; empty if there is no file. Raises ConfigError if a named file is missing,
    or if the file cannot be read or is not a JSON5 object.

    A special file, such as a pipe, may block until another program writes to it.
    """
    text = _text_of(file.path, may_be_special=may_be_special)
    if text is None and file.origin in ("option", "environment"):
        by = "--config" if file.origin == "option" else CONFIG_VARIABLE
        raise ConfigError(str(file.path), f"is not there, but {by} names it")
    if text is None or not text.strip():
        return {}
    return object_at(parse_json5(text, path=str(file.path)), str(file.path))


def read_config_text(path: Path) -> str:
    """The text of the file as `change_config_text` passes it on. Raises ConfigError."""
    text = _text_of(path, may_be_special=False) or ""
    return text if text.strip() else _NEW_FILE


def set_config_member(path: Path, keys: Sequence[Key], value: JsonValue) -> None:
    """Write one member; the file and its folder are made where needed. Raises ConfigError."""
    change_config_text(path, lambda text: with_member(text, keys, value, path=str(path)))


def with_setting(text: str, keys: Sequence[Key], value: JsonValue, *, path: str) -> str:
    """Set the value in the text, as `with_member` does. Raises ConfigError.

    Expands short forms: `codeMode: true` becomes `codeMode: {enabled: true, timeoutMs: 500}`.
    """
    *parents, last = keys
    if text.strip() and isinstance(last, str):
        expanded = _expand_shorthand(parents, value_at(parse_json5(text, path=path), parents))
        if expanded is not None:
            return with_member(text, parents, {**expanded, last: value}, path=path)
    return with_member(text, keys, value, path=path)


def _expand_shorthand(keys: Sequence[Key], value: object) -> JsonObject | None:
    """The object for a short form."""
    match keys, value:
        case [*_, "tools", "codeMode" | "toolSearch"], bool():
            return {"enabled": value}
        case ["agents", *_, "model"], str():
            return {"primary": value}
        case _:
            return None


def remove_config_member(path: Path, keys: Sequence[Key]) -> bool:
    """Remove one member; false if there is none, or no file. Raises ConfigError."""
    if not path.exists():
        return False
    return change_config_text(path, lambda text: without_member(text, keys, path=str(path)))


def change_config_text(path: Path, change: Callable[[str], str | None]) -> bool:
    """Write the text that `change` returns; False if it returns None.

    Without a file, or with an empty one, the text is that of `DEFAULT_DOCUMENT`: otherwise the
    first setting would turn code mode off. Nothing is written if `change` raises.
    """
    # Write to the target of a link, so that the link is kept.
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _sole_writer(target.parent):
            _refuse_if_no_file(target)
            before = _text_of(target) or ""
            text = change(before if before.strip() else _NEW_FILE)
            if text is not None:
                _write_whole(target, text.encode())
    except OSError as error:
        raise _not_possible(path, "written", error) from error
    except UnicodeEncodeError:
        raise ConfigError(str(path), "would contain half a character; write whole ones") from None
    return text is not None


def _text_of(path: Path, *, may_be_special: bool = True) -> str | None:
    """Line ends as they are; None if there is no file."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        flags = 0 if may_be_special else getattr(os, "O_NONBLOCK", 0)
        with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as stream:
            if not may_be_special and not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ConfigError(str(path), "is not a regular file, and is not read")
            data = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _not_possible(path, "read", error) from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(str(path), f"has more than {_MAX_BYTES} bytes; is it the right file?")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(str(path), "is not UTF-8 text") from None


def _refuse_if_no_file(path: Path) -> None:
    """A device or a pipe that may be read would be replaced by a file, `/dev/null` included."""
    if path.exists() and not path.is_file():
        raise ConfigError(str(path), "is not a regular file, and cannot be changed")


def _write_whole(path: Path, data: bytes) -> None:
    """Replace the file atomically: readers find the old or the new file, also after a crash."""
    old = path.stat() if path.exists() else None
    with replace_private(path) as file:
        file.write(data)
        if old is not None:
            _copy_owner_and_mode(old, file.fileno())


def _copy_owner_and_mode(old: os.stat_result, descriptor: int) -> None:
    """A file that root has changed stays open to the user that it belongs to."""
    if sys.platform != "win32":
        # Only root may change the owner of a file.
        with suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, old.st_mode & 0o777)


@contextmanager
def _sole_writer(folder: Path) -> Generator[None]:
    """Two commands at once would each write what they read, and one change would be lost."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _not_possible(path: Path, what: str, error: OSError) -> ConfigError:
    return ConfigError(str(path), f"cannot be {what}: {error.strerror or error}")
