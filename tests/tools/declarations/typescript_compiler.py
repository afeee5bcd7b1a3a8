"""What the real TypeScript compiler says of declarations."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import cast

_SCRIPT = Path(__file__).with_name("parse_declarations.mjs")


def syntax_problems(texts: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The texts that do not parse, each with the compiler's words; one process for all."""
    return _problems(texts)


def meaning_problems(texts: Sequence[str]) -> list[tuple[str, list[str]]]:
    """As `syntax_problems`, for names and types too: unknown, double, circular."""
    return _problems(texts, "--meaning")


def _problems(texts: Sequence[str], *options: str) -> list[tuple[str, list[str]]]:
    done = subprocess.run(
        ["node", str(_SCRIPT), *options],
        input=json.dumps(list(texts)),
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = cast("list[list[str]]", json.loads(done.stdout))
    return [(text, problems) for text, problems in zip(texts, found, strict=True) if problems]
