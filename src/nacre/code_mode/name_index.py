"""The names of a catalog's tools by owner, as many as a budget of bytes holds."""

from __future__ import annotations

import json
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nacre.tools.catalog import Catalog

_HEADER: Final = "tools.<name> by owner:"
_MORE_NAMES: Final = "(+{count} more: tools.search)"
_LINE_BREAK_BYTES: Final = len(r"\n")
_SEPARATOR: Final = ", "


def name_index(catalog: Catalog, *, max_bytes: int) -> str:
    """A line per owner; empty when there is nothing to show or no room for any of it.

    When not all names fit, owners take turns, so that each of them shows. Bytes are those of the
    text in JSON, with the line break that comes before it.
    """
    owners = _names_by_owner(catalog)
    total = sum(len(names) for names in owners.values())
    header_bytes = _LINE_BREAK_BYTES + _json_bytes(_HEADER)
    shown = _fit_names(owners, max_bytes - header_bytes)
    count = sum(len(names) for names in shown.values())
    if count == total:
        return "\n".join([_HEADER, *_format_lines(shown)]) if total else ""
    rest_bytes = _LINE_BREAK_BYTES + len(_MORE_NAMES.format(count=total))
    shown = _fit_names(owners, max_bytes - header_bytes - rest_bytes)
    count = sum(len(names) for names in shown.values())
    if not count:
        return ""
    return "\n".join([_HEADER, *_format_lines(shown), _MORE_NAMES.format(count=total - count)])


def join_within(names: Sequence[str], max_bytes: int) -> str:
    """The names with commas between them; those that do not fit are counted."""
    shown = list(_take_fitting(names, max_bytes))
    left = len(names) - len(shown)
    return _SEPARATOR.join(shown) + (f" (+{left} more)" if left else "")


def _names_by_owner(catalog: Catalog) -> dict[str, list[str]]:
    """What a program can write, in the catalog's order: the name after `tools.`, else the id."""
    callable_names = {tool_id: name for name, tool_id in catalog.names.items()}
    owners: dict[str, list[str]] = {}
    for entry in catalog.guest_entries:
        name = callable_names.get(entry.id, entry.id)
        owners.setdefault(entry.tool.owner, []).append(name)
    return owners


def _fit_names(owners: dict[str, list[str]], max_bytes: int) -> dict[str, list[str]]:
    shown: dict[str, list[str]] = {owner: [] for owner in owners}
    left = max_bytes
    for owner, name in _interleave(owners):
        cost = _json_bytes(name) + len(_SEPARATOR)
        if not shown[owner]:
            cost = _LINE_BREAK_BYTES + _json_bytes(f"{owner}: {name}")
        if cost <= left:
            shown[owner].append(name)
            left -= cost
        if left <= len(_SEPARATOR):
            break
    return shown


def _interleave(owners: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    turns: Iterable[tuple[tuple[str, str] | None, ...]] = zip_longest(
        *([(owner, name) for name in names] for owner, names in owners.items())
    )
    return (turn for turn in chain.from_iterable(turns) if turn is not None)


def _format_lines(shown: dict[str, list[str]]) -> list[str]:
    return [f"{owner}: {_SEPARATOR.join(names)}" for owner, names in shown.items() if names]


def _take_fitting(names: Sequence[str], max_bytes: int) -> Iterator[str]:
    left = max_bytes
    for name in names:
        left -= _json_bytes(name) + len(_SEPARATOR)
        if left < 0:
            return
        yield name


def _json_bytes(text: str) -> int:
    # As most SDKs write it: beyond ASCII, every character takes six bytes or twelve.
    return len(json.dumps(text)) - 2
