"""Generates TypeScript; names, values and descriptions are escaped, so they cannot inject code."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, Literal

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


MAX_LITERAL_CHARACTERS: Final = 200
"""Longer texts are not written as literals."""

_MAX_LINE_CHARACTERS: Final = 48
_MAX_EXACT_INTEGER: Final = 2**53

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

PLAIN_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")

# Invisible or misleading characters: control characters, writing directions, zero-width spaces,
# tags, unpaired surrogates. Joiners are allowed, because scripts and emoji need them.
_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)

_LINE_ENDS: Final = re.compile("[\r\n\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class TypeText:
    """The text of a type without indentation, and its outermost form."""

    text: str
    shape: Literal["one", "union", "intersection"] = "one"


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A member of an object type."""

    key: str
    """The key as TypeScript: `name`, `"odd name"`, `[key: string]`."""
    value: TypeText
    is_optional: bool = False
    comment: str = ""


UNKNOWN: Final = TypeText("unknown")
NEVER: Final = TypeText("never")
NULL: Final = TypeText("null")
INDEX_KEY: Final = "[key: string]"


def one_line(text: str, *, max_characters: int) -> str:
    """One line for a comment, escaped so that it cannot end the comment, and truncated."""
    # Truncated first, because a description may be megabytes long. Longer than the result,
    # because whitespace is collapsed.
    head = text[: 2 * max_characters]
    seen = _UNSEEN.sub("", " ".join(head.split())).replace("*/", "*\\/")
    if len(seen) <= max_characters and len(head) == len(text):
        return seen
    return f"{seen[: max_characters - 1]}…"


def comment_lines(lines: Sequence[str]) -> str:
    """A JSDoc comment; empty if there are no lines."""
    if not lines:
        return ""
    safe = [_LINE_ENDS.sub(" ", line).replace("*/", "*\\/") for line in lines]
    if len(safe) == 1:
        return f"/** {safe[0]} */"
    return "\n".join(["/**", *(f" * {line}" for line in safe), " */"])


def indent(text: str) -> str:
    """Indent all nonempty lines by two spaces."""
    return "\n".join(f"  {line}" if line else line for line in text.split("\n"))


def string_literal(text: str) -> str:
    """The text in double quotes, with invisible characters escaped."""
    return _UNSEEN.sub(_escape_character, _ENCODER.encode(text))


def property_key(name: str) -> str:
    """The name as a property key, quoted unless it is an identifier."""
    return name if PLAIN_NAME.fullmatch(name) else string_literal(name)


def short_json(value: object, *, max_characters: int) -> str | None:
    """The value as JSON with invisible characters escaped; None if it is too long or not JSON."""
    found: list[str] = []
    characters = 0
    try:
        # Incrementally, because a value may be megabytes long or nested deeply.
        for piece in _ENCODER.iterencode(value):
            characters += len(piece)
            if characters > max_characters:
                return None
            found.append(piece)
    except (TypeError, ValueError, RecursionError):
        return None
    return _UNSEEN.sub(_escape_character, "".join(found))


def literal_of(value: object) -> TypeText | None:
    """The literal type of a value; None if it is too long."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # Larger numbers are not exact in JavaScript.
        return TypeText(repr(value)) if abs(value) <= _MAX_EXACT_INTEGER else TypeText("number")
    # The JSON of a string, an array or an object is also its literal type.
    text = short_json(value, max_characters=MAX_LITERAL_CHARACTERS)
    return TypeText(text) if text is not None else None


def union_of(types: Iterable[TypeText]) -> TypeText:
    """The union of types: `unknown` absorbs the others, `never` is dropped."""
    kept = list(dict.fromkeys(found for found in types if found != NEVER))
    if UNKNOWN in kept:
        return UNKNOWN
    if len(kept) < 2:
        return kept[0] if kept else NEVER
    parts = [f"({found.text})" if found.shape == "intersection" else found.text for found in kept]
    return TypeText(" | ".join(parts), "union")


def intersection_of(types: Iterable[TypeText]) -> TypeText:
    """The intersection of types: `unknown` is dropped, `never` absorbs the others."""
    kept = list(dict.fromkeys(found for found in types if found != UNKNOWN))
    if NEVER in kept:
        return NEVER
    if len(kept) < 2:
        return kept[0] if kept else UNKNOWN
    parts = [f"({found.text})" if found.shape == "union" else found.text for found in kept]
    return TypeText(" & ".join(parts), "intersection")


def array_of(item: TypeText) -> TypeText:
    """`T[]` for short and simple types, else `Array<T>`."""
    is_simple = item.shape == "one" and "\n" not in item.text
    return TypeText(f"{item.text}[]" if is_simple else f"Array<{item.text}>")


def tuple_of(items: Iterable[TypeText], *, rest: TypeText | None = None) -> TypeText:
    """`[A, B, ...C[]]`."""
    texts = [item.text for item in items]
    if rest is not None:
        texts.append(f"...{array_of(rest).text}")
    return TypeText(f"[{', '.join(texts)}]")


def object_of(members: Sequence[Member]) -> TypeText:
    """`{ a: string; b?: number }`, on one line if it is short and has no comments."""
    if not members:
        return TypeText("{}")
    texts = [f"{_key(member)}: {member.value.text}" for member in members]
    is_short = sum(map(len, texts)) + 2 * len(texts) <= _MAX_LINE_CHARACTERS
    if is_short and not any(member.comment for member in members) and "\n" not in "".join(texts):
        return TypeText(f"{{ {'; '.join(texts)} }}")
    lines = ["{"]
    for member, text in zip(members, texts, strict=True):
        if member.comment:
            lines.append(indent(comment_lines([member.comment])))
        lines.append(f"{indent(text)};")
    return TypeText("\n".join([*lines, "}"]))


def _key(member: Member) -> str:
    return f"{member.key}?" if member.is_optional else member.key


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\u{{{code:x}}}"


_MAX_CHARACTERS: Final = 80
_WORDS: Final = re.compile(r"[A-Za-z0-9]+")


class TypeNames:
    """The unique names of types in one file."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._counts: dict[str, int] = {}

    def claim(self, wanted: str) -> str:
        """Reserve the name, with a number appended if it is taken."""
        name, count = wanted, self._counts.get(wanted, 1)
        while name in self._given:
            count += 1
            name = f"{wanted}{count}"
        # The last number is stored, so that thousands of equal names do not take quadratic time.
        self._counts[wanted] = count
        self._given.add(name)
        return name


