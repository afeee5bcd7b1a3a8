"""The tool `web_fetch`: reads a web page as text.

Pages are fetched in an event loop of their own, because a server can send data that blocks a loop
for long, such as thousands of headers or endless interim responses.
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
    from nacre.tools.core.web_fetcher import Fetcher, Page
    from nacre.tools.core.web_hosts import Resolve
    from nacre.tools.definition import ToolCall


_Result = TypeVar("_Result")


async def run_in_own_loop(
    work: Callable[[], Awaitable[_Result]], *, threads: anyio.CapacityLimiter
) -> _Result:
    """Run the work in a new event loop in a thread; cancellation is passed on to it."""
    worker = _Worker(work)
    try:
        return await call_in_thread(worker.run, limiter=threads)
    finally:
        worker.stop()


class _Worker(Generic[_Result]):
    """Runs the work in one thread; another thread may stop it."""

    def __init__(self, work: Callable[[], Awaitable[_Result]]) -> None:
        self._work = work
        self._is_stopped = False
        self._stopper: Callable[[], object] | None = None

    def run(self) -> _Result:
        return anyio.run(self._until_stopped)

    def stop(self) -> None:
        self._is_stopped = True
        if self._stopper is not None:
            # RuntimeError means that the loop is closed, so the work has ended.
            with suppress(RuntimeError):
                self._stopper()

    async def _until_stopped(self) -> _Result:
        loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            self._stopper = lambda: loop.call_soon_threadsafe(scope.cancel)
            # Checked after the stopper is set, so that a concurrent `stop` is not missed.
            if self._is_stopped:
                scope.cancel()
            return await self._work()
        raise TimeoutError("the work was cancelled")


_MAX_CONCURRENT_FETCHES: Final = 32
_DEFAULT_CHARACTERS: Final = 50_000
_MAX_CHARACTERS: Final = 2_000_000
# Enough for the maximum of characters. Decoding takes up to a second for three million bytes.
_MAX_TEXT_BYTES: Final = 4 * _MAX_CHARACTERS
# A malicious page takes a second or two per million bytes.
_MAX_HTML_BYTES: Final = 4_000_000


def web_tools(config: WebFetchConfig, *, resolve: Resolve = system_resolve) -> list[Tool]:
    """The web tool; none if it is disabled or no host is allowed."""
    if not config.is_enabled or not config.allow:
        return []
    hosts = AllowedHosts(config.allow)

    threads = anyio.CapacityLimiter(_MAX_CONCURRENT_FETCHES)

    def fetcher() -> Fetcher:
        from nacre.tools.core.web_fetcher import Fetcher, tls_context

        return Fetcher(hosts=hosts, max_bytes=config.max_bytes, resolve=resolve, tls=tls_context())

    async def execute(given: dict[str, Any], _call: ToolCall) -> JsonObject:
        try:
            with anyio.fail_after(config.timeout_seconds):
                opened = await call_in_thread(fetcher, limiter=threads)
                page = await run_in_own_loop(partial(opened.fetch, given["url"]), threads=threads)
        except TimeoutError as error:
            raise WebProblem(f"the page took longer than {config.timeout_seconds:g} s") from error
        limit = given.get("maxCharacters", _DEFAULT_CHARACTERS)
        return await call_in_thread(partial(_make_result, page, limit), limiter=threads)

    return [
        Tool(
            name="web_fetch",
            description=f"Read a web page as text. Allowed hosts: {hosts.summary}.",
            parameters=_INPUT,
            execute=execute,
            needs_approval="it reads a web page" if config.ask == "always" else "",
        )
    ]


def _make_result(page: Page, max_characters: int) -> JsonObject:
    is_html = page.content_type.is_html
    data = page.data[: _MAX_HTML_BYTES if is_html else _MAX_TEXT_BYTES]
    text = decode_text(data, page.content_type)
    result: JsonObject = {
        "url": page.url,
        "status": page.status,
        "contentType": page.content_type.media_type,
    }
    if is_html:
        content = page_text(text, url=page.url)
        result["title"], text = content.title, content.text
    result["text"] = text[:max_characters]
    missing: list[str] = []
    if page.is_truncated or len(data) < len(page.data):
        missing.append(f"only the first {len(data)} bytes of the page were read")
    if len(text) > max_characters:
        missing.append(f"the text has {len(text)} characters; set maxCharacters to see more of it")
    if missing:
        result["incomplete"] = "; ".join(missing)
    return result


_INPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "A URL such as https://example.org/page"},
        "maxCharacters": {
            "type": "integer",
            "minimum": 1,
            "maximum": _MAX_CHARACTERS,
            "description": f"The maximum length of the text; default {_DEFAULT_CHARACTERS}",
        },
    },
    "required": ["url"],
    "additionalProperties": False,
}
