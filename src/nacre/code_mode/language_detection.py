"""Detects input to `exec` that is not JavaScript: shell commands, Python, Markdown.

Only what no JavaScript engine could run to any use is told; where in doubt, the engine judges.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# Whoever writes so much has said what it is by then.
_MAX_LINES: Final = 400
_MAX_LINE_CHARACTERS: Final = 400

_SHEBANG: Final = re.compile(r"#!.{0,80}\b(?:sh|bash|zsh|python[\d.]*)\b")
# After a blank a JavaScript program may go on with one of these words, but with no other.
_NO_OPERATOR: Final = r"(?!(?:in|instanceof|of|as|satisfies)\b)"
_COMMANDS: Final = (
    r"(?:ls|cd|cat|grep|rg|curl|wget|git|gh|npm|npx|pnpm|yarn|pip3?|python3?|node|deno|bun|echo|mkdir"
    r"|rm|cp|mv|touch|chmod|sudo|apt|apt-get|brew|docker|kubectl|ssh|scp|tar|unzip|find|sed|awk|head"
    r"|tail|source|which|make|bash|sh|zsh|uv|cargo)"
)
_SHELL: Final = re.compile(
    rf"(?:\$[ \t]+{_NO_OPERATOR}(?:[a-z]|\./)"
    # Two words side by side, or a word and a string, are a syntax error in JavaScript.
    rf"|{_COMMANDS}[ \t]+(?:{_NO_OPERATOR}[A-Za-z_\"']"
    # An option or a path could be a minus or a division, of names that nothing has defined yet.
    r"|--?[A-Za-z]|~|\.{1,2}(?:/|[ \t]|$)|/[\w.]|<<))"
)
_PYTHON: Final = re.compile(
    r"(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\("
    r"|from[ \t]+[\w.]+[ \t]+import[ \t(]"
    r"|import[ \t]+[\w.]+(?:[ \t]+as[ \t]+\w+)?(?:[ \t]*,[ \t]*[\w.]+)*[ \t]*(?:#.*)?$"
    r"|class[ \t]+\w+[ \t]*(?:\([\w.,= \t]*\))?[ \t]*:[ \t]*(?:#.*)?$"
    # In JavaScript a parenthesis has to follow.
    r"|(?:if|while|with)[ \t]+[^( \t].*:[ \t]*(?:#.*)?$"
    rf"|elif[ \t]+{_NO_OPERATOR}[\w\"'].*:[ \t]*(?:#.*)?$"
    r"|for[ \t]+(?!await\b)\w+(?:[ \t]*,[ \t]*\w+)*[ \t]+in[ \t].*:[ \t]*(?:#.*)?$"
    r"|print[ \t]*\([ \t]*[fFrRbB]{1,2}[\"']"
    r"|print[ \t]+[\"'])"
)
_FENCE_LINE: Final = re.compile(r"[ \t]{0,3}(?P<ticks>`{3,})(?P<info>[^`\n]*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class FencedProgram:
    """The inside of a Markdown fence, and the first word after its opening ticks."""

    code: str
    language: str


def is_shell(code: str) -> bool:
    line = _first_line(code)
    return bool(_SHELL.match(line)) or (bool(_SHEBANG.match(line)) and "python" not in line)


def is_python(code: str) -> bool:
    if _SHEBANG.match(_first_line(code)):
        return "python" in _first_line(code)
    for line in code.split("\n", _MAX_LINES)[:_MAX_LINES]:
        # From here on a line may be inside a template or a comment, where anything may stand.
        if "`" in line or "/*" in line:
            return False
        if len(line) <= _MAX_LINE_CHARACTERS and _PYTHON.match(line.strip()):
            return True
    return False


def starts_with_hash_comment(code: str) -> bool:
    """A comment of shell and Python, or a Markdown heading."""
    return _first_line(code).startswith("# ")


def fenced_program(code: str) -> FencedProgram | None:
    """The program when the text is one Markdown fence and nothing else."""
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
    """Whether a line is a Markdown fence, which outside a comment no line of a program can be."""
    if "```" not in code or "/*" in code:
        return False
    return any(_FENCE_LINE.fullmatch(line.rstrip()) for line in code.split("\n"))


def _first_line(code: str) -> str:
    """The first line that says something; `//` comments do not."""
    for line in code.split("\n", _MAX_LINES)[:_MAX_LINES]:
        text = line[:_MAX_LINE_CHARACTERS].strip()
        if text and not text.startswith("//"):
            return text
    return ""
