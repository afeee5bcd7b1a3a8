"""The configuration file of a command: find, read, check and change it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never, cast

from nacre.cli.output import UsageError, warn
from nacre.config import (
    CONFIG_VARIABLE,
    MISSING,
    change_config_text,
    find_config_file,
    is_object,
    keys_from,
    list_unused_places,
    member_path,
    nearest_key,
    object_at,
    parse_json5,
    read_config_file,
    read_system,
    value_at,
    with_member,
)
from nacre.errors import ConfigError, MisplacedValueError, MissingReferenceError
from nacre.plugins import check_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from nacre.config import ConfigFile, Key, Setting
    from nacre.json_types import JsonObject, JsonValue


_MAX_PATHS: Final = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigDocument:
    """A file, and what is in it."""

    file: ConfigFile
    members: Mapping[str, object]


def config_file(named: str | None) -> ConfigFile:
    return find_config_file(None if named is None else Path(named), environment=os.environ)


def read_document(named: str | None) -> ConfigDocument:
    """Raises UsageError for a file that cannot be read."""
    file = config_file(named)
    try:
        return ConfigDocument(file=file, members=read_config_file(file))
    except ConfigError as error:
        raise UsageError(str(error)) from None


def keys_of(path: str) -> tuple[Key, ...]:
    """Raises UsageError for what is no path."""
    try:
        return keys_from(path)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def not_there(path: str, document: ConfigDocument, settings: Iterable[str]) -> UsageError:
    """What to say about a path that leads nowhere, with the one that may have been meant."""
    # Those of which there may be many have no path that could be written.
    written = (name for name in settings if "<" not in name and "[]" not in name)
    near = nearest_key(path, (*_paths_in(document.members), *written))
    hint = f"; did you mean `{near}`?" if near else ""
    return UsageError(f"{document.file.path} has no `{path}`{hint}")


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What was found in a document."""

    problems: tuple[ConfigError, ...]
    warnings: tuple[str, ...]
    unused_places: tuple[str, ...]
    """The paths of values that Nacre does not read."""


def check(document: Mapping[str, object], file: Path) -> Checked:
    """Read the document of this file as the gateway would."""
    found = read_system(document, environment=os.environ, folder=file.absolute().parent)
    plugins, told = check_plugins(found.config.plugins), {it.path for it in found.problems}
    return Checked(
        problems=(
            *found.problems,
            # Where a value could not be read, a schema finds the stopgap in its place.
            *(it for it in plugins.problems if it.path not in told),
        ),
        warnings=(
            *found.warnings,
            *plugins.warnings,
        ),
        unused_places=tuple(list_unused_places(found.document)),
    )


def misplaced_in(document: Mapping[str, object], file: Path) -> frozenset[str]:
    """Where something stands in the document that has no business there, or that nobody reads."""
    found = check(document, file)
    places = [it.place for it in found.problems if isinstance(it, MisplacedValueError)]
    return frozenset((*places, *found.unused_places))


def change_file(path: Path, change: Callable[[str], str | None]) -> bool:
    """Write what `change` makes of the text if that is sound; false if it changes nothing.

    A variable or file that is missing here is warned of only: it may be there where Nacre is
    started. Raises UsageError.
    """

    def change_checked(text: str) -> str | None:
        changed = change(text)
        if changed is not None:
            _refuse_if_wrong(_parse_document(text, path), _parse_document(changed, path), path)
        return changed

    try:
        return change_config_text(path, change_checked)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _parse_document(text: str, path: Path) -> Mapping[str, object]:
    if not text.strip():
        return {}
    return object_at(parse_json5(text, path=str(path)), str(path))


def _refuse_if_wrong(before: Mapping[str, object], after: Mapping[str, object], path: Path) -> None:
    found = check(after, path)
    faults = [problem for problem in found.problems if not _may_be_right_elsewhere(problem)]
    if faults:
        _refuse_if_none_is_repaired(
            faults, {str(old) for old in check(before, path).problems}, path
        )
    for text in (*map(str, found.problems), *found.warnings):
        warn(text)


def _refuse_if_none_is_repaired(faults: list[ConfigError], old: set[str], path: Path) -> None:
    """Who repairs a file with several faults does so one at a time."""
    # What an installed plugin asks for is no fault of a change to something else.
    counted = {str(it) for it in faults if not (_is_of_plugin(it) and str(it) in old)}
    if counted and not counted < old:
        listed = "".join(f"\n  {fault}" for fault in sorted(counted))
        raise UsageError(f"nothing was written, as {path} would be wrong:{listed}")


def _is_of_plugin(problem: ConfigError) -> bool:
    return problem.path.startswith("plugins.entries.")


def _may_be_right_elsewhere(problem: ConfigError) -> bool:
    return isinstance(problem, MissingReferenceError)


def defaults_at(path: str, settings: Mapping[str, Setting]) -> object:
    """The default there, of a section as an object; MISSING if no setting has such a path."""
    if path in settings:
        return settings[path].default
    start, found = f"{path}.", dict[str, object]()
    for name, setting in settings.items():
        # Those of which there may be many have no defaults of their own.
        if name.startswith(start) and "<" not in name and "[]" not in name:
            _set_default(found, name.removeprefix(start).split("."), setting.default)
    return found or MISSING


def _set_default(here: dict[str, object], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        inner = here.setdefault(key, {})
        if not isinstance(inner, dict):
            # The other way to write what the one word before it says.
            return
        here = cast("dict[str, object]", inner)
    here[keys[-1]] = value


def with_setting(text: str, keys: Sequence[Key], value: JsonValue, *, path: str) -> str:
    """The text in which the setting has the value, as `with_member` has it; raises ConfigError.

    `codeMode: true` becomes `codeMode: {enabled: true, timeoutMs: 500}`, and the like.
    """
    *way, last = keys
    if text.strip() and isinstance(last, str):
        meant = _expand_shorthand(way, value_at(parse_json5(text, path=path), way))
        if meant is not None:
            return with_member(text, way, {**meant, last: value}, path=path)
    return with_member(text, keys, value, path=path)


def _expand_shorthand(keys: Sequence[Key], value: object) -> JsonObject | None:
    """The object that a word stands for."""
    match keys, value:
        case [*_, "tools", "codeMode" | "toolSearch"], bool():
            return {"enabled": value}
        case ["agents", *_, "model"], str():
            return {"primary": value}
        case _:
            return None


def origin_text(file: ConfigFile) -> str:
    """One line: the file, why it is this one, and whether it is there."""
    state = "" if file.path.exists() else "; it is not there"
    return f"{file.path}, {_reason(file)}{state}"


def _reason(file: ConfigFile) -> str:
    match file.origin:
        case "option":
            return "named by --config"
        case "environment":
            return f"named by {CONFIG_VARIABLE}"
        case "project":
            return "in the working directory"
        case "user":
            return "in your config directory"
        case _:
            assert_never(file.origin)
