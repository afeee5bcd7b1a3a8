"""`message`: a text for the people of a session, before the turn has its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from nacre.tools.definition import Tool

if TYPE_CHECKING:
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
