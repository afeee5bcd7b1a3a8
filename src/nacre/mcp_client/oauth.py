"""OAuth login to a server in a browser, with the OAuth client of the SDK, and token storage."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import webbrowser
import zlib
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from nacre.config import user_folder
from nacre.json_types import JsonObject, NotJsonError, decode_json, encode_json
from nacre.private_files import read_private, write_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    import httpx2
    from anyio.abc import SocketStream

    from nacre.config import McpServerConfig

logger = logging.getLogger(__name__)


HOST: Final = "127.0.0.1"
PATH: Final = "/callback"

_MAX_REQUEST_BYTES: Final = 16 * 1024
_REQUEST_SECONDS: Final = 10.0
_ANSWER: Final = (
    b"HTTP/1.1 %b\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n%b\n"
)


class LoopbackCallback:
    """A local HTTP server for the redirect of a login.

    It listens after `listen`, until `wait_for_callback` returns.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener: anyio.abc.Listener[SocketStream] | None = None
        self._query: dict[str, str] = {}

    async def listen(self) -> None:
        """Start to listen. Raises OSError if the port is in use."""
        if self._listener is None:
            self._listener = await anyio.create_tcp_listener(local_host=HOST, local_port=self._port)

    async def wait_for_callback(self) -> dict[str, str]:
        """Wait for the redirect and return its query parameters."""
        assert self._listener is not None
        try:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                await self._listener.serve(self._serve, tasks)
        finally:
            await self._listener.aclose()
            self._listener = None
        return self._query

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(_REQUEST_SECONDS):
                target = await _read_request_target(stream)
                is_callback = urlsplit(target).path == PATH
                if not is_callback:
                    await stream.send(_ANSWER % (b"404 Not Found", b"Not found."))
                    return
                found = parse_qs(urlsplit(target).query)
                self._query = {key: values[0] for key, values in found.items()}
                await stream.send(_ANSWER % (b"200 OK", b"Done: you can close this window."))
                self._scope.cancel()


async def _read_request_target(stream: SocketStream) -> str:
    """Return the target of an HTTP request, or an empty string if it is invalid."""
    request = b""
    while b"\r\n\r\n" not in request and len(request) < _MAX_REQUEST_BYTES:
        try:
            request += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return ""
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return words[1] if len(words) == 3 and words[0] == "GET" else ""


_Model = TypeVar("_Model", bound=BaseModel)


class TokenFile:
    """A `TokenStorage` of the SDK in a file. A missing or invalid file means a new login."""

    def __init__(self, server_url: str, *, directory: Path | None = None) -> None:
        # The URL may be secret, and may contain characters that a file name cannot.
        name = hashlib.sha256(server_url.encode()).hexdigest()[:32]
        self._path = (directory or user_folder("state", os.environ) / "oauth") / f"{name}.json"

    async def get_tokens(self) -> OAuthToken | None:
        return await self._get("tokens", OAuthToken)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await self._set("tokens", tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return await self._get("client", OAuthClientInformationFull)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._set("client", client_info)

    async def _get(self, key: str, kind: type[_Model]) -> _Model | None:
        stored = (await anyio.to_thread.run_sync(self._read)).get(key)
        try:
            return None if stored is None else kind.model_validate(stored)
        except ValidationError:
            logger.warning("%s has no valid %s; a new login is needed", self._path, key)
            return None

    async def _set(self, key: str, value: BaseModel) -> None:
        await anyio.to_thread.run_sync(self._write, key, value.model_dump(mode="json"))

    def _read(self) -> JsonObject:
        try:
            content = read_private(self._path)
            stored = decode_json(content) if content else {}
        except (OSError, NotJsonError):
            logger.warning("%s cannot be read; a new login is needed", self._path, exc_info=True)
            stored = {}
        return stored if isinstance(stored, dict) else {}

    def _write(self, key: str, value: JsonObject) -> None:
        write_private(self._path, encode_json({**self._read(), key: value}))


_LOGIN_SECONDS: Final = 300.0
_FIRST_PORT: Final = 49152
_PORT_COUNT: Final = 16384


def build_login(
    config: McpServerConfig,
    logging_in: Callable[[], AbstractContextManager[None]],
    *,
    open_browser: Callable[[str], object] = webbrowser.open,
    directory: Path | None = None,
) -> httpx2.Auth | None:
    """Return OAuth authentication for HTTP requests, or None if `oauth` is not configured.

    It sends the stored token, renews it, and starts a login if there is none. `logging_in` is
    entered while it waits for the user.
    """
    if not config.oauth:
        return None
    login = _BrowserLogin(config, logging_in, open_browser)
    return OAuthClientProvider(
        server_url=config.url,
        client_metadata=OAuthClientMetadata(
            client_name="Nacre", redirect_uris=[AnyUrl(login.redirect_uri)]
        ),
        storage=TokenFile(config.url, directory=directory),
        redirect_handler=login.send_user_to,
        callback_handler=login.callback,
    )


class _BrowserLogin:
    def __init__(
        self,
        config: McpServerConfig,
        logging_in: Callable[[], AbstractContextManager[None]],
        open_browser: Callable[[str], object],
    ) -> None:
        self._name = config.name
        self._logging_in = logging_in
        self._open_browser = open_browser
        # The same port for every login, because the redirect address is registered.
        self._port = _FIRST_PORT + zlib.crc32(config.url.encode()) % _PORT_COUNT
        self._callback = LoopbackCallback(self._port)

    @property
    def redirect_uri(self) -> str:
        return f"http://{HOST}:{self._port}{PATH}"

    async def send_user_to(self, url: str) -> None:
        """Listen for the redirect, then open the login page in a browser."""
        # The URL comes from the server, so only web pages are opened.
        if urlsplit(url).scheme not in ("https", "http"):
            raise OAuthFlowError("the login URL of the server is not a web address")
        try:
            await self._callback.listen()
        except OSError as error:
            raise OAuthFlowError(
                f"port {self._port} of the login is in use; is another login running?"
            ) from error
        notice = f"nacre: log in to the MCP server {self._name} in your browser: {url}\n"
        await anyio.to_thread.run_sync(sys.stderr.write, notice)
        await anyio.to_thread.run_sync(self._open_browser, url)

    async def callback(self) -> AuthorizationCodeResult:
        """Wait for the redirect and return its result."""
        query: dict[str, str] = {}
        with self._logging_in(), anyio.move_on_after(_LOGIN_SECONDS):
            query = await self._callback.wait_for_callback()
        code = query.get("code")
        if not code:
            error = query.get("error_description") or query.get("error")
            raise OAuthFlowError(error or f"there was no login within {_LOGIN_SECONDS:g} seconds")
        return AuthorizationCodeResult(code=code, state=query.get("state"), iss=query.get("iss"))
