"""Responses: the numbered events of an answer; the whole answer is what they add up to."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, assert_never

from nacre.gateway.errors import ApiError
from nacre.gateway.openai.response_objects import (
    call_item,
    final_status,
    message_item,
    text_content,
)
from nacre.gateway.openai.run_answers import CallsAsked, MessageOver, RunOver, Said
from nacre.gateway.openai.streaming import data_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from nacre.agent import RunFinish
    from nacre.gateway.openai.parked_runs import ShownCall
    from nacre.gateway.openai.response_objects import ResponseHead, ResponseStatus
    from nacre.gateway.openai.run_answers import AnswerPart, RunAnswer
    from nacre.json_types import JsonObject, JsonValue


class ResponseStream:
    """Writes one response. `keep` is told of it as it begins, and as it ends."""

    def __init__(
        self, answer: RunAnswer, head: ResponseHead, *, keep: Callable[[JsonObject], None]
    ) -> None:
        self._answer = answer
        self._head = head
        self._keep = keep
        self._sequence = 0
        self._output: list[JsonObject] = []
        self._text: list[str] = []
        self._is_begun = False
        self.response: JsonObject = {}
        """The whole of it; once it is complete."""

    async def events(self) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(self._answer.parts()) as parts:
                async for part in parts:
                    for event in self._handle_part(part):
                        yield _encode_event(event)
        except ApiError as error:
            if not self._is_begun:
                raise
            for event in self._fail(error):
                yield _encode_event(event)
        finally:
            self._keep_if_cut()

    async def whole(self) -> JsonObject:
        """The response when it is complete; raises ApiError where there is none."""
        try:
            async with aclosing(self._answer.parts()) as parts:
                async for part in parts:
                    for _event in self._handle_part(part):
                        pass
        finally:
            self._keep_if_cut()
        return self.response

    def failed(self, error: ApiError) -> bytes:
        """For a stream that has begun without an event."""
        return b"".join(_encode_event(event) for event in (*self._begin(), *self._fail(error)))

    def _handle_part(self, part: AnswerPart) -> Iterator[JsonObject]:
        yield from self._begin()
        match part:
            case Said():
                yield from self._add_text(part.text)
            case MessageOver():
                yield from self._end_message()
            case CallsAsked():
                for shown in part.calls:
                    yield from self._call(shown)
                yield from self._end("completed")
            case RunOver():
                reason = part.result.finish_reason
                yield from self._end(final_status(reason), reason=reason)
            case _:
                assert_never(part)

    def _begin(self) -> Iterator[JsonObject]:
        if self._is_begun:
            return
        self._is_begun = True
        begun = self._head.to_json(status="in_progress", output=[])
        self._keep(begun)
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)

    @property
    def _place(self) -> dict[str, JsonValue]:
        """Of the item that is being written."""
        index = len(self._output)
        return {"item_id": self._item_id("msg", index), "output_index": index}

    def _add_text(self, text: str) -> Iterator[JsonObject]:
        place = {**self._place, "content_index": 0}
        if not self._text:
            begun = {**message_item(str(place["item_id"]), ""), "status": "in_progress"}
            index = len(self._output)
            yield self._event(
                "response.output_item.added", output_index=index, item={**begun, "content": []}
            )
            yield self._event("response.content_part.added", **place, part=text_content(""))
        self._text.append(text)
        yield self._event("response.output_text.delta", **place, delta=text, logprobs=[])

    def _end_message(self, *, is_whole: bool = True) -> Iterator[JsonObject]:
        if not self._text:
            return
        place = {**self._place, "content_index": 0}
        text = "".join(self._text)
        self._text = []
        yield self._event("response.output_text.done", **place, text=text, logprobs=[])
        yield self._event("response.content_part.done", **place, part=text_content(text))
        yield self._add(message_item(str(place["item_id"]), text, is_whole=is_whole))

    def _call(self, shown: ShownCall) -> Iterator[JsonObject]:
        index = len(self._output)
        item = call_item(self._item_id("fc", index), shown)
        place: dict[str, JsonValue] = {"item_id": item["id"], "output_index": index}
        begun: JsonObject = {**item, "arguments": "", "status": "in_progress"}
        arguments = item["arguments"]
        kind = "response.function_call_arguments"
        yield self._event("response.output_item.added", output_index=index, item=begun)
        yield self._event(f"{kind}.delta", **place, delta=arguments)
        yield self._event(f"{kind}.done", **place, name=item["name"], arguments=arguments)
        yield self._add(item)

    def _add(self, item: JsonObject) -> JsonObject:
        index = len(self._output)
        self._output.append(item)
        return self._event("response.output_item.done", output_index=index, item=item)

    def _end(self, status: ResponseStatus, *, reason: RunFinish = "stop") -> Iterator[JsonObject]:
        yield from self._end_message()
        self.response = self._head.to_json(
            status=status, output=self._output, usage=self._answer.usage, reason=reason
        )
        self._keep(self.response)
        yield self._event(f"response.{status}", response=self.response)

    def _fail(self, error: ApiError) -> Iterator[JsonObject]:
        yield from self._end_message(is_whole=False)
        self.response = self._head.to_json(
            status="failed",
            output=self._output,
            usage=self._answer.usage,
            error=error.message,
        )
        status = "cancelled" if self._answer.run.state == "aborted" else "failed"
        self._keep({**self.response, "status": status})
        yield self._event("response.failed", response=self.response)

    def _keep_if_cut(self) -> None:
        """Nobody is there any more who could be told how it ends."""
        if self._is_begun and not self.response:
            for _event in self._fail(ApiError(500, "the answer was cut off")):
                pass

    def _item_id(self, kind: str, index: int) -> str:
        return f"{kind}_{self._head.id.removeprefix('resp_')}_{index}"

    def _event(self, kind: str, **members: JsonValue) -> JsonObject:
        event: JsonObject = {"type": kind, "sequence_number": self._sequence, **members}
        self._sequence += 1
        return event


def _encode_event(event: JsonObject) -> bytes:
    return b"event: %b\n" % str(event["type"]).encode() + data_event(event)
