"""Fetches web pages with checked redirects and bounded bodies.

Takes long to import, so it is imported by whoever fetches the first page.
"""

from __future__ import annotations

import zlib
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import anyio.lowlevel
import httpx2

from nacre.tools.core.page_text import ContentType
from nacre.tools.core.web_hosts import WebProblem

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from nacre.tools.core.web_hosts import AllowedHosts, Resolve


_GZIP: Final = zlib.MAX_WBITS | 16
# Behind the end of one, another one may begin.
_GZIP_START: Final = b"\x1f"
_PIECE_BYTES: Final = 65_536


class Unpacking:
    """What a body was packed with, or nothing."""

    def __init__(self, *, is_gzip: bool) -> None:
        self._is_gzip = is_gzip
        self._inflater = zlib.decompressobj(_GZIP)
        self._is_begun = False

    @classmethod
    def for_encoding(cls, encoding: str) -> Unpacking:
        """As `Content-Encoding` names it; raises WebProblem for one that was not asked for."""
        match encoding.strip().lower():
            case "" | "identity":
                return cls(is_gzip=False)
            case "gzip" | "x-gzip":
                return cls(is_gzip=True)
            case other:
                raise WebProblem(f"the page is packed as {other[:60]!r}, which was not asked for")

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """What the chunk stands for; none of the pieces is large. Raises `zlib.error`."""
        if not self._is_gzip:
            yield chunk
            return
        while chunk:
            if self._inflater.eof:
                if chunk[:1] != _GZIP_START:
                    # Filling, which some servers send.
                    return
                self._inflater = zlib.decompressobj(_GZIP)
            self._is_begun = True
            yield self._inflater.decompress(chunk, _PIECE_BYTES)
            chunk = self._inflater.unconsumed_tail or self._inflater.unused_data

    def finish(self) -> None:
        """Raises `zlib.error` if the end is missing."""
        if self._is_begun and not self._inflater.eof:
            raise zlib.error("the packed page has no end")


_MAX_REDIRECTS: Final = 10
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_CONNECT_SECONDS: Final = 5.0
_MAX_URL_CHARACTERS: Final = 8_192
_MAX_SHOWN_CHARACTERS: Final = 300
_MAX_PORT: Final = 65_535
_HEADERS: Final = {
    "user-agent": "nacre",
    "accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.5",
    # One that can be undone within a bound.
    "accept-encoding": "gzip",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """A page as it came."""

    url: str
    """Where it was in the end."""
    status: int
    content_type: ContentType
    data: bytes
    is_cut: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetcher:
    """Fetches pages of hosts that are allowed."""

    hosts: AllowedHosts
    most_bytes: int
    resolve: Resolve
    tls: ssl.SSLContext

    async def fetch(self, url: str) -> Fetched:
        """Raises WebProblem for what may not or cannot be fetched."""
        async with httpx2.AsyncClient(
            verify=self.tls,
            # A proxy would connect to an address that nobody looked at.
            trust_env=False,
            # There is a limit for all of it, around this; but of several addresses one may be dead.
            timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
            headers=_HEADERS,
        ) as client:
            there = _parse_url(url)
            for _ in range(_MAX_REDIRECTS + 1):
                found = await self._step(client, there)
                if isinstance(found, Fetched):
                    return found
                there = found
        raise WebProblem(f"{_shorten(url)} leads through more than {_MAX_REDIRECTS} redirects")

    async def _step(self, client: httpx2.AsyncClient, url: httpx2.URL) -> Fetched | httpx2.URL:
        """The page, or where it is instead."""
        response = await self._answer(client, url)
        try:
            location = response.headers.get("location")
            if response.status_code in _REDIRECTS and location:
                return _parse_url(location, base=url)
            content_type = ContentType.parse(response.headers.get("content-type", ""))
            if not content_type.is_text:
                raise WebProblem(f"{_shorten(url)} is {content_type.media_type}, not text")
            data, is_cut = await self._body(response, url)
        finally:
            await response.aclose()
        if content_type.is_contradicted_by(data):
            raise WebProblem(f"{_shorten(url)} is binary data, not text")
        return Fetched(
            url=str(url),
            status=response.status_code,
            content_type=content_type,
            data=data,
            is_cut=is_cut,
        )

    async def _answer(self, client: httpx2.AsyncClient, url: httpx2.URL) -> httpx2.Response:
        host = _host_of(url)
        self.hosts.refuse_host(host)
        problem = ""
        for address in self.hosts.reachable(host, await self._addresses(host, url)):
            # They are kept by address, and another host may have the same one.
            client.cookies.clear()
            request = client.build_request(
                "GET",
                url.copy_with(host=address, fragment=None),
                headers={"host": url.netloc.decode("ascii")},
                extensions={"sni_hostname": host},
            )
            try:
                return await client.send(request, stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                problem = _describe_error(error)
            except httpx2.HTTPError as error:
                raise WebProblem(
                    f"{_shorten(url)} gave no answer: {_describe_error(error)}"
                ) from error
        raise WebProblem(f"{_shorten(host)} cannot be reached: {problem}")

    async def _addresses(self, host: str, url: httpx2.URL) -> list[str]:
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            return await self.resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise WebProblem(f"there is no host {_shorten(host)}: {error}") from error

    async def _body(self, response: httpx2.Response, url: httpx2.URL) -> tuple[bytes, bool]:
        """As much as is allowed, and whether there is more."""
        unpacking = Unpacking.for_encoding(response.headers.get("content-encoding", ""))
        data, packed_bytes = bytearray(), 0
        try:
            async with aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    packed_bytes += len(chunk)
                    for piece in unpacking.pieces(chunk):
                        data += piece
                        if len(data) > self.most_bytes:
                            return bytes(data[: self.most_bytes]), True
                        await anyio.lowlevel.checkpoint()
                    if packed_bytes > self.most_bytes:
                        # It is packed so that it only grows, or has no end.
                        return bytes(data), True
            unpacking.finish()
        except (httpx2.HTTPError, zlib.error) as error:
            raise WebProblem(f"{_shorten(url)} broke off: {_describe_error(error)}") from error
        return bytes(data), False


@cache
def tls_context() -> ssl.SSLContext:
    """Whom to trust. Blocks: it is read from files, once."""
    return httpx2.create_ssl_context()


def _parse_url(url: str, *, base: httpx2.URL | None = None) -> httpx2.URL:
    """Raises WebProblem for anything but a web address without a password."""
    try:
        if len(url) > _MAX_URL_CHARACTERS:
            raise httpx2.InvalidURL(f"it has {len(url)} characters")
        parsed = httpx2.URL(url) if base is None else base.join(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise WebProblem(f"{_shorten(url)!r} is no URL: {error}") from error
    is_port = parsed.port is None or 0 < parsed.port <= _MAX_PORT
    if parsed.scheme not in ("http", "https") or not _host_of(parsed) or not is_port:
        raise WebProblem(f"{_shorten(url)!r} is no web address, such as https://example.org/page")
    if parsed.userinfo:
        raise WebProblem("a URL with a user name or a password in it is not fetched")
    return parsed


def _host_of(url: httpx2.URL) -> str:
    return url.raw_host.decode("ascii").lower().rstrip(".")


def _describe_error(error: Exception) -> str:
    return _shorten(str(error) or type(error).__name__)


def _shorten(text: object) -> str:
    told = str(text)
    return told if len(told) <= _MAX_SHOWN_CHARACTERS else f"{told[:_MAX_SHOWN_CHARACTERS]}…"
