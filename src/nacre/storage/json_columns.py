"""JSON in text columns: written strictly, and read with the row's name in every complaint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.errors import StorageError
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.storage.message_codec import MessageFormatError, message_from_json, message_to_json

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message


def json_text(value: JsonValue, what: str) -> str:
    """Raises StorageError for what is not JSON: nothing of the transaction is kept then."""
    try:
        return encode_json(value).decode()
    except NotJsonError as error:
        raise StorageError(f"{what} cannot be stored: {error}") from error


def json_object(text: str, row: str) -> JsonObject:
    """`row` names it, such as "the turn `run_1`"."""
    value = _decode(text, row)
    if not isinstance(value, dict):
        raise StorageError(f"{row} cannot be read: it holds no JSON object")
    return value


def message_text(message: Message, what: str) -> str:
    return json_text(message_to_json(message), what)


def message_in(text: str, row: str) -> Message:
    try:
        return message_from_json(_decode(text, row))
    except MessageFormatError as error:
        raise StorageError(f"{row} cannot be read: it {error}") from error


def _decode(text: str, row: str) -> JsonValue:
    try:
        return decode_json(text.encode())
    except NotJsonError as error:
        raise StorageError(f"{row} cannot be read: {error}") from error
