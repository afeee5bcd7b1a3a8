"""The values of an entry that may hold references and secrets: expanded, checked, never shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nacre.config.expansion import read_secret_text
from nacre.config.fields import member_path
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from nacre.config.expansion import Expander
    from nacre.config.fields import Fields

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_NOT_IN_A_PROCESS = re.compile(r"[\x00\ud800-\udfff]")


class EntryValues:
    """Reads what may hold references; without an expander they stay."""

    def __init__(self, fields: Fields, expander: Expander | None) -> None:
        self._fields = fields
        self._expander = expander
        self.looked_up: list[str] = []
        """What references in the values read so far were replaced by."""

    def command(self) -> str:
        command = self.text("command")
        if not command:
            raise ConfigError(self._fields.path_of("command"), "is empty; name a program")
        return command

    def text(self, key: str) -> str:
        return self._expand_for_process(self._fields.text(key), self._fields.path_of(key))

    def texts(self, key: str) -> tuple[str, ...]:
        path = self._fields.path_of(key)
        return tuple(
            self._expand_for_process(text, f"{path}[{index}]")
            for index, text in enumerate(self._fields.texts(key) or ())
        )

    def environment(self) -> dict[str, str]:
        path = self._fields.path_of("env")
        found = self._variables_of_file()
        for name, text in self._fields.text_map("env").items():
            if not name or "=" in name or _NOT_IN_A_PROCESS.search(name):
                # Not shown: a value that was put in the wrong place looks like this.
                raise ConfigError(path, "has a member whose name is no name of a variable")
            found[name] = self._expand_for_process(text, member_path(path, name))
        return found

    def url(self) -> str:
        key = self._fields.one_of("url", "serverUrl")
        path = self._fields.path_of(key)
        url = self._expand(self._fields.text(key), path)
        if self._expander is not None and not is_web_address(url):
            raise ConfigError(path, "is no address of a server; allowed: http:// and https:// URLs")
        return url

    def headers(self) -> dict[str, str]:
        path = self._fields.path_of("headers")
        found: dict[str, str] = {}
        for name, text in self._fields.text_map("headers").items():
            if not _HEADER_NAME.fullmatch(name):
                # Not shown: a value that was put in the wrong place looks like this.
                raise ConfigError(path, "has a member whose name is no name of a header")
            found[name] = self._expand(text, member_path(path, name))
            if not _HEADER_VALUE.fullmatch(found[name]):
                raise ConfigError(
                    member_path(path, name),
                    "holds what no header can: line ends, control or non-ASCII characters",
                )
        return found

    def _variables_of_file(self) -> dict[str, str]:
        name, path = self.text("envFile"), self._fields.path_of("envFile")
        if not name or self._expander is None:
            return {}
        # Few entries have such a file.
        from io import StringIO

        from dotenv import dotenv_values

        text = read_secret_text(self._expander.workspace / name, path=path)
        values = dotenv_values(stream=StringIO(text), interpolate=False)
        bare = next((key for key, value in values.items() if value is None), None)
        if bare is not None:
            raise ConfigError(path, f"names a file that has {bare} without a value")
        return {key: self._check_for_process(value or "", path) for key, value in values.items()}

    def _expand_for_process(self, text: str, path: str) -> str:
        return self._check_for_process(self._expand(text, path), path)

    def _check_for_process(self, text: str, path: str) -> str:
        if _NOT_IN_A_PROCESS.search(text):
            raise ConfigError(path, "holds a character that no process can be given")
        return text

    def _expand(self, text: str, path: str) -> str:
        if self._expander is None:
            return text
        return self._expander.expand(text, path=path, looked_up=self.looked_up)


def is_web_address(url: str) -> bool:
    """Whether it is a URL of a server that speaks HTTP."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        return False
