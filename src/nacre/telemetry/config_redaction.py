"""Redacts a configuration for display: secrets become `***`, references stay.

A person can edit the redacted text: `restore_secrets` puts the secrets back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from nacre.config import (
    MISSING,
    is_object,
    member_path,
    object_at,
    parse_json5,
    path_from_keys,
    value_at,
    with_member,
)
from nacre.errors import ConfigError
from nacre.telemetry.redaction import REDACTED, is_amount, is_secret_key, remove_secrets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from nacre.config import Key
    from nacre.json_types import JsonValue


HIDDEN: Final = "***"

# All values in these may be credentials, whatever their names.
_SECRET_OBJECTS: Final = ("env", "headers")
# A text here is not a valid setting, so it may be anything.
_NEVER_TEXT: Final = (
    "providers", "models", "servers", "mcpServers", "oauth", "codeMode", "toolSearch",
)  # fmt: skip
# The settings of a token of the gateway.
_NAMED_TOKEN: Final = frozenset(("token", "tokenFile", "scopes"))
_MAX_DEPTH: Final = 64

# Not `${NAME:-default}`: the default may be the secret.
_REFERENCE = re.compile(r"\$\{(?:(?:env|file|input):)?[^}:]*\}")
_SCHEME = re.compile(r"\s*(?:bearer|basic|token)?\s*", re.IGNORECASE)
# Up to the last `@`: an unescaped password may contain any character.
_PASSWORD_IN_URL = re.compile(r"(://[^/?#@:\s]*:)\S{1,2048}@")
# Without a password, the user of a URL is often a token.
_USER_IN_WEB_ADDRESS = re.compile(r"(https?://)[^/?#@:\s]+@", re.IGNORECASE)
_QUERY_VALUE = re.compile(r"([?&][^=&#\s]*=)[^&#\s]+")
_ADDRESS = re.compile(r"(https?://[^/?#\s]+)[/?#].+")
# A comment, or a text, which may contain what looks like a comment.
_COMMENT = re.compile(
    r"""(?P<comment>//[^\n\r\u2028\u2029]*|/\*.*?\*/)|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""",
    re.DOTALL,
)
_FLAG_WITH_VALUE = re.compile(r"(-[^=\s]*=).+", re.DOTALL)


def redact_secrets(
    document: Mapping[str, object], *, misplaced: Collection[str] = ()
) -> dict[str, JsonValue]:
    """Copy the document with secrets hidden. Values at `misplaced` paths are hidden completely,
    because their purpose is unknown."""
    known = _redact_misplaced(document, "", misplaced) if misplaced else document
    return {
        key: _redact_member(key, value, 0)
        for key, value in cast("Mapping[str, object]", known).items()
    }


def _redact_misplaced(value: object, path: str, misplaced: Collection[str]) -> object:
    if path in misplaced:
        return _redact_all(value)
    if is_object(value):
        return {
            key: _redact_misplaced(member, member_path(path, key), misplaced)
            for key, member in value.items()
        }
    if isinstance(value, list):
        items = enumerate(cast("list[object]", value))
        return [_redact_misplaced(item, f"{path}[{at}]", misplaced) for at, item in items]
    return value


def _redact_all(value: object, depth: int = 0) -> object:
    if is_object(value) and depth < _MAX_DEPTH:
        return {key: _redact_all(member, depth + 1) for key, member in value.items()}
    return _redact("", value)


def find_secrets(document: Mapping[str, object], *, misplaced: Collection[str] = ()) -> list[str]:
    """The texts that `redact_secrets` hides, whole or in part."""
    shown = redact_secrets(document, misplaced=misplaced)
    found = (value_at(document, keys) for keys, _ in _differences(document, shown))
    return [text for value in found for text in _texts(value)]


def _texts(value: object) -> Iterator[str]:
    for _, leaf in _leaves(value, ()):
        if isinstance(leaf, str):
            yield leaf


def is_plain_secret(key: str, value: object) -> bool:
    """Whether the setting is a secret in plain text."""
    return is_secret_key(key) and isinstance(value, str) and not _is_reference(value)


def _redact_member(key: str, value: object, depth: int) -> JsonValue:
    if key in _SECRET_OBJECTS or (is_secret_key(key) and not _is_section(key, value)):
        if is_object(value):
            return {name: _redact(name, item) for name, item in value.items()}
        return _redact(key, value)
    if key in _NEVER_TEXT and isinstance(value, str):
        return _redact(key, value)
    if key == "args" and isinstance(value, list):
        return _redact_arguments(cast("list[object]", value), depth)
    if key in ("url", "serverUrl") and isinstance(value, str):
        # The path of a server's URL often contains a key.
        return _ADDRESS.sub(rf"\1/{HIDDEN}", _redact_text(value))
    return _redact_value(value, depth + 1)


def _is_section(key: str, value: object) -> bool:
    """`auth` and its `tokens` have names of secrets, but are sections with other settings."""
    if key == "tokens" and is_object(value):
        return all(map(_is_named_token, value.values()))
    return key == "auth" and is_object(value)


def _is_named_token(value: object) -> bool:
    return is_object(value) and _NAMED_TOKEN.issuperset(value) and "scopes" in value


def _redact_value(value: object, depth: int) -> JsonValue:
    if isinstance(value, str):
        return _redact_text(value)
    if depth > _MAX_DEPTH:
        return HIDDEN
    if is_object(value):
        return {key: _redact_member(key, member, depth) for key, member in value.items()}
    if isinstance(value, list):
        return [_redact_value(item, depth + 1) for item in cast("list[object]", value)]
    return cast("JsonValue", value)


