"""Calling the file tools of a workspace in a folder of a test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from nacre.config.sections import FsToolsConfig
from nacre.run_context import AbortController, RunContext
from nacre.tools import Tool, ToolCall
from nacre.tools.core.file_tools import file_tools
from nacre.tools.core.workspace import FileProblem

if TYPE_CHECKING:
    from pathlib import Path


class Files:
    """The tools by their names."""

    def __init__(self, root: Path, config: FsToolsConfig | None = None) -> None:
        self.root = root
        self.tools: dict[str, Tool] = {
            tool.name: tool for tool in file_tools(config or FsToolsConfig(), root)
        }
        self.abort = AbortController()

    async def call(self, name: str, **given: object) -> Any:
        call = ToolCall(
            id="call_1",
            parent_id="",
            context=RunContext(),
            abort=self.abort.signal,
            update=lambda _: None,
        )
        with anyio.fail_after(20):
            return await self.tools[name].execute(given, call)

    async def problem(self, name: str, **given: object) -> str:
        with pytest.raises(FileProblem) as refused:
            await self.call(name, **given)
        return str(refused.value)
