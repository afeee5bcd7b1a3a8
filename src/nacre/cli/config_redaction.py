"""Redacts a configuration for display: secrets become `***`, references stay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from nacre.config import is_object, member_path
from nacre.telemetry import REDACTED, is_amount, is_secret_key, remove_secrets

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from nacre.json_types import JsonValue


HIDDEN: Final = "***"

# All values in these may be credentials, whatever their names.
_SECRET_OBJECTS: Final = ("env", "headers")
# A text here is not a valid setting, so it may be anything.
_NEVER_TEXT: Final = (
    "providers", "models", "servers", "mcpServers", "oauth", "codeMode", "toolSearch",
)  # fmt: skip
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
    """`auth` has the name of a secret, but is a section with other settings."""
    return key == "auth" and is_object(value)


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
