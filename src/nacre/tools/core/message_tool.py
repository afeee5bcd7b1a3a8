"""The tool `message`: sends text and files of the workspace to the user while a turn runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from nacre.foreign_calls import call_in_thread
from nacre.messages import MAX_MEDIA_BYTES
from nacre.tools.core.workspace import FileProblem, Workspace, convert_os_errors
from nacre.tools.definition import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext
    from nacre.tools.definition import ToolCall

_MAX_CHARACTERS: Final = 20_000
_MAX_ATTACHMENTS: Final = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachment:
    """A file that is sent with a message."""

    name: str
    path: str
    """Where it is on this machine."""
    data: bytes = field(repr=False)


class MessageSink(Protocol):
    """Sends messages to the channel of a session."""

    async def send(
        self, text: str, context: RunContext, /, *, attachments: Sequence[Attachment] = ()
    ) -> None:
        """Send a text with files; an exception becomes the error of the tool."""
        ...


class MessageProblem(Exception):
    """A message cannot be sent; the message is for the model."""


def message_tool(sink: MessageSink | None, *, workspace: Workspace | None = None) -> Tool:
    """The tool `message`. Without a workspace, it takes no attachments. Without a sink, messages
    are progress updates of the call."""
    takes_files = sink is not None and workspace is not None

    async def execute(given: dict[str, Any], call: ToolCall) -> JsonObject:
        text: str = given.get("text", "")
        paths: list[str] = given.get("attachments", [])
        if not text.strip() and not paths:
            raise MessageProblem("text is empty, and there is nothing else to send")
        if sink is None:
            call.update({"message": text})
            return {"sentTo": "the readers of the run"}
        files: list[Attachment] = []
        if workspace is not None:
            files = await call_in_thread(partial(_read_files, workspace, paths))
        await sink.send(text, call.context, attachments=files)
        sent: JsonObject = {"sentTo": call.context.channel or "the session"}
        return {**sent, "attachments": [file.name for file in files]} if files else sent

    return Tool(
        name="message",
        description=_DESCRIPTION_WITH_FILES if takes_files else _DESCRIPTION,
        parameters=_INPUT_WITH_FILES if takes_files else _INPUT,
        execute=execute,
    )


def _read_files(workspace: Workspace, paths: Sequence[str]) -> list[Attachment]:
    """Read the files; a path cannot lead outside of the workspace. Blocks."""
    return [_read_file(workspace, path) for path in dict.fromkeys(paths)]


def _read_file(workspace: Workspace, path: str) -> Attachment:
    with (
        workspace.locate(path) as target,
        os.fdopen(target.open_file(), "rb") as file,
        convert_os_errors(target.path),
    ):
        data = file.read(MAX_MEDIA_BYTES + 1)
    if len(data) > MAX_MEDIA_BYTES:
        raise FileProblem(f"{target.path} has more than {MAX_MEDIA_BYTES} bytes; send less")
    if not data:
        raise FileProblem(f"{target.path} is empty; there is nothing to send")
    return Attachment(
        name=target.path.rpartition("/")[2],
        path=os.path.join(workspace.root, target.path),
        data=data,
    )


_DESCRIPTION: Final = "Send a message to the user now, while you continue to work."
_DESCRIPTION_WITH_FILES: Final = (
    "Send a message to the user now, while you continue to work; with files of the workspace, such "
    "as images, if you name them in attachments."
)
_ACTION: Final[JsonObject] = {"enum": ["send"], "description": "Only send, which is the default"}
_TEXT: Final[JsonObject] = {
    "type": "string",
    "maxLength": _MAX_CHARACTERS,
    "description": "The message, as Markdown",
}
_INPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {"action": _ACTION, "text": {**_TEXT, "minLength": 1}},
    "required": ["text"],
    "additionalProperties": False,
}
_INPUT_WITH_FILES: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "action": _ACTION,
        "text": _TEXT,
        "attachments": {
            "type": "array",
            "items": {"type": "string", "description": "Path in the workspace"},
            "maxItems": _MAX_ATTACHMENTS,
            "description": "Files of the workspace to send",
        },
    },
    "additionalProperties": False,
}
