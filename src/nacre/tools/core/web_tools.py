"""The tool `web_fetch`: reads a web page as text.

A server chooses what it sends, and some of it takes long to read in one piece: thousands of
headers, interim answers without end. There, nobody else waits for it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio

from nacre.foreign_calls import call_in_thread
from nacre.tools.core.page_text import decode_text, page_text
from nacre.tools.core.web_hosts import AllowedHosts, WebProblem, system_resolve
from nacre.tools.definition import Tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nacre.config import WebFetchConfig
    from nacre.json_types import JsonObject
    from nacre.tools.core.web_fetcher import Fetched, Fetcher
    from nacre.tools.core.web_hosts import Resolve
    from nacre.tools.definition import ToolCall


_Result = TypeVar("_Result")


async def in_own_loop(
    work: Callable[[], Awaitable[_Result]], *, threads: anyio.CapacityLimiter
) -> _Result:
    """What the work returns or raises; when this is cancelled, so is the work."""
    running = _Running(work)
    try:
        return await call_in_thread(running.run, limiter=threads)
    finally:
        running.stop()


class _Running(Generic[_Result]):
    """The work, and the one thing that two threads do with it: one runs it, one may stop it."""

    def __init__(self, work: Callable[[], Awaitable[_Result]]) -> None:
        self._work = work
        self._is_stopped = False
        self._stopper: Callable[[], object] | None = None

    def run(self) -> _Result:
        return anyio.run(self._until_stopped)

    def stop(self) -> None:
        self._is_stopped = True
        if self._stopper is not None:
            # If its loop is closed by now, it has ended.
            with suppress(RuntimeError):
                self._stopper()

    async def _until_stopped(self) -> _Result:
        loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            self._stopper = lambda: loop.call_soon_threadsafe(scope.cancel)
            # Looked at after the stopper is there, so that one of the two sides sees the other.
            if self._is_stopped:
                scope.cancel()
            return await self._work()
        raise TimeoutError("nobody waits for it any more")


_MAX_CONCURRENT_FETCHES: Final = 32
_DEFAULT_CHARACTERS: Final = 50_000
_MAX_CHARACTERS: Final = 2_000_000
# Nobody can ask for more of a text, and decoding takes up to a second for three million bytes.
_MAX_TEXT_BYTES: Final = 4 * _MAX_CHARACTERS
# Pages that were made to take long take a second or two for each million.
_MAX_HTML_BYTES: Final = 4_000_000


def web_tools(config: WebFetchConfig, *, resolve: Resolve = system_resolve) -> list[Tool]:
    """The tool; none where it is switched off, or no host is allowed."""
    if not config.is_enabled or not config.allow:
        return []
    hosts = AllowedHosts(config.allow)

    threads = anyio.CapacityLimiter(_MAX_CONCURRENT_FETCHES)

    def fetcher() -> Fetcher:
        from nacre.tools.core.web_fetcher import Fetcher, tls_context

        return Fetcher(hosts=hosts, most_bytes=config.max_bytes, resolve=resolve, tls=tls_context())

    async def execute(given: dict[str, Any], _call: ToolCall) -> JsonObject:
        try:
            with anyio.fail_after(config.timeout_seconds):
                opened = await call_in_thread(fetcher, limiter=threads)
                fetched = await in_own_loop(partial(opened.fetch, given["url"]), threads=threads)
        except TimeoutError as error:
            raise WebProblem(f"the page took longer than {config.timeout_seconds:g} s") from error
        most = given.get("maxCharacters", _DEFAULT_CHARACTERS)
        return await call_in_thread(partial(_result, fetched, most), limiter=threads)

    return [
        Tool(
            name="web_fetch",
            description=f"Read a web page as text. Allowed hosts: {hosts.shown}.",
            parameters=_INPUT,
            execute=execute,
            needs_approval="it reads a page of the web" if config.ask == "always" else "",
        )
    ]


def _result(fetched: Fetched, most_characters: int) -> JsonObject:
    is_html = fetched.content_type.is_html
    data = fetched.data[: _MAX_HTML_BYTES if is_html else _MAX_TEXT_BYTES]
    text = decode_text(data, fetched.content_type)
    result: JsonObject = {
        "url": fetched.url,
        "status": fetched.status,
        "contentType": fetched.content_type.media_type,
    }
    if is_html:
        page = page_text(text, url=fetched.url)
        result["title"], text = page.title, page.text
    result["text"] = text[:most_characters]
    missing: list[str] = []
    if fetched.is_cut or len(data) < len(fetched.data):
        missing.append(f"only the first {len(data)} bytes of the page were read")
    if len(text) > most_characters:
        missing.append(f"the text has {len(text)} characters; set maxCharacters to see more of it")
    if missing:
        result["incomplete"] = "; ".join(missing)
    return result


_INPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "Such as https://example.org/page"},
        "maxCharacters": {
            "type": "integer",
            "minimum": 1,
            "maximum": _MAX_CHARACTERS,
            "description": f"How much of the text; default {_DEFAULT_CHARACTERS}",
        },
    },
    "required": ["url"],
    "additionalProperties": False,
}
