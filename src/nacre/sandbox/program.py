"""A program: what to run, and its text, as JavaScript for workers and as written for failures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nacre.config.code_mode import LANGUAGES, Language
from nacre.sandbox.byte_columns import ByteColumns
from nacre.sandbox.failures import MapPosition, failed_from_worker
from nacre.sandbox.host_requests import HostRequestHandler
from nacre.sandbox.limits import Limits
from nacre.sandbox.results import Failed, Output, Reason
from nacre.sandbox.shared_data import SharedData
from nacre.sandbox.transforms import TypeScriptTransforms


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What to run, with what, and on whose behalf."""

    code: str
    language: Language = "javascript"
    limits: Limits = field(default_factory=Limits)
    functions: tuple[str, ...] = ()
    shared: SharedData | None = None
    handler: HostRequestHandler | None = None
    on_output: Callable[[Output], None] | None = None
    owner: str = ""


class NotJavaScript(Exception):
    """The program could not be made JavaScript; carries the value that says so."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error)
        self.failed = failed


class ProgramSource:
    """The text of a program: made JavaScript once, and the way back from there to its own lines."""

    def __init__(self, program: Program, typescript: TypeScriptTransforms) -> None:
        self._program = program
        self._typescript = typescript
        self._map_position: MapPosition | None = None

    @property
    def file_name(self) -> str:
        return "cell.ts" if self._program.language == "typescript" else "cell.js"

    async def javascript(self) -> bytes:
        """What a worker can run; raises NotJavaScript if that cannot be made of it."""
        language = self._program.language
        if language not in LANGUAGES:
            raise NotJavaScript(
                Failed(
                    error=f"cells are written in {' or '.join(LANGUAGES)}, not in {language!r}",
                    reason="unsupported_language",
                )
            )
        code = self._program.code.encode(errors="replace")
        self._map_position = ByteColumns(code).position
        return await self._transform(code) if language == "typescript" else code

    async def _transform(self, code: bytes) -> bytes:
        transformed = await self._typescript.transform(
            code, limits=self._program.limits, owner=self._program.owner
        )
        if isinstance(transformed, Failed):
            raise NotJavaScript(transformed)
        javascript, positions = transformed
        if positions is not None:
            self._map_position = positions
        return javascript

    def build_failure(self, reason: Reason, fields: Mapping[str, Any]) -> Failed:
        """The value for a failure that a worker reported, in terms of the program as written."""
        return failed_from_worker(
            reason,
            fields,
            limits=self._program.limits,
            file_name=self.file_name,
            map_position=self._map_position,
        )
