"""Idempotency keys: a message that is sent twice is taken once."""

from __future__ import annotations

import hashlib
import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from nacre.agent import new_run_id
from nacre.errors import NacreError, StorageError
from nacre.gateway.errors import ApiError
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.storage import Store

logger = logging.getLogger(__name__)

_KIND: Final = "idempotency_key"
_KEEP_SECONDS: Final = 24 * 3600.0


class StartRun(Protocol):
    """Starts a run with this id. If it is repeated, the run may have been started before."""

    async def __call__(self, run_id: str, /, *, is_repeated: bool) -> JsonObject: ...


class IdempotencyKeys:
    """The keys of the last 24 hours, with the first response to each. They are stored, so they are
    known after a restart, and to other gateways."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: dict[str, anyio.Event] = {}

    async def run_once(self, key: str, body: JsonObject, act: StartRun) -> JsonObject:
        """Call `act`, or return what the first call with this key returned.

        A second request with the same key waits for the first. If it is not known whether the first
        one took effect, `act` is called again with the same run id. If `act` raises, the key can be
        used again. Raises ApiError if the key was used with another body.
        """
        stored_key = hashlib.sha256(key.encode()).hexdigest()
        while stored_key in self._running:
            await self._running[stored_key].wait()
        self._running[stored_key] = anyio.Event()
        try:
            return await self._run(stored_key, body, act)
        finally:
            self._running.pop(stored_key).set()

    async def _run(self, key: str, body: JsonObject, act: StartRun) -> JsonObject:
        value: JsonObject = {
            "body": hashlib.sha256(encode_json(body)).hexdigest(),
            "runId": new_run_id(),
        }
        expires = time.time() + _KEEP_SECONDS
        known = await self._store.add_value(_KIND, key, value, expires=expires)
        if known is not None:
            if known.get("body") != value["body"]:
                raise ApiError(
                    409, "this idempotency key was used with another request; use a new one"
                )
            response = known.get("response")
            if isinstance(response, dict):
                return response
            value = known
        try:
            response = await act(str(value["runId"]), is_repeated=known is not None)
        except BaseException as error:
            if known is None and self._was_refused(error):
                with anyio.CancelScope(shield=True):
                    await self._store.delete_value(_KIND, key)
            raise
        try:
            await self._store.put_value(
                _KIND, key, {**value, "response": response}, expires=expires
            )
        except StorageError as error:
            # The action took effect, so its response counts.
            logger.warning("an idempotency key could not be stored: %s", error)
        return response

    def _was_refused(self, error: BaseException) -> bool:
        """Whether no message was taken. With several gateways, it may be in an inbox."""
        is_certain = isinstance(error, (NacreError, ApiError)) and not isinstance(
            error, StorageError
        )
        return is_certain or self._store.cluster is None
