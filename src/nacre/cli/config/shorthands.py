"""Settings that may be one word or an object: the word makes room when a member is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.config.json5_edits import with_member
from nacre.config.json5_text import parse_json5
from nacre.config.paths import value_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.config.json5_edits import Key
    from nacre.json_types import JsonObject, JsonValue


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
