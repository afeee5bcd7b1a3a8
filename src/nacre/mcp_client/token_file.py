"""Tokens of one server in a private file, as the SDK wants them kept."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import BaseModel, ValidationError

from nacre.json_types import JsonObject, NotJsonError, decode_json, encode_json
from nacre.mcp_client.private_file import read_private, state_directory, write_private

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

_Model = TypeVar("_Model", bound=BaseModel)


class TokenFile:
    """The SDK's `TokenStorage`: what is not there or cannot be read means a new login."""

    def __init__(self, server_url: str, *, directory: Path | None = None) -> None:
        # The URL may be secret, and may hold what no file name can.
        name = hashlib.sha256(server_url.encode()).hexdigest()[:32]
        self._path = (directory or state_directory() / "oauth") / f"{name}.json"

    async def get_tokens(self) -> OAuthToken | None:
        return await self._get("tokens", OAuthToken)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await self._set("tokens", tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return await self._get("client", OAuthClientInformationFull)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._set("client", client_info)

    async def _get(self, key: str, kind: type[_Model]) -> _Model | None:
        kept = (await anyio.to_thread.run_sync(self._read)).get(key)
        try:
            return None if kept is None else kind.model_validate(kept)
        except ValidationError:
            logger.warning("%s holds no usable %s; a new login is needed", self._path, key)
            return None

    async def _set(self, key: str, value: BaseModel) -> None:
        await anyio.to_thread.run_sync(self._write, key, value.model_dump(mode="json"))

    def _read(self) -> JsonObject:
        try:
            content = read_private(self._path)
            kept = decode_json(content) if content else {}
        except (OSError, NotJsonError):
            logger.warning("%s cannot be read; a new login is needed", self._path, exc_info=True)
            kept = {}
        return kept if isinstance(kept, dict) else {}

    def _write(self, key: str, value: JsonObject) -> None:
        write_private(self._path, encode_json({**self._read(), key: value}))
