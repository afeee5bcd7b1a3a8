"""How a new value is written into a JSON5 document: with keys and lines as its author has them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nacre.json_types import JsonValue

_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
# Names all the same, but not every reader takes them for one.
_WORDS: Final = ("null", "true", "false", "NaN", "Infinity")


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The habits of whoever wrote the document."""

    indent: str
    has_plain_keys: bool
    """`port: 1`, not `"port": 1`, where the key can be written so."""
    has_padded_braces: bool
    """`{ port: 1 }`, not `{port: 1}`, on one line."""

    def member(self, key: str | int, value: str) -> str:
        """The member; of a list, the item alone."""
        return value if isinstance(key, int) else f"{self._key(key)}: {value}"

    def on_one_line(self, value: JsonValue) -> str:
        match value:
            case dict() if value:
                members = [f"{self._key(k)}: {self.on_one_line(v)}" for k, v in value.items()]
                pad = " " if self.has_padded_braces else ""
                return f"{{{pad}{', '.join(members)}{pad}}}"
            case list() if value:
                return f"[{', '.join(map(self.on_one_line, value))}]"
            case _:
                return _scalar(value)

    def on_lines(self, value: JsonValue, margin: str) -> str:
        """Each member on a line of its own, below a line that begins with `margin`."""
        inner = margin + self.indent
        match value:
            case dict() if value:
                lines = [f"{self._key(k)}: {self.on_lines(v, inner)}" for k, v in value.items()]
                opening, closing = "{", "}"
            case list() if value:
                lines = [self.on_lines(item, inner) for item in value]
                opening, closing = "[", "]"
            case _:
                return _scalar(value)
        listed = f",\n{inner}".join(lines)
        return f"{opening}\n{inner}{listed}\n{margin}{closing}"

    def _key(self, key: str) -> str:
        is_plain = self.has_plain_keys and _PLAIN_KEY.fullmatch(key) and key not in _WORDS
        return key if is_plain else _scalar(key)


def _scalar(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
