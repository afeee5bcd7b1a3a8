"""The ASGI application of a scripted provider: which request is for which wire format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from nacre.json_types import NotJsonError, decode_json
from nacre.testing.http_server import HttpReply, connection_cutter
from nacre.testing.performance import ScriptPlayback
from nacre.testing.recorded_request import RecordedRequest
from nacre.testing.script import Fail, Part
from nacre.testing.wire.anthropic_messages import MessagesWire
from nacre.testing.wire.base import CREATED_AT
from nacre.testing.wire.openai_chat import ChatWire
from nacre.testing.wire.openai_responses import ResponsesWire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope, Send

    from nacre.json_types import JsonObject, JsonValue
    from nacre.testing.wire.base import Wire

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
    """The ASGI application; `turn` says what to do with a request, once for each."""

    def __init__(
        self, *, turn: _Turn, requests: list[RecordedRequest], models: Sequence[str]
    ) -> None:
        self._turn = turn
        self._requests = requests
        self._models = models

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"a scripted provider speaks HTTP, not {scope['type']}")
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
        body = _object_in(data)
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


def _object_in(data: bytes) -> JsonObject | None:
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
