"""The events of pydantic-ai's streams as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_ai.messages import (
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)

from nacre.json_types import encode_json
from nacre.providers.base import TextDelta, ThinkingDelta, ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic_ai.messages import ModelResponseStreamEvent

    from nacre.providers.base import ModelEvent


class StreamEvents:
    """Reads one stream; remembers which call each part is."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[str, str]] = {}

    def of(self, event: ModelResponseStreamEvent) -> Iterator[ModelEvent]:
        match event:
            case PartStartEvent(part=TextPart(content=text)) if text:
                yield TextDelta(text=text)
            case PartStartEvent(part=ThinkingPart(content=text)) if text:
                yield ThinkingDelta(text=text)
            case PartStartEvent(part=ToolCallPart() as call):
                self._calls[event.index] = (call.tool_call_id, call.tool_name)
                yield self._call_delta(event.index, arguments_text(call.args))
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                yield TextDelta(text=text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
                yield ThinkingDelta(text=text)
            case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=arguments)) if arguments:
                yield self._call_delta(event.index, arguments_text(arguments))
            case _:
                pass

    def _call_delta(self, index: int, arguments: str) -> ToolCallDelta:
        call_id, name = self._calls.get(index, ("", ""))
        return ToolCallDelta(call_id=call_id, name=name, arguments=arguments)


def arguments_text(arguments: object) -> str:
    """Some providers stream JSON text, some hand over an object."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else encode_json(arguments).decode()
