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
    TOKEN_VARIABLE,
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
)
from nacre.errors import ConfigError, MissingReferenceError
from nacre.plugins import check_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from nacre.cli.system_config import AgentSurface
    from nacre.config import ConfigFile, Key, Setting, SystemConfig


_MAX_PATHS: Final = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigDocument:
    """A configuration file and its content."""

    file: ConfigFile
    members: Mapping[str, object]


def config_file(named: str | None) -> ConfigFile:
    return find_config_file(None if named is None else Path(named), environment=os.environ)


def read_document(named: str | None) -> ConfigDocument:
    """Find and read the file. Raises UsageError."""
    file = config_file(named)
    try:
        return ConfigDocument(file=file, members=read_config_file(file))
    except ConfigError as error:
        raise UsageError(str(error)) from None


def parse_keys(path: str) -> tuple[Key, ...]:
    """Parse a path of settings. Raises UsageError."""
    try:
        return keys_from(path)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def unknown_path_error(path: str, document: ConfigDocument, settings: Iterable[str]) -> UsageError:
    """The error for an unknown path, with a similar one."""
    # Not the patterns of settings that can exist several times.
    written = (name for name in settings if "<" not in name and "[]" not in name)
    near = nearest_key(path, (*_list_paths(document.members), *written))
    hint = f"; did you mean `{near}`?" if near else ""
    return UsageError(f"{document.file.path} has no `{path}`{hint}")


def _list_paths(members: Mapping[str, object]) -> list[str]:
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
class CheckResult:
    """The findings in a document."""

    problems: tuple[ConfigError, ...]
    warnings: tuple[str, ...]
    unused_places: tuple[str, ...]
    """The paths of values that Nacre does not read."""
    surfaces: Mapping[str, AgentSurface]
    """How each agent offers its tools to the model."""
    config: SystemConfig
    """With defaults in the places of the problems."""


def check(document: Mapping[str, object], file: Path) -> CheckResult:
    """Check the document as the gateway would."""
    # Not above: a command that reads one setting would import the whole agent.
    from nacre.cli.system_config import find_surface

    found = read_system(document, environment=os.environ, folder=file.absolute().parent)
    plugins, reported = check_plugins(found.config.plugins), {it.path for it in found.problems}
    return CheckResult(
        problems=(
            *found.problems,
            # An unreadable value has a default in its place, which would be checked here.
            *(it for it in plugins.problems if it.path not in reported),
        ),
        warnings=(
            *found.warnings,
            *plugins.warnings,
        ),
        unused_places=tuple(list_unused_places(found.document)),
        surfaces={
            it.id: find_surface(it, found.config) for it in found.config.agents.by_id.values()
        },
        config=found.config,
    )


def change_file(path: Path, change: Callable[[str], str | None]) -> bool:
    """Change the text of the file if the result is valid; False if it does not change.

    Only warns of a missing variable or file: it may exist where Nacre is started. Raises
    UsageError.
    """

    def change_checked(text: str) -> str | None:
        changed = change(text)
        if changed is not None:
            _check_change(_parse_document(text, path), _parse_document(changed, path), path)
        return changed

    try:
        return change_config_text(path, change_checked)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _parse_document(text: str, path: Path) -> Mapping[str, object]:
    if not text.strip():
        return {}
    return object_at(parse_json5(text, path=str(path)), str(path))


def _check_change(before: Mapping[str, object], after: Mapping[str, object], path: Path) -> None:
    found = check(after, path)
    faults = [problem for problem in found.problems if not _may_be_valid_elsewhere(problem)]
    if faults:
        _check_repairs(faults, {str(old) for old in check(before, path).problems}, path)
    for text in (*map(str, found.problems), *found.warnings):
        warn(text)


def _check_repairs(faults: list[ConfigError], old: set[str], path: Path) -> None:
    """Allow a change that repairs some of the problems and adds none."""
    # A plugin's own problem must not block another change.
    counted = {str(it) for it in faults if not (_is_of_plugin(it) and str(it) in old)}
    if counted and not counted < old:
        listed = "".join(f"\n  {fault}" for fault in sorted(counted))
        raise UsageError(f"nothing was written, because {path} would be invalid:{listed}")


def _is_of_plugin(problem: ConfigError) -> bool:
    return problem.path.startswith("plugins.entries.")


def _may_be_valid_elsewhere(problem: ConfigError) -> bool:
    return isinstance(problem, MissingReferenceError) or problem.path == TOKEN_VARIABLE


def defaults_at(path: str, settings: Mapping[str, Setting]) -> object:
    """The default of a setting, or of a section as an object; MISSING for an unknown path."""
    if path in settings:
        return settings[path].default
    start, found = f"{path}.", dict[str, object]()
    for name, setting in settings.items():
        # Settings that can exist several times have no defaults.
        if name.startswith(start) and "<" not in name and "[]" not in name:
            _set_default(found, name.removeprefix(start).split("."), setting.default)
    return found or MISSING


def _set_default(section: dict[str, object], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        inner = section.setdefault(key, {})
        if not isinstance(inner, dict):
            # The section also has a short form, which is its default.
            return
        section = cast("dict[str, object]", inner)
    section[keys[-1]] = value


def origin_text(file: ConfigFile) -> str:
    """The file, why it is used, and whether it exists."""
    state = "" if file.path.exists() else "; it does not exist"
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
