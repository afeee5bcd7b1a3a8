"""How large a regular expression becomes when its repetitions are written out."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from nacre.tools.schema_references import listed, mapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# An escape, a class, a count, or any other character.
_TOKEN = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|.", re.DOTALL)
_MAX_STATES: Final = 1 << 30


@lru_cache(maxsize=1024)
def states_of(pattern: str) -> int:
    """About how many states the engine may be in at once: a character costs so many steps.

    The linear engine is fast as long as few sets of states come up. A pattern can be written so
    that there are always new ones; then it goes through all of them at every character.
    """
    groups, last = [0], 0
    for token in _TOKEN.findall(pattern):
        if token == "(":
            groups.append(0)
        elif token == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif token[0] == "{" and len(token) > 1:
            more = last * (_repetitions(token) - 1)
            groups[-1] = min(groups[-1] + more, _MAX_STATES)
            last = min(last + more, _MAX_STATES)
        elif token not in ("*", "+", "?", "^", "$", "|"):
            last = 1
            groups[-1] += 1
    return max(1, min(sum(groups), _MAX_STATES))


def states_in(schema: object) -> int:
    """The states of all patterns of a schema, wherever they stand in it."""
    return sum(map(states_of, _patterns_in(schema)))


def _repetitions(token: str) -> int:
    # The last number is the larger one; a text of digits may be as long as its writer likes.
    numbers = [number[:10] for number in re.findall(r"\d+", token)]
    return max(1, min(int(numbers[-1]), _MAX_STATES))


def _patterns_in(schema: object) -> Iterator[str]:
    todo: list[object] = [schema]
    while todo:
        part = todo.pop()
        node = mapped(part)
        pattern = node.get("pattern")
        if isinstance(pattern, str):
            yield pattern
        yield from _texts(mapped(node.get("patternProperties")))
        todo += node.values()
        todo += listed(part)


def _texts(names: Iterable[object]) -> Iterator[str]:
    return (name for name in names if isinstance(name, str))
