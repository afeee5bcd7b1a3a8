"""What is wrong with a plugin's settings, told as it is of ours. No message shows a value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

from nacre.config.fields import member_path
from nacre.config.setting_paths import unknown_key
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import jsonschema_rs

    from nacre.json_types import JsonObject

MASK: Final = "its value"
"""Stands for the value in a validator's messages: settings may hold secrets."""

_MAX_OPTIONS: Final = 20


def config_problems(
    errors: Iterable[jsonschema_rs.ValidationError], *, path: str, schema: JsonObject
) -> Iterator[ConfigError]:
    """A validator's errors; one of them may be several problems."""
    for error in errors:
        place = _path_below(path, error.instance_path)
        # Typed as any of the kinds that there are.
        kind = cast("Any", error.kind)
        match kind.name:
            case "additionalProperties" | "unevaluatedProperties":
                known = _known_names(schema, error.schema_path[:-1])
                for key in kind.unexpected:
                    yield _unknown_key_error(place, key, known)
            case "required":
                yield ConfigError(member_path(place, kind.property), "is missing, and needed")
            case "enum":
                allowed = ", ".join(map(_format_option, kind.options[:_MAX_OPTIONS]))
                yield ConfigError(place, f"is none of what is allowed: {allowed}")
            case "type":
                yield ConfigError(place, f"is of another type; allowed: {' or '.join(kind.types)}")
            case _:
                yield ConfigError(place, f"does not fit: {error.message}")


def _unknown_key_error(place: str, key: str, known: list[str]) -> ConfigError:
    if not known:
        return ConfigError(place, f"has the unknown key {_format_option(key)}")
    return unknown_key(place, key, known)


def _format_option(option: object) -> str:
    return json.dumps(option, ensure_ascii=False)


def _known_names(schema: JsonObject, steps: Iterable[str | int]) -> list[str]:
    node: object = schema
    for step in steps:
        try:
            node = cast("Any", node)[step]
        except (LookupError, TypeError):
            # Below a reference; the names are not known then.
            return []
    properties = cast("JsonObject", node).get("properties") if isinstance(node, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def _path_below(path: str, steps: Iterable[str | int]) -> str:
    """The path of a setting inside of another."""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else member_path(path, step)
    return path
