"""Idempotency keys: a message that is sent twice is taken once."""

from __future__ import annotations

import hashlib
import logging
import time
from typing import TYPE_CHECKING, Final

import anyio

from nacre.errors import StorageError
from nacre.gateway.errors import ApiError
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nacre.json_types import JsonObject
    from nacre.storage import Store

logger = logging.getLogger(__name__)

_KIND: Final = "idempotency_key"
_KEEP_SECONDS: Final = 24 * 3600.0


class IdempotencyKeys:
    """The keys of the last 24 hours, with the first response to each. They are stored, so they are
    known after a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: dict[str, anyio.Event] = {}

    async def run_once(
        self, key: str, body: JsonObject, act: Callable[[], Awaitable[JsonObject]]
    ) -> JsonObject:
        """Call `act`, or return what the first call with this key returned.

        A second request with the same key waits for the first. If `act` raises, the key can be used
        again. Raises ApiError if the key was used with another body, or if it is not known whether
        the first request took effect.
        """
        stored_key = hashlib.sha256(key.encode()).hexdigest()
        while stored_key in self._running:
            await self._running[stored_key].wait()
        self._running[stored_key] = anyio.Event()
        try:
            return await self._run(stored_key, body, act)
        finally:
            self._running.pop(stored_key).set()

    async def _run(
        self, key: str, body: JsonObject, act: Callable[[], Awaitable[JsonObject]]
    ) -> JsonObject:
        digest = hashlib.sha256(encode_json(body)).hexdigest()
        expires = time.time() + _KEEP_SECONDS
        known = await self._store.add_value(_KIND, key, {"body": digest}, expires=expires)
        if known is not None:
            return _first_response(known, digest)
        try:
            response = await act()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._store.delete_value(_KIND, key)
            raise
        value: JsonObject = {"body": digest, "response": response}
        try:
            await self._store.put_value(_KIND, key, value, expires=expires)
        except StorageError as error:
            # The action took effect, so its response counts.
            logger.warning("an idempotency key could not be stored: %s", error)
        return response


def _first_response(known: JsonObject, digest: str) -> JsonObject:
    if known.get("body") != digest:
        raise ApiError(409, "this idempotency key was used with another request; use a new one")
    response = known.get("response")
    if not isinstance(response, dict):
        raise ApiError(
            409,
            "the first request with this idempotency key has no response: another gateway still "
            "handles it, or its gateway stopped; read the session to see whether it has the "
            "message, or use a new key",
        )
    return response
