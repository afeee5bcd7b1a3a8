"""Text of a config file to a value: JSON5, that is JSON with comments, trailing commas and more."""

from __future__ import annotations

import json
import re
from typing import Final

from nacre.errors import ConfigError

# The reader of JSON5 takes 15 s for a megabyte; strict JSON is not bound by this.
_MAX_JSON5_CHARACTERS: Final = 1_000_000
_SYNTAX_ERROR = re.compile(r"^.*:(\d+) Unexpected (.*) at column (\d+)$", re.DOTALL)


def parse_json5(text: str, *, path: str) -> object:
    """The value; raises ConfigError for `path`, which says where it breaks and shows no value.

    A key that stands twice in one object is refused: one of the two would be lost.
    """
    try:
        # Most files are strict JSON, and this is a thousand times as fast.
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_without_repeats)
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError:
        return _parse_slowly(text, path)


def _parse_slowly(text: str, path: str) -> object:
    # 30 ms to import.
    import json5

    if len(text) > _MAX_JSON5_CHARACTERS:
        raise ConfigError(
            path,
            f"is not strict JSON and has {len(text)} characters; JSON with comments may have "
            f"{_MAX_JSON5_CHARACTERS}",
        )
    try:
        value: object = json5.loads(text, allow_duplicate_keys=False)
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError as error:
        # Without its cause: a traceback would show what the reader held.
        raise ConfigError(path, f"is not JSON5: {_problem(str(error))}") from None
    return value


def _without_repeats(members: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) < len(members):
        # Told by the other reader, which knows the words.
        raise ValueError("a key stands twice")
    return found


def _too_deep(path: str) -> ConfigError:
    return ConfigError(path, "is nested too deep to be a configuration")


def _problem(message: str) -> str:
    place = _SYNTAX_ERROR.match(message)
    if place is None:
        return message[:1].lower() + message[1:]
    line, found, column = place.groups()
    return f"line {line}, column {column}: unexpected {found}"
