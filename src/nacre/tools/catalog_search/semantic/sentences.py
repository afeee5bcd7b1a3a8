"""A query as the sentences in it: a task often asks for several things, one after the other."""

from __future__ import annotations

import re
from typing import Final

# More would keep whoever searches waiting: each is read by itself.
_MAX_SENTENCES: Final = 8
# What to do and with what; one word is a greeting, a number or a short form with a full stop.
_MIN_WORDS: Final = 2
_END: Final = re.compile(r"(?<=[.!?;])[\"')\]]*\s+|\n+")


def sentences_of(query: str) -> list[str]:
    """At least one; a short one is part of the next. The last is all that is left."""
    found: list[str] = []
    open_words: list[str] = []
    for part in _END.split(query):
        open_words += part.split()
        if len(open_words) >= _MIN_WORDS and len(found) < _MAX_SENTENCES - 1:
            found.append(" ".join(open_words))
            open_words = []
    rest = " ".join(open_words)
    if len(open_words) >= _MIN_WORDS or not found:
        return [*found, rest]
    return [*found[:-1], f"{found[-1]} {rest}".rstrip()]
