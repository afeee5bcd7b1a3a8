"""Why a tool was found, for people: the parts of its score, the heaviest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from nacre.cli.output import cell_text
from nacre.cli.tools.tool_tables import first_sentence

if TYPE_CHECKING:
    from nacre.tools.catalog_search import Explanation, ScorePart

_MAX_TERM_CHARACTERS: Final = 40
# Lighter parts are summed up.
_MAX_PARTS: Final = 8


def explanation_text(rank: int, explanation: Explanation) -> str:
    """Several lines: what was found, and by how much each reason counts."""
    entry, score = explanation.entry, explanation.score
    lines = [
        f"{rank}. {cell_text(entry.id)}  (score {score:.2f})",
        f"   {cell_text(first_sentence(entry.description))}",
    ]
    parts = explanation.parts
    lines += [f"   {_share(it.weight, score)}  {_reason(it)}" for it in parts[:_MAX_PARTS]]
    others = parts[_MAX_PARTS:]
    if others:
        weight = sum(part.weight for part in others)
        lines.append(f"   {_share(weight, score)}  {len(others)} more")
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _share(weight: float, score: float) -> str:
    """Of a score that is nothing, or less, there are no shares."""
    return f"{100 * weight / score:5.1f} %" if score > 0 else f"{weight:7.2f}"


def _reason(part: ScorePart) -> str:
    match part.kind:
        case "exact":
            return "its very id or name"
        case "word":
            meant = f", for {_quote_term(part.stands_for)}" if part.stands_for else ""
            return f"{_quote_term(part.term or '')} in its {part.field}{meant}"
        case "pairs":
            return "words side by side as in the query"
        case "coverage":
            return "how much of the query is in it"
        case "related":
            return "words that the best results have in common"
        case "meaning":
            return "its meaning is near to the query's"
        case "answered":
            return "less for words that results before it have"
        case "own_words":
            return "ahead by the query's own words, before related and answered ones count"
        case "catalog_order":
            return "of tools of this name the first in the catalog"
        case _:
            assert_never(part.kind)


def _quote_term(word: str) -> str:
    return repr(cell_text(word, most_characters=_MAX_TERM_CHARACTERS))
