"""What a person wants of the demonstration model, as far as it can tell from a few words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

# A request in words is short; the patterns below must not be given a book.
_MAX_WORDS_CHARACTERS: Final = 2_000
_MAX_SUM_CHARACTERS: Final = 200

_FENCE = re.compile(r"```(?:js|javascript|mjs|(ts|typescript))?[ \t]*\n(.*?)```", re.DOTALL)
_SLOW = re.compile(r"\b(?:slow|slowly|wait)\b", re.IGNORECASE)
_SEARCH = re.compile(
    r"\b(?:search(?: tools)?(?: for)?|find (?:me )?(?:an? |the |some )?tools? (?:for|to|that))\s+"
    r"(\S[^\n]*)",
    re.IGNORECASE,
)
_TOOLS = re.compile(r"\b(?:tools?|can you do|abilities)\b", re.IGNORECASE)
_LIST_FILES = re.compile(
    r"\b(?:list|show|which|what)\b[^\n]*\b(?:files?|folders?|director(?:y|ies))\b"
    r"(?:\s+(?:are|is)\s+there)?(?:\s+(?:in|of|under)\s+[`\"']?([\w./-]+))?",
    re.IGNORECASE,
)
_READ_FILE = re.compile(
    r"\b(?:read|open|cat)\s+(?:me\s+)?(?:the\s+)?(?:file\s+)?[`\"']?([\w./-]+)", re.IGNORECASE
)
_SUM = re.compile(r"[\d.()+\-*/%^\s]{3,}")
# Two numbers with something between them, and none of the dates and paths that look alike.
_HAS_OPERATION = re.compile(r"[\d)]\s*[-+*/%^]+\s*[-(]*\.?\d")
_NO_SUM = re.compile(r"//|/\*|\d{4}-\d{1,2}-\d{1,2}")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunProgram:
    """Run just this."""

    code: str
    language: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Calculate:
    """Digits, brackets and operators, and nothing else."""

    expression: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchTools:
    """Find a tool for a task."""

    query: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadFile:
    """Show a file of the workspace."""

    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ListFiles:
    """Show what a folder of the workspace holds."""

    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ListTools:
    """Tell what tools there are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShowWaiting:
    """Show a program that yields, and is continued."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Greet:
    """Nothing that it understands: say what it does."""


Intent: TypeAlias = (
    RunProgram | Calculate | SearchTools | ReadFile | ListFiles | ListTools | ShowWaiting | Greet
)


def intent_of(text: str) -> Intent:
    """The first that fits; of a long text without a program only the beginning is read."""
    fence = _FENCE.search(text)
    if fence and fence[2].strip():
        return RunProgram(code=fence[2], language="typescript" if fence[1] else "javascript")
    said = text[:_MAX_WORDS_CHARACTERS]
    search = _SEARCH.search(said)
    if search:
        return SearchTools(query=search[1].strip(" ?.!\"'`"))
    expression = _sum_in(said)
    if expression:
        return Calculate(expression=expression)
    return _file_intent(said) or _plain_intent(said)


def _file_intent(said: str) -> Intent | None:
    listing = _LIST_FILES.search(said)
    if listing:
        return ListFiles(path=_path(listing[1]))
    reading = _READ_FILE.search(said)
    return ReadFile(path=_path(reading[1])) if reading else None


def _plain_intent(said: str) -> Intent:
    if _TOOLS.search(said):
        return ListTools()
    return ShowWaiting() if _SLOW.search(said) else Greet()


def _path(found: str | None) -> str:
    """Without the full stop of the sentence."""
    return (found or ".").rstrip(".") or "."


def _sum_in(said: str) -> str:
    plain = said.replace("\N{MULTIPLICATION SIGN}", "*").replace("\N{DIVISION SIGN}", "/")
    for found in _SUM.finditer(plain):
        # Without the brackets and dashes of the sentence around it.
        expression = " ".join(found[0].strip().rstrip("(+-*/%^. ").lstrip(")*/%^. ").split())
        if len(expression) <= _MAX_SUM_CHARACTERS and _is_sum(expression):
            return expression.replace("^", "**")
    return ""


def _is_sum(expression: str) -> bool:
    is_balanced = expression.count("(") == expression.count(")")
    is_other = _NO_SUM.search(expression) is not None
    return is_balanced and not is_other and _HAS_OPERATION.search(expression) is not None
