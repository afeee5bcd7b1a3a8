"""Resolves `${...}` references, paths and secrets of a document. No value is in any error."""

from __future__ import annotations

import os
import re
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from nacre.config.folders import home_folder
from nacre.config.setting_paths import member_path
from nacre.errors import ConfigError, MissingReferenceError
from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from nacre.config.sections import Section

_T = TypeVar("_T")

_MAX_SECRET_BYTES: Final = 65_536
_OTHERS_MAY_READ: Final = 0o004

# `$${` stands for a plain `${`.
_REFERENCE = lazy_pattern(r"\$\$\{|\$\{([^}]*)\}")
_VARIABLE = lazy_pattern(r"([A-Za-z_]\w*)(?::-(.*))?", re.ASCII | re.DOTALL)
_KIND = lazy_pattern(r"([A-Za-z]+):(.*)", re.DOTALL)
_NOT_IN_A_VARIABLE = lazy_pattern(r"\W+", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Expander:
    """Puts values in place of references. Reading `${file:...}` blocks, so not in an event loop."""

    environment: Mapping[str, str] = field(repr=False)
    workspace: Path

    def expand(self, text: str, *, path: str, looked_up: list[str] | None = None) -> str:
        """The text with every reference replaced once; raises ConfigError for `path` that names
        what is missing. What is no reference, such as a shell's `${name%.*}`, stays as it is.

        Values of variables and files are added to `looked_up`: they may be secrets.
        """

        def value_of(reference: re.Match[str]) -> str:
            body = reference[1]
            if body is None:
                return "${"
            value = self._value(body, reference[0], path)
            if looked_up is not None and value != reference[0] and self._folder(body) is None:
                looked_up.append(value)
            return value

        return _REFERENCE.sub(value_of, text)

    def _value(self, body: str, reference: str, path: str) -> str:
        if "${" in body:
            raise ConfigError(path, "has a reference inside another one; write them side by side")
        if (folder := self._folder(body)) is not None:
            return folder
        # Before kinds, because of the colon in `${NAME:-default}`.
        if variable := _VARIABLE.fullmatch(body):
            return self._variable(variable[1], variable[2], path)
        if kind := _KIND.fullmatch(body):
            return self._of_kind(kind[1], kind[2], reference, path)
        return reference

    def _folder(self, name: str) -> str | None:
        match name:
            case "userHome":
                return str(home_folder(self.environment))
            case "workspaceFolder":
                return str(self.workspace)
            case "workspaceFolderBasename":
                return self.workspace.name
            case "pathSeparator" | "/":
                return os.sep
            case _:
                return None

    def _of_kind(self, kind: str, rest: str, reference: str, path: str) -> str:
        match kind:
            case "env":
                name, has_default, default = rest.partition(":-")
                return self._variable(name, default if has_default else None, path)
            case "file":
                return self._file(rest, path)
            case "input":
                return self._input(rest, path)
            case _ if rest[:1].isalpha():
                raise ConfigError(
                    path,
                    f"uses ${{{kind}:…}}, which Nacre does not know; known: ${{NAME}}, "
                    "${NAME:-default}, ${env:NAME}, ${file:/path}, ${userHome}, "
                    "${workspaceFolder}; write $${ for a plain ${",
                )
            case _:
                # A shell's own, such as `${name:0:3}`.
                return reference

    def _variable(self, name: str, default: str | None, path: str) -> str:
        value = self.environment.get(name)
        if default is not None:
            # As in a shell: an empty variable counts as none here.
            return value or default
        if value is None:
            raise MissingReferenceError(
                path,
                f"uses the environment variable {name}, which is not set; set it, "
                f"or write ${{{name}:-default}}",
            )
        return value

    def _input(self, input_id: str, path: str) -> str:
        """What VS Code asks its user for; here it comes from the environment."""
        name = f"INPUT_{_NOT_IN_A_VARIABLE.sub('_', input_id).upper()}"
        value = self.environment.get(name)
        if value is None:
            raise MissingReferenceError(
                path,
                f"uses ${{input:{input_id}}}, which only VS Code can ask for; "
                f"set the environment variable {name} instead",
            )
        return value

    def _file(self, name: str, path: str) -> str:
        file = home_folder(self.environment) / name[2:] if name.startswith("~/") else Path(name)
        if not file.is_absolute():
            raise ConfigError(path, f"uses ${{file:{name}}}; the file's path has to be absolute")
        return read_secret_text(file, path=path).rstrip("\r\n")


def read_secret_text(file: Path, *, path: str) -> str:
    """The text of a small file; raises ConfigError for `path` without any of the text."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_SECRET_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "that is not a file name"
        raise MissingReferenceError(
            path, f"uses the file {file}, which cannot be read: {reason}"
        ) from None
    if len(data) > _MAX_SECRET_BYTES:
        raise ConfigError(
            path, f"uses the file {file}, which has more than {_MAX_SECRET_BYTES} bytes"
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(path, f"uses the file {file}, which is not UTF-8 text") from None


class Resolver:
    """Resolves the settings of one document and collects the problems. Reading files blocks."""

    def __init__(
        self, *, environment: Mapping[str, str], folder: Path, problems: Iterable[ConfigError] = ()
    ) -> None:
        self.environment = environment
        self.folder = folder
        """The directory of the document: relative paths are relative to it."""
        self.expander = Expander(environment=environment, workspace=Path.cwd())
        self.warnings: list[str] = []
        # Settings that agents share are resolved for each of them, but reported once.
        self._problems = {(it.path, it.problem): it for it in problems}

    @property
    def problems(self) -> tuple[ConfigError, ...]:
        """In the order in which they were found."""
        return tuple(self._problems.values())

    def note(self, problem: ConfigError) -> None:
        self._problems.setdefault((problem.path, problem.problem), problem)

    def has_problem_at(self, path: str) -> bool:
        """Whether there is a problem with the value at this path, or in it."""
        starts = (f"{path}.", f"{path}[")
        return any(at == path or at.startswith(starts) for at, _ in self._problems)

    def is_replaced(self, path: str) -> bool:
        """Whether the value there was no object, and an empty one is in its place."""
        return any(getattr(it, "place", "") == path for it in self._problems.values())

    def missing_below(self, path: str) -> str:
        """The message of the first missing variable or file in the object at this path."""
        starts = (f"{path}.", f"{path}[")
        for problem in self._problems.values():
            if isinstance(problem, MissingReferenceError) and problem.path.startswith(starts):
                return str(problem)
        return ""

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def attempt(self, read: Callable[[], _T], default: _T) -> _T:
        """Call `read`; if it raises a ConfigError, note the problem and return the default."""
        try:
            return read()
        except ConfigError as problem:
            self.note(problem)
            return default

    def expand(self, text: str, path: str) -> str:
        """Replace references; empty if one of them cannot be."""
        return self.attempt(lambda: self.expander.expand(text, path=path), "")

    def path(self, text: str, path: str) -> Path | None:
        """The absolute path that a setting names; None if it is empty or cannot be resolved."""
        name = self.expand(text, path)
        return self.absolute(name) if name else None

    def absolute(self, name: str) -> Path:
        """`~` is the user's home directory."""
        if name == "~" or name.startswith(("~/", "~\\")):
            return home_folder(self.environment) / name[2:]
        return Path(os.path.normpath(self.folder / name))

    def read_file(self, text: str, path: str) -> str:
        """The text of the small file that a setting names; empty if there is none."""
        file = self.path(text, path)
        if file is None:
            return ""
        return self.attempt(lambda: read_secret_text(file, path=path), "")

    def secret(self, section: Section, name: str, path: str, *, variable: str) -> str:
        """A secret that is sent in a header: a setting, or the content of the file that the
        setting `<name>_file` names, or else a variable. `path` is that of the section."""
        used = self.choose(section, (name, f"{name}_file"), path)
        if used is None:
            used, value = name, self.environment.get(variable, "") if variable else ""
        elif used == name:
            value = self.expand(getattr(section, name), key_path(section, name, path))
        else:
            value = self._read_secret_file(getattr(section, used), key_path(section, used, path))
        if value.isascii() and value.isprintable() and " " not in value:
            return value
        self.note(
            ConfigError(
                key_path(section, used, path),
                "gives a secret that no header can carry: with spaces, line ends, control or "
                "non-ASCII characters",
            )
        )
        return ""

    def choose(self, section: Section, names: Sequence[str], path: str) -> str | None:
        """The setting that is used, of several that exclude each other; None if none is."""
        used = [name for name in names if name in section.model_fields_set]
        if len(used) > 1:
            keys = [f"`{section_key(section, name)}`" for name in used[:2]]
            self.note(ConfigError(path, f"has both {' and '.join(keys)}; write one of them"))
        return used[0] if used else None

    def _read_secret_file(self, text: str, path: str) -> str:
        secret, file = self.read_file(text, path).rstrip("\r\n"), self.path(text, path)
        if file is not None and _is_open_to_others(file):
            self.warn(
                f"`{path}` names {file}, which everybody on this machine may read; `chmod 600` it"
            )
        return secret


def section_key(section: Section, name: str) -> str:
    """The key of a field in the document."""
    return type(section).model_fields[name].alias or name


def key_path(section: Section, name: str, path: str) -> str:
    """The config path of a field of the section at `path`."""
    return member_path(path, section_key(section, name))


def _is_open_to_others(file: Path) -> bool:
    try:
        return os.name == "posix" and bool(file.stat().st_mode & _OTHERS_MAY_READ)
    except (OSError, ValueError):
        # Reported when it is read.
        return False
