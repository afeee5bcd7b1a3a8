"""Keys that no setting has: the error for one, which names the key that was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.config.documents import shown
from nacre.config.fields import member_path
from nacre.errors import MisplacedValueError

if TYPE_CHECKING:
    from collections.abc import Iterable

# What `difflib` takes for near by itself.
_MIN_SIMILARITY: Final = 0.6
_MAX_CHARACTERS: Final = 100


def nearest_key(
    key: str, known: Iterable[str], *, least_similarity: float = _MIN_SIMILARITY
) -> str | None:
    """The known key that is most like this one, whatever the case; None if none is."""
    # Only on the way to an error, so that a sound config does not pay for the import.
    from difflib import get_close_matches

    by_lower_case = {name.lower(): name for name in known}
    near = get_close_matches(
        key[:_MAX_CHARACTERS].lower(), by_lower_case, n=1, cutoff=least_similarity
    )
    return by_lower_case[near[0]] if near else None


def unknown_key(path: str, key: object, known: Iterable[str]) -> MisplacedValueError:
    """The error for a key of the object at `path`; an empty path is the document itself."""
    names = tuple(known)
    near = nearest_key(str(key), names)
    hint = f"did you mean `{near}`?" if near else f"known: {', '.join(names)}"
    place = member_path(path, str(key))
    if not path:
        problem = f"is no section of a configuration; {hint}"
        return MisplacedValueError(str(key)[:_MAX_CHARACTERS], problem, place=place)
    return MisplacedValueError(path, f"has the unknown key {shown(key)}; {hint}", place=place)
