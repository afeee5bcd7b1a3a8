"""Lines as a tree, drawn with branches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def _no_branches() -> list[Branch]:
    return []


@dataclass(kw_only=True, slots=True)
class Branch:
    """A line, and what belongs to it."""

    text: str
    branches: list[Branch] = field(default_factory=_no_branches)


def tree_lines(branches: list[Branch], indent: str = "") -> Iterator[str]:
    """The lines of all of them, each under what it belongs to."""
    for branch in branches:
        is_last = branch is branches[-1]
        yield f"{indent}{'└' if is_last else '├'} {branch.text}"
        yield from tree_lines(branch.branches, f"{indent}{' ' if is_last else '│'} ")
