"""Detects programs that are not JavaScript, and Markdown fences around them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nacre.code_mode.cell import CodeModeResult, Failed
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nacre.config import Language


# The beginning of a long text is enough to detect its language.
_MAX_LINES: Final = 400
_MAX_LINE_CHARACTERS: Final = 400

_SHEBANG: Final = re.compile(r"#!.{0,80}\b(?:sh|bash|zsh|python[\d.]*)\b")
# The only words that may follow a word and a space in JavaScript.
_NO_OPERATOR: Final = r"(?!(?:in|instanceof|of|as|satisfies)\b)"
_COMMANDS: Final = (
    r"(?:ls|cd|cat|grep|rg|curl|wget|git|gh|npm|npx|pnpm|yarn|pip3?|python3?|node|deno|bun|echo|mkdir"
    r"|rm|cp|mv|touch|chmod|sudo|apt|apt-get|brew|docker|kubectl|ssh|scp|tar|unzip|find|sed|awk|head"
    r"|tail|source|which|make|bash|sh|zsh|uv|cargo)"
)
_SHELL: Final = re.compile(
    rf"(?:\$[ \t]+{_NO_OPERATOR}(?:[a-z]|\./)"
    # Two words in sequence, or a word and a string, are a syntax error in JavaScript.
    rf"|{_COMMANDS}[ \t]+(?:{_NO_OPERATOR}[A-Za-z_\"']"
    # An option or a path would be a minus or a division of undefined names.
    r"|--?[A-Za-z]|~|\.{1,2}(?:/|[ \t]|$)|/[\w.]|<<))"
)
_PYTHON: Final = re.compile(
    r"(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\("
    r"|from[ \t]+[\w.]+[ \t]+import[ \t(]"
    r"|import[ \t]+[\w.]+(?:[ \t]+as[ \t]+\w+)?(?:[ \t]*,[ \t]*[\w.]+)*[ \t]*(?:#.*)?$"
    r"|class[ \t]+\w+[ \t]*(?:\([\w.,= \t]*\))?[ \t]*:[ \t]*(?:#.*)?$"
    # In JavaScript a parenthesis follows these.
    r"|(?:if|while|with)[ \t]+[^( \t].*:[ \t]*(?:#.*)?$"
    rf"|elif[ \t]+{_NO_OPERATOR}[\w\"'].*:[ \t]*(?:#.*)?$"
    r"|for[ \t]+(?!await\b)\w+(?:[ \t]*,[ \t]*\w+)*[ \t]+in[ \t].*:[ \t]*(?:#.*)?$"
    r"|print[ \t]*\([ \t]*[fFrRbB]{1,2}[\"']"
    r"|print[ \t]+[\"'])"
)
# Strings and comments, which may contain anything.
_TEXT: Final = re.compile(r"\"[^\"]*\"|'[^']*'|//.*")
# These are JavaScript as well, or parts of it. They count only if the program is a syntax
# error, and are compiled then.
_MAYBE_PYTHON: Final = (
    r"^(?:try|else|finally)[ \t]*:[ \t]*(?:#.*)?$"
    r"|^(?:except|elif|raise|pass|del|global|nonlocal|assert)\b(?![ \t]*[=.(:])"
    r"|^(?:if|while|for|with|async|match|case)\b.*:[ \t]*(?:#.*)?$"
    r"|^#(?:[ \t]|$)"
    r"|\bfor[ \t]+\w+(?:[ \t]*,[ \t]*\w+)*[ \t]+in[ \t]"
    r"|\blambda\b[^=]*:"
    r"|(?<![\w$\"])[fFrRbB]\""
    r"|\b(?:not|and|or|is)[ \t]+[\w(\"]"
)
_TYPES: Final = (
    r"\b(?:const|let|var)[ \t]+[\w$]+[ \t]*:"
    r"|^(?:export[ \t]+|declare[ \t]+)?(?:interface|enum|namespace|type)[ \t]+[A-Za-z_$]"
    r"|[(,][ \t]*(?:[\w$]+|[\]}])\??[ \t]*:[ \t]*"
    r"(?:string|number|boolean|any|unknown|void|object|Record|Array|Promise|\{|[\w$.]+\[\])"
    r"|\)[ \t]*:[ \t]*[\w$<>\[\], .|]+(?:=>|\{)"
    r"|\b(?:as|satisfies)[ \t]+(?:const|any|unknown|string|number|boolean|[A-Z{\[])"
    r"|[\w$)\]]!(?:\.|\[|;|$)"
    r"|\b[\w$]+<[\w$\[\], .|]+>[ \t]*\("
)
_UNDEFINED_NAME: Final = re.compile(r"ReferenceError: (?P<name>\w+) is not defined")
_PYTHON_NAMES: Final = {
    "None": "null",
    "True": "true",
    "False": "false",
    "print": "text(value) and console.log(value)",
    "len": "value.length",
    "str": "String(value)",
    "int": "Number(value)",
    "float": "Number(value)",
    "dict": "objects: {}",
    "range": "for (let i = 0; i < n; i++)",
    "enumerate": "items.entries()",
    "sorted": "items.toSorted()",
    "isinstance": "typeof and instanceof",
    "asyncio": "await and Promise.all",
}
_FENCE_LINE: Final = re.compile(r"[ \t]{0,3}(?P<ticks>`{3,})(?P<info>[^`\n]*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class FencedProgram:
    """The content of a Markdown fence, and the language after its opening ticks."""

    code: str
    language: str


def is_shell(code: str) -> bool:
    line = _first_line(code)
    return bool(_SHELL.match(line)) or (bool(_SHEBANG.match(line)) and "python" not in line)


def is_python(code: str) -> bool:
    if _SHEBANG.match(_first_line(code)):
        return "python" in _first_line(code)
    return any(map(_PYTHON.match, _plain_lines(code)))


def add_language_hint(
    result: CodeModeResult, code: str, *, language: Language, languages: tuple[Language, ...]
) -> CodeModeResult:
    """Add to an error in which language the program seems to be; `languages` are those allowed."""
    if not isinstance(result, Failed):
        return result
    hint = ""
    if result.reason == "syntax_error" and language == "javascript":
        hint = _suggest_language(code, languages)
    elif result.reason == "guest_error":
        hint = _translate_python_name(result.error)
    if not hint:
        return result
    # Before the lines with the positions.
    message, line_break, frames = result.error.partition("\n")
    return replace(result, error=f"{message} ({hint}){line_break}{frames}")


def _suggest_language(code: str, languages: tuple[Language, ...]) -> str:
    lines = [_TEXT.sub('""', line) for line in _plain_lines(code)]
    if any(map(re.compile(_MAYBE_PYTHON).search, lines)):
        return "this looks like Python; exec takes JavaScript"
    if not any(map(re.compile(_TYPES).search, lines)):
        return ""
    if "typescript" in languages:
        return 'this looks like TypeScript; for a program with types, pass language: "typescript"'
    return "this looks like TypeScript; leave the types out"


def _translate_python_name(error: str) -> str:
    found = _UNDEFINED_NAME.match(error)
    meant = _PYTHON_NAMES.get(found["name"]) if found else None
    return f"this is Python; JavaScript has {meant}" if meant else ""


def starts_with_hash_comment(code: str) -> bool:
    """Whether it starts with a comment of shell or Python, or with a Markdown heading."""
    return _first_line(code).startswith("# ")


def fenced_program(code: str) -> FencedProgram | None:
    """The program, if the text is exactly one Markdown fence."""
    lines = code.strip().split("\n")
    fences = [found for line in lines if (found := _FENCE_LINE.fullmatch(line.rstrip()))]
    opening = _FENCE_LINE.fullmatch(lines[0].rstrip())
    if opening is None or len(fences) != 2 or fences[1].group() != lines[-1].rstrip():
        return None
    if len(fences[1]["ticks"]) < len(opening["ticks"]) or fences[1]["info"].strip():
        return None
    words = opening["info"].split()
    return FencedProgram(code="\n".join(lines[1:-1]), language=words[0].lower() if words else "")


def has_fences(code: str) -> bool:
    """Whether a line is a Markdown fence. Outside of comments no line of a program is one."""
    if "```" not in code or "/*" in code:
        return False
    return any(_FENCE_LINE.fullmatch(line.rstrip()) for line in code.split("\n"))


def _first_line(code: str) -> str:
    """The first line that is neither empty nor a `//` comment."""
    for line in code.split("\n", _MAX_LINES)[:_MAX_LINES]:
        text = line[:_MAX_LINE_CHARACTERS].strip()
        if text and not text.startswith("//"):
            return text
    return ""


def _plain_lines(code: str) -> Iterator[str]:
    """The lines up to the first template or block comment, which may contain anything."""
    for line in code.split("\n", _MAX_LINES)[:_MAX_LINES]:
        if "`" in line or "/*" in line:
            return
        if len(line) <= _MAX_LINE_CHARACTERS:
            yield line.strip()
