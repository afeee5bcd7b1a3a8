"""The core tools of one agent, and the lifetime of the processes that they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from nacre.tools.core.file_tools import file_tools
from nacre.tools.core.shell_tools import Processes, shell_tools
from nacre.tools.core.web_tools import web_tools
from nacre.tools.definition import Tool

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from nacre.config import CoreToolsConfig
    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext
    from nacre.tools.definition import ToolCall


_MAX_CHARACTERS: Final = 20_000


class MessageSink(Protocol):
    """Sends messages to the channel of a session."""

    async def send(self, text: str, context: RunContext, /) -> None:
        """Send a text; an exception becomes the error of the tool."""
        ...


class MessageProblem(Exception):
    """A message cannot be sent; the message is for the model."""


def message_tool(sink: MessageSink | None) -> Tool:
    """The tool `message`; without a sink, messages are progress updates of the call."""

    async def execute(given: dict[str, Any], call: ToolCall) -> JsonObject:
        text: str = given["text"]
        if not text.strip():
            raise MessageProblem("text is empty")
        if sink is None:
            call.update({"message": text})
            return {"sentTo": "the readers of the run"}
        await sink.send(text, call.context)
        return {"sentTo": call.context.channel or "the session"}

    return Tool(
        name="message",
        description="Send a message to the user now, while you continue to work.",
        parameters=_INPUT,
        execute=execute,
    )


_INPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "text": {
            "type": "string",
            "minLength": 1,
            "maxLength": _MAX_CHARACTERS,
            "description": "The message, as Markdown",
        },
    },
    "required": ["text"],
    "additionalProperties": False,
}


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
        self.tools: tuple[Tool, ...] = (
            *file_tools(config.fs, workspace),
            *shell_tools(config.exec, workspace, self._processes),
            *web_tools(config.web_fetch),
            message_tool(messages),
        )

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
