"""Values of columns: JSON, messages, and the texts that a database can store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.errors import SessionError, StorageError
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.storage.message_codec import MessageFormatError, message_from_json, message_to_json

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message


def dump_json(value: JsonValue, what: str) -> str:
    """Raises StorageError for what is not JSON: nothing of the transaction is kept then."""
    try:
        return encode_json(value).decode()
    except NotJsonError as error:
        raise StorageError(f"{what} cannot be stored: {error}") from error


def load_json_object(text: str, row: str) -> JsonObject:
    """`row` names it, such as "the turn `run_1`"."""
    value = _decode(text, row)
    if not isinstance(value, dict):
        raise StorageError(f"{row} cannot be read: it holds no JSON object")
    return value


def dump_message(message: Message, what: str) -> str:
    return dump_json(message_to_json(message), what)


def load_message(text: str, row: str) -> Message:
    try:
        return message_from_json(_decode(text, row))
    except MessageFormatError as error:
        raise StorageError(f"{row} cannot be read: it {error}") from error


def _decode(text: str, row: str) -> JsonValue:
    try:
        return decode_json(text.encode())
    except NotJsonError as error:
        raise StorageError(f"{row} cannot be read: {error}") from error


# PostgreSQL indexes at most some 2,700 bytes per row; an agent's id and a key share one.
MAX_ID_BYTES: Final = 512
MAX_KEY_BYTES: Final = 1024

_MAX_SHOWN: Final = 60


def is_storable(text: str) -> bool:
    """Whether a row can have this id or key at all; a database may fail when it is asked."""
    return not _problem_of(text)


def check_id(text: str, what: str) -> str:
    """The text itself; raises SessionError (`invalid`) for what cannot be the name of anything."""
    if not text:
        raise SessionError(f"{what} is empty", code="invalid")
    return check_key(text, what, max_bytes=MAX_ID_BYTES)


def check_key(text: str, what: str, *, max_bytes: int = MAX_KEY_BYTES) -> str:
    """As `check_id`, but may be empty. Nothing is replaced: two keys must not become one."""
    if problem := _problem_of(text):
        raise SessionError(f"{what} {problem}: {text[:_MAX_SHOWN]!r}", code="invalid")
    if (length := len(text.encode())) > max_bytes:
        raise SessionError(f"{what} has {length} bytes; the most is {max_bytes}", code="invalid")
    return text


def clean_text(text: str) -> str:
    """Free text; what no database takes becomes U+FFFD."""
    halves = text.replace("\0", "\ufffd").encode("utf-16-le", "surrogatepass")
    return halves.decode("utf-16-le", "replace")


def _problem_of(text: str) -> str:
    if "\0" in text:
        return "holds a NUL character"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "holds half a surrogate pair"
    return ""
