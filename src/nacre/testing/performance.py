"""One turn of a script, played to the client who asked for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from nacre.messages import Usage
from nacre.testing.script import (
    Call,
    Cut,
    End,
    Fail,
    Part,
    Raw,
    Say,
    Spoken,
    Stall,
    Think,
    script_fault,
)
from nacre.testing.wire.base import Answer, arguments_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.types import Receive

    from nacre.testing.http_server import HttpReply
    from nacre.testing.recorded_request import RecordedRequest, RequestOutcome
    from nacre.testing.script import EndReason
    from nacre.testing.wire.base import AnswerStream

# Roughly; whoever needs a certain count writes it into the script.
_BYTES_PER_TOKEN: Final = 4


class ScriptPlayback:
    """Streams the parts as they come; without a stream, answers when the turn is over."""

    def __init__(self, request: RecordedRequest, turn: tuple[Part, ...], reply: HttpReply) -> None:
        self._request = request
        self._turn = _with_call_ids(turn, request)
        self._planned = _answer_of(self._turn, request)
        self._reply = reply
        self._stream: AnswerStream | None = None

    async def play_until_client_leaves(self, receive: Receive) -> None:
        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._request.end("abandoned")
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await self._play()
            tasks.cancel_scope.cancel()

    async def _play(self) -> None:
        for part in self._turn:
            match part:
                case Say() | Think() | Call():
                    if self._request.is_streaming:
                        await self._send((await self._begin_stream()).speak(part))
                case Raw(text):
                    if self._request.is_streaming:
                        await self._begin_stream()
                    await self._reply.chunk(text.encode(), is_stream=self._request.is_streaming)
                case Stall(until):
                    await (anyio.sleep_forever() if until is None else until.wait())
                case Cut():
                    self._request.end("cut")
                    self._reply.cut()
                    # Until the connection is really gone, which ends this.
                    await anyio.sleep_forever()
                case Fail():
                    await self._send_failure(part)
                    return
                case End():
                    pass
        await self._finish()

    async def _begin_stream(self) -> AnswerStream:
        """Nothing at all is sent before the first word."""
        if self._stream is None:
            self._stream = self._request.wire.stream(self._planned)
            await self._send(self._stream.begin())
        return self._stream

    async def _send(self, events: Iterable[bytes]) -> None:
        for event in events:
            await self._reply.chunk(event, is_stream=True)

    async def _finish(self) -> None:
        if self._request.is_streaming:
            await self._over("answered", (await self._begin_stream()).end())
        elif self._reply.is_begun:
            await self._over("answered")
        else:
            await self._answer_whole()

    async def _answer_whole(self) -> None:
        try:
            whole = self._request.wire.whole(self._planned)
        except ValueError as error:
            await self._send_failure(script_fault(f"the script cannot be played: {error}"))
            return
        self._request.end("answered")
        await self._reply.json(200, whole)

    async def _send_failure(self, failure: Fail) -> None:
        if self._reply.is_begun:
            await self._over("refused", self._stream.fail(failure) if self._stream else ())
            return
        headers: dict[str, str] = {}
        if failure.retry_after is not None:
            headers["retry-after"] = f"{failure.retry_after:g}"
        if failure.is_final:
            headers["x-should-retry"] = "false"
        self._request.end("refused")
        await self._reply.json(failure.status, self._request.wire.failure(failure), headers)

    async def _over(self, outcome: RequestOutcome, last_events: Iterable[bytes] = ()) -> None:
        # First of all: who has read the last event must find the request over, and may leave.
        self._request.end(outcome)
        await self._send(last_events)
        await self._reply.end()


def _with_call_ids(turn: tuple[Part, ...], request: RecordedRequest) -> tuple[Part, ...]:
    return tuple(
        replace(part, call_id=request.wire.call_id(request.number, index))
        if isinstance(part, Call) and not part.call_id
        else part
        for index, part in enumerate(turn)
    )


def _answer_of(turn: tuple[Part, ...], request: RecordedRequest) -> Answer:
    spoken = [part for part in turn if isinstance(part, (Say, Think, Call))]
    ends = [part for part in turn if isinstance(part, End)]
    reasons: list[EndReason] = [end.reason for end in ends if end.reason is not None]
    usages = [end.usage for end in ends if end.usage is not None]
    is_calling = any(isinstance(part, Call) for part in spoken)
    usual: EndReason = "tool_calls" if is_calling else "stop"
    return Answer(
        number=request.number,
        model=request.model,
        spoken=spoken,
        reason=reasons[-1] if reasons else usual,
        usage=usages[-1] if usages else _estimated_usage(spoken, request),
        request=request.body,
    )


def _estimated_usage(spoken: Sequence[Spoken], request: RecordedRequest) -> Usage:
    written = sum(
        len(arguments_text(part)) if isinstance(part, Call) else len(part.text) for part in spoken
    )
    return Usage(
        input_tokens=request.body_bytes // _BYTES_PER_TOKEN + 1,
        output_tokens=written // _BYTES_PER_TOKEN + 1,
    )
