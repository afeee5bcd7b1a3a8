"""Fetches web pages with checked redirects and limited bodies.

It is slow to import, so it is imported when the first page is fetched.
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
# A gzip body may consist of several members.
_GZIP_START: Final = b"\x1f"
_CHUNK_BYTES: Final = 65_536


class Decoder:
    """Decodes the content encoding of a body: gzip or none."""

    def __init__(self, *, is_gzip: bool) -> None:
        self._is_gzip = is_gzip
        self._inflater = zlib.decompressobj(_GZIP)
        self._has_started = False

    @classmethod
    def for_encoding(cls, encoding: str) -> Decoder:
        """The decoder for a `Content-Encoding`; raises WebProblem if it is not supported."""
        match encoding.strip().lower():
            case "" | "identity":
                return cls(is_gzip=False)
            case "gzip" | "x-gzip":
                return cls(is_gzip=True)
            case other:
                raise WebProblem(f"the page has the unsupported encoding {other[:60]!r}")

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """The decoded data in small parts; raises `zlib.error`."""
        if not self._is_gzip:
            yield chunk
            return
        while chunk:
            if self._inflater.eof:
                if chunk[:1] != _GZIP_START:
                    # Padding, which some servers send.
                    return
                self._inflater = zlib.decompressobj(_GZIP)
            self._has_started = True
            yield self._inflater.decompress(chunk, _CHUNK_BYTES)
            chunk = self._inflater.unconsumed_tail or self._inflater.unused_data

    def finish(self) -> None:
        """Raise `zlib.error` if the body is incomplete."""
        if self._has_started and not self._inflater.eof:
            raise zlib.error("the compressed page is incomplete")


_MAX_REDIRECTS: Final = 10
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_CONNECT_SECONDS: Final = 5.0
_MAX_URL_CHARACTERS: Final = 8_192
_MAX_SHOWN_CHARACTERS: Final = 300
_MAX_PORT: Final = 65_535
_HEADERS: Final = {
    "user-agent": "nacre",
    "accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.5",
    # The only encoding that can be decoded with a limit.
    "accept-encoding": "gzip",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A fetched page."""

    url: str
    """The URL after redirects."""
    status: int
    content_type: ContentType
    data: bytes
    is_truncated: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetcher:
    """Fetches pages of allowed hosts."""

    hosts: AllowedHosts
    max_bytes: int
    resolve: Resolve
    tls: ssl.SSLContext

    async def fetch(self, url: str) -> Page:
        """Fetch a page; raises WebProblem."""
        async with httpx2.AsyncClient(
            verify=self.tls,
            # A proxy would connect to an address that was not checked.
            trust_env=False,
            # The caller limits the total time; one of several addresses may be unreachable.
            timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
            headers=_HEADERS,
        ) as client:
            current = _parse_url(url)
            for _ in range(_MAX_REDIRECTS + 1):
                outcome = await self._fetch_once(client, current)
                if isinstance(outcome, Page):
                    return outcome
                current = outcome
        raise WebProblem(f"{_shorten(url)} leads through more than {_MAX_REDIRECTS} redirects")

    async def _fetch_once(self, client: httpx2.AsyncClient, url: httpx2.URL) -> Page | httpx2.URL:
        """The page, or the URL of the redirect."""
        response = await self._send(client, url)
        try:
            location = response.headers.get("location")
            if response.status_code in _REDIRECTS and location:
                return _parse_url(location, base=url)
            content_type = ContentType.parse(response.headers.get("content-type", ""))
            if not content_type.is_text:
                raise WebProblem(f"{_shorten(url)} is {content_type.media_type}, not text")
            data, is_truncated = await self._read_body(response, url)
        finally:
            await response.aclose()
        if content_type.is_contradicted_by(data):
            raise WebProblem(f"{_shorten(url)} is binary data, not text")
        return Page(
            url=str(url),
            status=response.status_code,
            content_type=content_type,
            data=data,
            is_truncated=is_truncated,
        )

    async def _send(self, client: httpx2.AsyncClient, url: httpx2.URL) -> httpx2.Response:
        host = _host_of(url)
        self.hosts.refuse_host(host)
        problem = ""
        for address in self.hosts.reachable(host, await self._addresses(host, url)):
            # Cookies are stored by address, and another host may have the same address.
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
                    f"{_shorten(url)} sent no valid response: {_describe_error(error)}"
                ) from error
        raise WebProblem(f"{_shorten(host)} cannot be reached: {problem}")

    async def _addresses(self, host: str, url: httpx2.URL) -> list[str]:
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            return await self.resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise WebProblem(f"there is no host {_shorten(host)}: {error}") from error

    async def _read_body(self, response: httpx2.Response, url: httpx2.URL) -> tuple[bytes, bool]:
        """The body up to the limit, and whether it is truncated."""
        decoder = Decoder.for_encoding(response.headers.get("content-encoding", ""))
        data, raw_bytes = bytearray(), 0
        try:
            async with aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    raw_bytes += len(chunk)
                    for piece in decoder.decode(chunk):
                        data += piece
                        if len(data) > self.max_bytes:
                            return bytes(data[: self.max_bytes]), True
                        await anyio.lowlevel.checkpoint()
                    if raw_bytes > self.max_bytes:
                        # The compressed body is larger than its content, or endless.
                        return bytes(data), True
            decoder.finish()
        except (httpx2.HTTPError, zlib.error) as error:
            raise WebProblem(f"{_shorten(url)} cannot be read: {_describe_error(error)}") from error
        return bytes(data), False


@cache
def tls_context() -> ssl.SSLContext:
    """The TLS context with the system's certificates. Blocks at the first call."""
    return httpx2.create_ssl_context()


def _parse_url(url: str, *, base: httpx2.URL | None = None) -> httpx2.URL:
    """Parse an http(s) URL without credentials; raises WebProblem."""
    try:
        if len(url) > _MAX_URL_CHARACTERS:
            raise httpx2.InvalidURL(f"it has {len(url)} characters")
        parsed = httpx2.URL(url) if base is None else base.join(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise WebProblem(f"{_shorten(url)!r} is not a URL: {error}") from error
    is_port = parsed.port is None or 0 < parsed.port <= _MAX_PORT
    if parsed.scheme not in ("http", "https") or not _host_of(parsed) or not is_port:
        raise WebProblem(f"{_shorten(url)!r} is not a web address like https://example.org/page")
    if parsed.userinfo:
        raise WebProblem("the URL contains a user name or a password, which is not allowed")
    return parsed


def _host_of(url: httpx2.URL) -> str:
    return url.raw_host.decode("ascii").lower().rstrip(".")


def _describe_error(error: Exception) -> str:
    return _shorten(str(error) or type(error).__name__)


def _shorten(text: object) -> str:
    full = str(text)
    return full if len(full) <= _MAX_SHOWN_CHARACTERS else f"{full[:_MAX_SHOWN_CHARACTERS]}…"
