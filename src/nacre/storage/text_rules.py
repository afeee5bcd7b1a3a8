"""Which texts a database can hold: ids and keys exactly, free text as near as it comes."""

from __future__ import annotations

from typing import Final

from nacre.errors import SessionError

# PostgreSQL indexes at most some 2,700 bytes per row; an agent's id and a key share one.
MAX_ID_BYTES: Final = 512
MAX_KEY_BYTES: Final = 1024

_MAX_SHOWN: Final = 60


def is_storable(text: str) -> bool:
    """Whether a row can have this id or key at all; a database may fail when it is asked."""
    return not _problem_of(text)


def storable_id(text: str, what: str) -> str:
    """The text itself; raises SessionError (`invalid`) for what cannot be the name of anything."""
    if not text:
        raise SessionError(f"{what} is empty", code="invalid")
    return storable_key(text, what, max_bytes=MAX_ID_BYTES)


def storable_key(text: str, what: str, *, max_bytes: int = MAX_KEY_BYTES) -> str:
    """As `storable_id`, but may be empty. Nothing is replaced: two keys must not become one."""
    if problem := _problem_of(text):
        raise SessionError(f"{what} {problem}: {text[:_MAX_SHOWN]!r}", code="invalid")
    if (length := len(text.encode())) > max_bytes:
        raise SessionError(f"{what} has {length} bytes; the most is {max_bytes}", code="invalid")
    return text


def storable_text(text: str) -> str:
    """Free text; what no database takes becomes U+FFFD."""
    halves = text.replace("\0", "\ufffd").encode("utf-16-le", "surrogatepass")
    return halves.decode("utf-16-le", "replace")


def _problem_of(text: str) -> str:
    if "\0" in text:
        return "holds a NUL character"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "holds half a surrogate pair"
    return ""