def pascal_case(name: str) -> str:
    """`create_issue` as `CreateIssue`, with ASCII letters and digits only; may be empty."""
    words = _WORDS.findall(name[:_MAX_CHARACTERS])
    joined = "".join(word[0].upper() + word[1:] for word in words)
    return f"_{joined}" if joined[:1].isdigit() else joined


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNDECLARABLE: Final = _words(
    """
    arguments await break case catch class const continue debugger default delete do else enum eval
    export extends false finally for function if implements import in instanceof interface let new
    null package private protected public return static super switch this throw true try typeof var
    void while with yield
    """
)
"""Words that a statement cannot declare, although `tools.delete(input)` is a valid call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """A declaration with its name and comment."""

    keyword: Literal["function", "const"] = "function"
    name: str
    rest: str
    """The text after the name, without the semicolon."""
    comment: str = ""
    types: tuple[str, ...] = ()
    """Statements of the types that it uses."""

    @property
    def size_characters(self) -> int:
        return len(self.rest) + len(self.comment) + sum(map(len, self.types))


def scope_text(path: Sequence[str], members: Sequence[Declared]) -> str:
    """The members of `MCP.github` or `tools`, as a namespace if all of them can be statements."""
    # After a dot, any word is a valid name, also in the path of a namespace.
    is_namespace = all(map(PLAIN_NAME.fullmatch, path)) and all(map(_is_declarable, members))
    if not is_namespace:
        return object_text(path, members)
    blocks = "\n\n".join(indent(_statement(member)) for member in members)
    return _join_lines(f"declare namespace {'.'.join(path)} {{", blocks, "}\n")


def object_text(path: Sequence[str], members: Sequence[Declared]) -> str:
    """The members of an object type, which allows any name: `"delete"(input: {}): …`."""
    types = [statement for member in members for statement in member.types]
    text = "\n\n".join(
        _join_lines(member.comment, f"{_member_key(member.name)}{member.rest};")
        for member in members
    )
    for name in reversed(path[1:]):
        text = f"{_member_key(name)}: {{\n{indent(text)}\n}};"
    return _join_lines(*types, f"declare const {path[0]}: {{\n{indent(text)}\n}};\n")


def statement_text(declared: Declared) -> str:
    """One statement; a name that cannot be declared is exported instead."""
    if _is_declarable(declared):
        return _statement(declared)
    local = f"_{declared.name}" if PLAIN_NAME.fullmatch(declared.name) else "_unnamed"
    statement = f"{declared.keyword} {local}{declared.rest};"
    export = f"export {{ {local} as {string_literal(declared.name)} }};"
    return _join_lines(*declared.types, declared.comment, statement, export)


def _statement(declared: Declared) -> str:
    statement = f"{declared.keyword} {declared.name}{declared.rest};"
    return _join_lines(*declared.types, declared.comment, statement)


def _is_declarable(declared: Declared) -> bool:
    name = declared.name
    return PLAIN_NAME.fullmatch(name) is not None and name not in _UNDECLARABLE


def _member_key(name: str) -> str:
    # `new(…)` would be a constructor; all reserved words are quoted, for uniformity.
    is_plain = PLAIN_NAME.fullmatch(name) and name not in _UNDECLARABLE
    return name if is_plain else string_literal(name)


def _join_lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)
