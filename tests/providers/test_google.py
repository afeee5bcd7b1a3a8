"""Google's wire format, against a small server that speaks it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream

from nacre.config.models import ModelsConfig, ProviderConfig
from nacre.errors import ProviderError, ToolPayloadError
from nacre.json_types import JsonObject, JsonValue, decode_json, encode_json
from nacre.messages import (
    AssistantMessage,
    ImagePart,
    SentPayload,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    user_message,
)
from nacre.providers.base import (
    Answered,
    ModelEvent,
    ModelRequest,
    Retrying,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from nacre.providers.registry import Providers
from tests.providers.asking import API_KEY, WAIT_SECONDS, WEATHER

HELLO = ModelRequest(instructions="Be brief.", messages=[user_message("hi")], tools=[WEATHER])


class GoogleServer:
    """Answers each request with the next reply: a status and, of a stream, its chunks."""

    def __init__(self, replies: Sequence[tuple[int, Sequence[JsonObject]]]) -> None:
        self.heads: list[str] = []
        self.bodies: list[JsonObject] = []
        self._replies = list(replies)

    async def handle(self, stream: ByteStream) -> None:
        async with stream:
            received = BufferedByteReceiveStream(stream)
            head = (await received.receive_until(b"\r\n\r\n", 65_536)).decode()
            length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
            body = decode_json(await received.receive_exactly(length))
            assert isinstance(body, dict)
            self.heads.append(head)
            self.bodies.append(body)
            status, chunks = self._replies.pop(0)
            await stream.send(_reply(status, chunks))


def _reply(status: int, chunks: Sequence[JsonObject]) -> bytes:
    if status == 200:
        kind, content = (
            "text/event-stream",
            b"".join(b"data: %b\r\n\r\n" % encode_json(chunk) for chunk in chunks),
        )
    else:
        kind, content = "application/json", encode_json(chunks[0])
    head = f"HTTP/1.1 {status} -\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n"
    return head.encode() + content


@asynccontextmanager
async def google(server: GoogleServer) -> AsyncGenerator[Providers]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    config = ProviderConfig(
        name="google",
        api="google-generative-ai",
        base_url=f"http://127.0.0.1:{port}",
        api_key=API_KEY,
        max_retries=1,
    )
    providers = Providers(ModelsConfig(providers={"google": config}), first_retry_seconds=0.0)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.handle)
        try:
            yield providers
        finally:
            await providers.aclose()
            tasks.cancel_scope.cancel()


async def events_of(providers: Providers, request: ModelRequest) -> list[ModelEvent]:
    with anyio.fail_after(WAIT_SECONDS):
        async with providers.get("google/gemini-3-pro").stream(request) as events:
            return [event async for event in events]


def chunk(*parts: JsonValue, finish: str = "", usage: JsonObject | None = None) -> JsonObject:
    candidate: JsonObject = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    whole: JsonObject = {"candidates": [candidate], "modelVersion": "gemini-3-pro"}
    if usage:
        whole["usageMetadata"] = usage
    return whole


async def test_the_images_of_a_result_reach_the_model_as_images() -> None:
    called = AssistantMessage(
        parts=(ToolCallPart(call_id="a", name="weather", arguments="{}"),), model="google/any"
    )
    image = ImagePart(url="data:image/png;base64,iVBORw0KGgo=")
    result = ToolMessage(call_id="a", name="weather", content="sun", images=(image,))
    server = GoogleServer([(200, [chunk({"text": "Sunny."}, finish="STOP")])])
    async with google(server) as providers:
        history = [user_message("hi"), called, result]
        await events_of(providers, ModelRequest(instructions="", messages=history, tools=[WEATHER]))

    sent = encode_json(server.bodies[0]).decode()
    assert '"functionResponse":{"parts":[{"inline_data":{"mime_type":"image/png"' in sent
    assert '"data":"iVBORw0KGgo="' in sent
    assert '"response":{"return_value":"sun"}' in sent


async def test_an_answer_with_thoughts_words_and_a_call_is_understood_and_sent_back() -> None:
    usage: JsonObject = {
        "promptTokenCount": 50,
        "candidatesTokenCount": 9,
        "totalTokenCount": 59,
        "cachedContentTokenCount": 20,
    }
    call: JsonObject = {"name": "weather", "args": {"town": "Ulm"}}
    server = GoogleServer(
        [
            (
                200,
                [
                    chunk({"text": "let me see", "thought": True}),
                    chunk({"text": "I will "}),
                    chunk({"text": "look."}),
                    chunk(
                        {"functionCall": call, "thoughtSignature": "c2VhbGVk"},
                        finish="STOP",
                        usage=usage,
                    ),
                ],
            ),
            (200, [chunk({"text": "Sunny."}, finish="STOP")]),
        ]
    )
    async with google(server) as providers:
        events = await events_of(providers, HELLO)
        last = events.pop()
        assert isinstance(last, Answered)
        answer = last.message
        result = ToolMessage(call_id=answer.tool_calls[0].call_id, name="weather", content="sun")
        again = ModelRequest(
            instructions="Be brief.",
            messages=[user_message("hi"), answer, result],
            tools=[WEATHER],
        )
        second = (await events_of(providers, again))[-1]

    assert events[:3] == [
        ThinkingDelta(text="let me see"),
        TextDelta(text="I will "),
        TextDelta(text="look."),
    ]
    assert [event.arguments for event in events if isinstance(event, ToolCallDelta)] == [
        '{"town":"Ulm"}'
    ]
    assert isinstance(answer.parts[0], ThinkingPart)
    assert answer.text == "I will look."
    assert answer.finish_reason == "tool_calls"
    assert answer.usage == Usage(input_tokens=50, output_tokens=9, cached_tokens=20)
    assert isinstance(second, Answered)
    assert second.message.text == "Sunny."
    sent = encode_json(server.bodies[1]).decode()
    assert "c2VhbGVk" in sent
    assert '"functionResponse"' in sent
    assert f"x-goog-api-key: {API_KEY}" in server.heads[0].lower()


async def test_tools_are_seen_on_the_wire_and_what_is_optional_stays_optional() -> None:
    seen: list[SentPayload] = []
    server = GoogleServer([(200, [chunk({"text": "ok"}, finish="STOP")])])
    async with google(server) as providers:
        request = ModelRequest(
            instructions="", messages=HELLO.messages, tools=[WEATHER], check=seen.append
        )
        await events_of(providers, request)

    assert [payload.tool_names for payload in seen] == [("weather",)]
    sent = encode_json(server.bodies[0]["tools"]).decode()
    assert '"required":["town"]' in sent
    assert '"maximum":9' in sent


async def test_a_refused_payload_does_not_reach_the_server() -> None:
    def check(_payload: SentPayload) -> None:
        raise ToolPayloadError("not these")

    server = GoogleServer([])
    async with google(server) as providers:
        request = ModelRequest(instructions="", messages=HELLO.messages, check=check)
        with pytest.raises(ToolPayloadError):
            await events_of(providers, request)

    assert server.bodies == []


async def test_a_busy_provider_is_asked_again_and_a_wrong_key_is_not() -> None:
    busy: JsonObject = {"error": {"code": 503, "message": "too busy", "status": "UNAVAILABLE"}}
    wrong: JsonObject = {"error": {"code": 403, "message": f"no {API_KEY}", "status": "DENIED"}}
    server = GoogleServer(
        [(503, [busy]), (200, [chunk({"text": "ok"}, finish="STOP")]), (403, [wrong])]
    )
    async with google(server) as providers:
        first = await events_of(providers, HELLO)
        with pytest.raises(ProviderError) as caught:
            await events_of(providers, HELLO)

    assert isinstance(first[0], Retrying)
    assert "too busy" in first[0].problem
    assert isinstance(first[-1], Answered)
    assert caught.value.status == 403
    assert API_KEY not in str(caught.value)


async def test_an_answer_without_an_end_is_one_that_broke_off() -> None:
    server = GoogleServer([(200, [chunk({"text": "Once upon"})])])
    async with google(server) as providers:
        with pytest.raises(ProviderError, match="is incomplete"):
            await events_of(providers, HELLO)
