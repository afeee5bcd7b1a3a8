"""The core tools of one agent, and the lifetime of the processes that they start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.tools.core.file_tools import file_tools
from nacre.tools.core.message_tool import message_tool
from nacre.tools.core.shell_tools import Processes, shell_tools
from nacre.tools.core.web_tools import web_tools
from nacre.tools.core.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from nacre.config import CoreToolsConfig
    from nacre.tools.core.message_tool import MessageSink
    from nacre.tools.definition import Tool


class CoreTools:
    """The enabled core tools. Exiting the `async with` block ends all processes they started."""

    def __init__(
        self,
        config: CoreToolsConfig,
        *,
        workspace: Path,
        messages: MessageSink | None = None,
        replaces: CoreTools | None = None,
    ) -> None:
        """With `replaces`, both share their background commands, which continue to run."""
        self._processes = Processes() if replaces is None else replaces._processes
        # A file that is sent is read without an approval.
        may_send_files = config.fs.is_enabled and config.fs.ask != "always"
        self.tools: tuple[Tool, ...] = (
            *file_tools(config.fs, workspace),
            *shell_tools(config.exec, workspace, self._processes),
            *web_tools(config.web_fetch),
            message_tool(messages, workspace=Workspace(workspace) if may_send_files else None),
        )
        self.tools_without_files: tuple[Tool, ...] = (*self.tools[:-1], message_tool(messages))
        """The same for runs that may not read files: `message` takes none."""

    async def end_background_commands(self, reason: str) -> None:
        """End all background commands; new ones are refused with this reason."""
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
