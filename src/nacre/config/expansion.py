"""`${...}` in settings: environment variables, secret files and folders. No value in any error."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nacre.config.folders import home_folder
from nacre.errors import ConfigError, MissingReferenceError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_SECRET_BYTES: Final = 65_536

# `$${` stands for a plain `${`.
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)(?::-(.*))?", re.ASCII | re.DOTALL)
_KIND = re.compile(r"([A-Za-z]+):(.*)", re.DOTALL)
_NOT_IN_A_VARIABLE = re.compile(r"\W+", re.ASCII)


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
        reason = getattr(error, "strerror", None) or "that is no file name"
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
