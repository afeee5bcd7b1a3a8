"""What the real TypeScript compiler says of declarations."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self, cast

_SCRIPT = Path(__file__).with_name("parse_declarations.mjs")


class TypeScriptCompiler:
    """A process of the compiler, which takes a second to start and serves many tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def syntax_problems(self, texts: Sequence[str]) -> list[tuple[str, list[str]]]:
        """The texts that do not parse, each with the compiler's words."""
        return self._problems(texts, checks_meaning=False)

    def meaning_problems(self, texts: Sequence[str]) -> list[tuple[str, list[str]]]:
        """As `syntax_problems`, for names and types too: unknown, double, circular."""
        return self._problems(texts, checks_meaning=True)

    def _problems(
        self, texts: Sequence[str], *, checks_meaning: bool
    ) -> list[tuple[str, list[str]]]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([checks_meaning, list(texts)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the compiler has ended; its standard error says why"
        found = cast("list[list[str]]", json.loads(answer))
        return [(text, problems) for text, problems in zip(texts, found, strict=True) if problems]
