"""Declared functions and constants: as statements of a namespace, or as members of an object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from nacre.tools.declarations.text import PLAIN_NAME, indent, string_literal

if TYPE_CHECKING:
    from collections.abc import Sequence


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
"""Words that no statement can declare, though `tools.delete(input)` is a sound call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """Something that a program may reach by name."""

    keyword: Literal["function", "const"] = "function"
    name: str
    rest: str
    """What follows the name, without the semicolon."""
    comment: str = ""
    types: tuple[str, ...] = ()
    """Statements for the types that it names."""

    @property
    def size_characters(self) -> int:
        return len(self.rest) + len(self.comment) + sum(map(len, self.types))


def scope_text(path: Sequence[str], members: Sequence[Declared]) -> str:
    """What is under `MCP.github` or `tools`: a namespace when each member can be a statement."""
    # After a dot every word is a name, in the path of a namespace too.
    is_namespace = all(map(PLAIN_NAME.fullmatch, path)) and all(map(_is_declarable, members))
    if not is_namespace:
        return object_text(path, members)
    blocks = "\n\n".join(indent(_statement(member)) for member in members)
    return _join_lines(f"declare namespace {'.'.join(path)} {{", blocks, "}\n")


def object_text(path: Sequence[str], members: Sequence[Declared]) -> str:
    """As members of an object type, which may have any name: `"delete"(input: {}): …`."""
    types = [statement for member in members for statement in member.types]
    text = "\n\n".join(
        _join_lines(member.comment, f"{_member_key(member.name)}{member.rest};")
        for member in members
    )
    for name in reversed(path[1:]):
        text = f"{_member_key(name)}: {{\n{indent(text)}\n}};"
    return _join_lines(*types, f"declare const {path[0]}: {{\n{indent(text)}\n}};\n")


def statement_text(declared: Declared) -> str:
    """One statement; exported under its name when that is no name for a statement."""
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
    # `new(…)` would be a constructor; the other words are quoted with it, for one look.
    is_plain = PLAIN_NAME.fullmatch(name) and name not in _UNDECLARABLE
    return name if is_plain else string_literal(name)


def _join_lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)