def _redact_text(text: str) -> str:
    text = _PASSWORD_IN_URL.sub(rf"\1{HIDDEN}@", text)
    text = _USER_IN_WEB_ADDRESS.sub(rf"\1{HIDDEN}@", text)
    if "://" in text:
        text = _QUERY_VALUE.sub(rf"\1{HIDDEN}", text)
    return remove_secrets(text).replace(REDACTED, HIDDEN)


def _redact(key: str, value: object) -> JsonValue:
    """Hide the value, but not whether there is one."""
    if value is None or isinstance(value, bool) or is_amount(key, value):
        return cast("JsonValue", value)
    return value if isinstance(value, str) and _is_reference(value) else HIDDEN


def _is_reference(text: str) -> bool:
    return not text or ("${" in text and _SCHEME.fullmatch(_REFERENCE.sub("", text)) is not None)


def _redact_arguments(items: Sequence[object], depth: int) -> JsonValue:
    """Hide the argument that follows a flag such as `--api-key`."""
    shown: list[JsonValue] = []
    is_after_secret_flag = False
    for item in items:
        flag = item.partition("=")[0] if isinstance(item, str) and item.startswith("-") else ""
        if is_after_secret_flag and not flag:
            shown.append(_redact("", item))
        elif flag and is_secret_key(flag) and isinstance(item, str):
            shown.append(_FLAG_WITH_VALUE.sub(rf"\1{HIDDEN}", item))
        else:
            shown.append(_redact_value(item, depth + 1))
        is_after_secret_flag = bool(flag) and flag == item and is_secret_key(flag)
    return shown


# The text of a configuration.


def redact_config_text(text: str, *, path: str, misplaced: Collection[str] = ()) -> str:
    """The text with secrets hidden in values and comments; all else stays as it is.

    Raises ConfigError for `path` if the text is not a JSON5 object.
    """
    document = object_at(parse_json5(text, path=path), path)
    for keys, value in _differences(document, redact_secrets(document, misplaced=misplaced)):
        text = with_member(text, keys, value, path=path)
    return _COMMENT.sub(_redact_comment, text)


def restore_secrets(text: str, before: str, *, path: str, misplaced: Collection[str] = ()) -> str:
    """The edited text with the secrets of the text before in the places of hidden values.

    Raises ConfigError for a hidden value whose secret is not known.
    """
    old = object_at(parse_json5(before, path=path), path)
    shown = redact_secrets(old, misplaced=misplaced)
    new = object_at(parse_json5(text, path=path), path)
    for keys, value in _differences(old, shown):
        if value_at(new, keys) == value and _has_same_lists(shown, new, keys):
            secret = cast("JsonValue", value_at(old, keys))
            text = with_member(text, keys, secret, path=path)
    restored = object_at(parse_json5(text, path=path), path)
    for keys, value in _leaves(restored, ()):
        if isinstance(value, str) and HIDDEN in value and value_at(old, keys) != value:
            raise ConfigError(
                path_from_keys(keys),
                f"contains {HIDDEN}, which stands for a secret, but no secret is known for this "
                "place; write the value, or a reference such as ${NAME}",
            )
    return _restore_comments(text, before)


def _differences(
    value: object, shown: object, keys: tuple[Key, ...] = ()
) -> Iterator[tuple[tuple[Key, ...], JsonValue]]:
    """The keys and the shown values of all members that differ."""
    if is_object(value) and is_object(shown):
        for key, member in value.items():
            yield from _differences(member, shown[key], (*keys, key))
    elif isinstance(value, list) and isinstance(shown, list):
        pairs = zip(cast("list[object]", value), cast("list[object]", shown), strict=True)
        for index, (item, shown_item) in enumerate(pairs):
            yield from _differences(item, shown_item, (*keys, index))
    elif value != shown:
        yield keys, cast("JsonValue", shown)


def _has_same_lists(shown: object, new: object, keys: Sequence[Key]) -> bool:
    """Whether each list on the way has as many items as before, and the item the same id: an item
    that was moved must not get the secret of another one."""
    for position, key in enumerate(keys):
        if isinstance(key, int):
            lists = [value_at(it, keys[:position]) for it in (shown, new)]
            items = [value_at(it, keys[: position + 1]) for it in (shown, new)]
            if len({len(cast("list[object]", it)) for it in lists}) > 1:
                return False
            ids = [value_at(it, ("id",)) if is_object(it) else MISSING for it in items]
            if ids[0] != ids[1]:
                return False
    return True


def _leaves(value: object, keys: tuple[Key, ...]) -> Iterator[tuple[tuple[Key, ...], object]]:
    if is_object(value):
        for key, member in value.items():
            yield from _leaves(member, (*keys, key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            yield from _leaves(item, (*keys, index))
    else:
        yield keys, value


def _redact_comment(found: re.Match[str]) -> str:
    comment = found["comment"]
    return found[0] if comment is None else remove_secrets(comment).replace(REDACTED, HIDDEN)


def _restore_comments(text: str, before: str) -> str:
    """Put back the comments that were hidden, as far as they are the same otherwise."""
    originals: dict[str, str] = {}
    for found in _COMMENT.finditer(before):
        shown = _redact_comment(found)
        if shown != found[0]:
            originals[shown] = found[0]
    if not originals:
        return text
    return _COMMENT.sub(lambda found: originals.get(found[0], found[0]), text)
