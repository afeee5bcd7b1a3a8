"""What `nacre run` asks of the agent: from the command line, or from standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from nacre.cli.output import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

# Far above what a model can read; keeps a wrong file from filling the memory.
_MAX_PROMPT_BYTES: Final = 4 << 20


def read_prompt(words: Sequence[str]) -> str:
    """The words, or standard input for none or `-`; raises UsageProblem."""
    is_asked_for = tuple(words) == ("-",)
    text = _read_standard_input(is_asked_for=is_asked_for) if not words or is_asked_for else ""
    text = text or _check_encoding(" ".join(words) if not is_asked_for else "")
    if not text.strip():
        raise UsageProblem("the prompt is empty; nothing was asked")
    return text


def _check_encoding(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # Python keeps bytes of an argument that it cannot decode as halves of surrogate pairs.
        raise UsageProblem(f"the prompt is not UTF-8 (character {error.start + 1})") from None
    return text


def _read_standard_input(*, is_asked_for: bool) -> str:
    stream = sys.stdin
    if stream is None or (stream.isatty() and not is_asked_for):
        raise UsageProblem('there is no prompt; write `nacre run "..."`, or pipe one to it')
    try:
        content = stream.buffer.read(_MAX_PROMPT_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UsageProblem(f"cannot read standard input: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageProblem(f"standard input is not UTF-8 text (line {line})") from None
    if len(content) > _MAX_PROMPT_BYTES:
        raise UsageProblem(f"standard input is larger than {_MAX_PROMPT_BYTES} bytes")
    return text
