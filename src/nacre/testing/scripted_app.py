"""The ASGI application of the scripted provider: plays the turns of a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import anyio

from nacre.json_types import NotJsonError, decode_json
from nacre.messages import Usage
from nacre.testing.http_server import HttpReply, connection_cutter
from nacre.testing.script import (
    Call,
    Cut,
    End,
    Fail,
    Part,
    Raw,
    RecordedRequest,
    Say,
    Spoken,
    Stall,
    Think,
    script_fault,
)
from nacre.testing.wire.anthropic_messages import MessagesWire
from nacre.testing.wire.base import CREATED_AT, Answer, arguments_text
from nacre.testing.wire.openai_chat import ChatWire
from nacre.testing.wire.openai_responses import ResponsesWire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.types import Receive, Scope, Send

    from nacre.json_types import JsonObject, JsonValue
    from nacre.testing.script import EndReason, RequestOutcome
    from nacre.testing.wire.base import AnswerStream, Wire


# An estimate; a script can set the exact usage.
_BYTES_PER_TOKEN: Final = 4


class ScriptPlayback:
    """Plays one turn: streams its parts, or sends one response at its end."""

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
                    # Ends when the connection is closed.
                    await anyio.sleep_forever()
                case Fail():
                    await self._send_failure(part)
                    return
                case End():
                    pass
        await self._finish()

    async def _begin_stream(self) -> AnswerStream:
        """Start the stream with the first part, not before."""
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
        elif self._reply.is_started:
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
        if self._reply.is_started:
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
        # First, because a client that has read the last event must find the request ended.
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


WIRES: Final[Mapping[str, Wire]] = MappingProxyType(
    {
        "/v1/chat/completions": ChatWire(),
        "/v1/responses": ResponsesWire(),
        "/v1/messages": MessagesWire(),
    }
)
_MODELS_PATH: Final = "/v1/models"

_Turn = Callable[[RecordedRequest], tuple[Part, ...]]


class ScriptedApp:
    """The ASGI application; `turn` returns the parts of the response to a request."""

    def __init__(
        self, *, turn: _Turn, requests: list[RecordedRequest], models: Sequence[str]
    ) -> None:
        self._turn = turn
        self._requests = requests
        self._models = models

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"a scripted provider supports HTTP, not {scope['type']}")
        reply = HttpReply(send=send, cut=connection_cutter(scope))
        path: str = scope["path"]
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        data = await _body(receive)
        if path == _MODELS_PATH and scope["method"] == "GET":
            await reply.json(200, _model_list(self._models, "anthropic-version" in headers))
        elif path not in WIRES or scope["method"] != "POST":
            await reply.json(404, _unknown_path(scope["method"], path))
        else:
            await self._answer(path, headers, data, receive, reply)

    async def _answer(
        self, path: str, headers: dict[str, str], data: bytes, receive: Receive, reply: HttpReply
    ) -> None:
        wire = WIRES[path]
        body = _parse_object(data)
        if body is None:
            await reply.json(400, wire.failure(Fail(400, "the body is not a JSON object")))
            return
        request = RecordedRequest(
            number=len(self._requests) + 1,
            path=path,
            headers=MappingProxyType(headers),
            body=body,
            body_bytes=len(data),
            wire=wire,
        )
        self._requests.append(request)
        await ScriptPlayback(request, self._turn(request), reply).play_until_client_leaves(receive)


async def _body(receive: Receive) -> bytes:
    data = bytearray()
    while True:
        message = await receive()
        data += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(data)


def _parse_object(data: bytes) -> JsonObject | None:
    try:
        body = decode_json(data)
    except NotJsonError:
        return None
    return body if isinstance(body, dict) else None


def _model_list(models: Sequence[str], is_anthropic: bool) -> JsonObject:
    if is_anthropic:
        entries: list[JsonValue] = [
            {
                "type": "model",
                "id": model,
                "display_name": model,
                "created_at": "2026-01-01T00:00:00Z",
                "lifecycle": "active",
            }
            for model in models
        ]
        return {"data": entries, "has_more": False, "first_id": models[0], "last_id": models[-1]}
    entries = [
        {"id": model, "object": "model", "created": CREATED_AT, "owned_by": "nacre"}
        for model in models
    ]
    return {"object": "list", "data": entries}


def _unknown_path(method: str, path: str) -> JsonObject:
    served = ", ".join((*WIRES, _MODELS_PATH))
    message = f"a scripted provider has no {method} {path}; it has {served}"
    return {"error": {"message": message, "type": "invalid_request_error"}}
