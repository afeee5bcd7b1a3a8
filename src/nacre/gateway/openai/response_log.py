"""Responses that can be asked for again: the last ones as they were, older ones from the store."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, cast

from nacre.gateway.errors import ApiError
from nacre.gateway.openai.response_objects import stored_response
from nacre.gateway.openai.responses_request import run_id_of
from nacre.json_types import decode_json, encode_json

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.storage import Store

_MAX_RESPONSES: Final = 256
_MAX_BYTES: Final = 32 * 1024 * 1024
_MAX_SHOWN: Final = 80


class ResponseLog:
    """What was answered with `store`, which is usual."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def keep(self, response: JsonObject) -> None:
        """Instead of what was kept of it before."""
        response_id = str(response["id"])
        self._bytes -= len(self._kept.pop(response_id, b""))
        data = encode_json(response)
        self._kept[response_id] = data
        self._bytes += len(data)
        while len(self._kept) > _MAX_RESPONSES or self._bytes > _MAX_BYTES:
            self._bytes -= len(self._kept.popitem(last=False)[1])

    async def response(self, response_id: str) -> JsonObject:
        """Raises ApiError (404)."""
        if (kept := self._kept.get(response_id)) is not None:
            return cast("JsonObject", decode_json(kept))
        run_id = run_id_of(response_id)
        turn = await self._store.turn(run_id) if run_id else None
        if turn is None:
            raise ApiError(
                404,
                f"there is no response {response_id[:_MAX_SHOWN]!r} that is kept",
                path="response_id",
            )
        stored = await self._store.messages(turn.session_id, whole=True)
        said = [each.message for each in stored if each.run_id == run_id]
        return stored_response(response_id, turn, said)
