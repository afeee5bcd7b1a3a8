"""The core tools of one agent, and the lifetime of what they start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.tools.core.file_tools import file_tools
from nacre.tools.core.message import message_tool
from nacre.tools.core.shell_tools import Processes, shell_tools
from nacre.tools.core.web_tools import web_tools

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from nacre.config.core_tools import CoreToolsConfig
    from nacre.tools.core.message import MessageSink
    from nacre.tools.definition import Tool


class CoreTools:
    """The tools that the configuration switches on. Nothing is started before a tool is called, so
    there is nothing to enter; leaving ends what was started."""

    def __init__(
        self,
        config: CoreToolsConfig,
        *,
        workspace: Path,
        messages: MessageSink | None = None,
        in_place_of: CoreTools | None = None,
    ) -> None:
        """Commands in the background of those `in_place_of` which these are made go on, and the
        tool `process` of either finds them."""
        self._processes = Processes() if in_place_of is None else in_place_of._processes
        self.tools: tuple[Tool, ...] = (
            *file_tools(config.fs, workspace),
            *shell_tools(config.exec, workspace, self._processes),
            *web_tools(config.web_fetch),
            message_tool(messages),
        )

    async def end_background_commands(self, reason: str) -> None:
        """Those that run are ended, and for this reason no more are started."""
        await self._processes.end_background(reason)

    async def __aenter__(self) -> CoreTools:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._processes.aclose()
