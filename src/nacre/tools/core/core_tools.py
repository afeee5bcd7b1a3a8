"""The core tools of one agent and the lifetime of the processes they start."""

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
    """Brings a text to the channel of a session."""

    async def send(self, text: str, context: RunContext, /) -> None:
        """Returns when the text is on its way; what it raises becomes the tool's error."""
        ...


class MessageProblem(Exception):
    """A message cannot be sent; the message is for the model."""


def message_tool(sink: MessageSink | None) -> Tool:
    """Without a sink, whoever follows the run is shown the text as progress of the call."""

    async def execute(given: dict[str, Any], call: ToolCall) -> JsonObject:
        text: str = given["text"]
        if not text.strip():
            raise MessageProblem("text is empty; say what the message is")
        if sink is None:
            call.update({"message": text})
            return {"sentTo": "whoever follows the run"}
        await sink.send(text, call.context)
        return {"sentTo": call.context.channel or "the session"}

    return Tool(
        name="message",
        description="Send a message to the user now, while you go on working.",
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
            "description": "What to say, as Markdown",
        },
    },
    "required": ["text"],
    "additionalProperties": False,
}


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
