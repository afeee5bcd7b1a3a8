"""Logging in to a server with a browser, by the SDK's OAuth client."""

from __future__ import annotations

import sys
import webbrowser
import zlib
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from pydantic import AnyUrl

from nacre.mcp_client.loopback import HOST, PATH, LoopbackCallback
from nacre.mcp_client.token_file import TokenFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    import httpx2

    from nacre.config.mcp_entry import McpServerConfig

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
    """Sends the token of an earlier login, renews it, and asks the user when there is none.

    `logging_in` is entered while the user is asked. None unless the configuration wants it.
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
        # The same port for every login: servers remember the address that was registered.
        self._port = _FIRST_PORT + zlib.crc32(config.url.encode()) % _PORT_COUNT
        self._callback = LoopbackCallback(self._port)

    @property
    def redirect_uri(self) -> str:
        return f"http://{HOST}:{self._port}{PATH}"

    async def send_user_to(self, url: str) -> None:
        """Listen first, so that no browser is too quick; then open the page."""
        # The address comes from the server: nothing but a web page is opened for it.
        if urlsplit(url).scheme not in ("https", "http"):
            raise OAuthFlowError("the server wants the login at what is no web address")
        try:
            await self._callback.listen()
        except OSError as error:
            raise OAuthFlowError(
                f"port {self._port}, on which the login ends, is taken; is another one under way?"
            ) from error
        notice = f"nacre: log in to the MCP server {self._name} in your browser: {url}\n"
        await anyio.to_thread.run_sync(sys.stderr.write, notice)
        await anyio.to_thread.run_sync(self._open_browser, url)

    async def callback(self) -> AuthorizationCodeResult:
        """What the browser brings back."""
        query: dict[str, str] = {}
        with self._logging_in(), anyio.move_on_after(_LOGIN_SECONDS):
            query = await self._callback.wait_for_callback()
        code = query.get("code")
        if not code:
            told = query.get("error_description") or query.get("error")
            raise OAuthFlowError(told or f"nobody logged in within {_LOGIN_SECONDS:g} seconds")
        return AuthorizationCodeResult(code=code, state=query.get("state"), iss=query.get("iss"))
