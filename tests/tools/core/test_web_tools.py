"""Fetching pages from a server on the loopback interface, and refused requests."""

import asyncio
import gzip
import ssl
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from nacre.config.sections import WebFetchConfig
from nacre.tools.core.web_hosts import WebProblem
from nacre.tools.core.web_tools import run_in_own_loop, web_tools
from tests.tools.core.loopback_site import Site, loopback_site
from tests.tools.core.tool_calls import Calls

HTML = "Content-Type: text/html"
PLAIN = "Content-Type: text/plain"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with loopback_site() as opened:
        yield opened


class Web(Calls):
    """The tool, with names of its own for loopback."""

    def __init__(self, *allow: str, timeout_seconds: float = 10, max_bytes: int = 10_000) -> None:
        self.addresses = ["127.0.0.1"]
        self.loops: set[asyncio.AbstractEventLoop] = set()
        config = WebFetchConfig(is_enabled=True, allow=allow, max_bytes=max_bytes)
        # Shorter than a document may say.
        config = config.model_copy(update={"timeout_seconds": timeout_seconds})
        super().__init__(web_tools(config, resolve=self._resolve))

    async def fetch(self, url: str, **given: object) -> Any:
        return await self.call("web_fetch", url=url, **given)

    async def problem(self, url: str) -> str:
        with pytest.raises(WebProblem) as refused:
            await self.fetch(url)
        return str(refused.value)

    async def _resolve(self, host: str, port: int, /) -> list[str]:
        self.loops.add(asyncio.get_running_loop())
        if host == "nowhere.example":
            raise OSError("no such name")
        return self.addresses


@pytest.mark.parametrize(
    "config",
    [
        WebFetchConfig(),
        WebFetchConfig(allow=("example.org",)),
        WebFetchConfig(is_enabled=True),
    ],
)
def test_without_being_switched_on_and_a_host_there_is_none(config: WebFetchConfig) -> None:
    assert web_tools(config) == []


def test_the_model_is_told_the_hosts_and_a_person_is_asked_as_configured() -> None:
    config = WebFetchConfig(is_enabled=True, allow=("example.org", "*.python.org"), ask="always")
    (tool,) = web_tools(config)
    assert tool.description.endswith("Allowed hosts: example.org, *.python.org.")
    assert tool.needs_approval
    assert not Web("example.org").tools["web_fetch"].needs_approval


async def test_a_page_is_read_as_text(site: Site) -> None:
    site.add("/page", b"<title>Hi</title><p>Hello <a href=/x>there</a></p>", HTML)
    url = site.url("/page")
    assert await Web("127.0.0.1").fetch(f"{url}#part") == {
        "url": f"{url}#part",
        "status": 200,
        "contentType": "text/html",
        "title": "Hi",
        "text": f"Hello [there]({site.url('/x')})",
    }


async def test_what_is_no_html_stays_as_it_is(site: Site) -> None:
    site.add("/data?x=1", b'{"a": "<b>"}', "Content-Type: application/json")
    assert await Web("127.0.0.1").fetch(site.url("/data?x=1")) == {
        "url": site.url("/data?x=1"),
        "status": 200,
        "contentType": "application/json",
        "text": '{"a": "<b>"}',
    }


async def test_a_page_that_is_not_there_is_a_result(site: Site) -> None:
    site.add("/gone", b"no such page", PLAIN, status="404 Not Found")
    found = await Web("127.0.0.1").call("web_fetch", url=site.url("/gone"))
    assert (found["status"], found["text"]) == (404, "no such page")


async def test_the_server_is_told_the_host_that_was_named(site: Site) -> None:
    site.add("/", b"hello", PLAIN)
    found = await Web("wiki.corp").call("web_fetch", url=site.url("/", "WIKI.corp."))
    assert found["text"] == "hello"
    assert f"host: wiki.corp.:{site.port}\r\n" in site.requests[0].lower()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://127.0.0.1/", "'ftp://127.0.0.1/' is not a web address like https://example.org/"),
        ("file:///etc/passwd", "is not a web address"),
        ("/etc/passwd", "is not a web address"),
        ("http://", "is not a web address"),
        ("http://./", "is not a web address"),
        ("http://127.0.0.1:99999/", "is not a web address"),
        ("http://127.0.0.1:0/", "is not a web address"),
        ("http://me:secret@127.0.0.1/", "the URL contains a user name or a password"),
        ("http://127.0.0.1\\@evil.net/", "the URL contains a user name or a password"),
        ("http://\0/", "is not a URL"),
        ("http://①②⑦.0.0.1/", "is not a URL"),
        ("http://127.0.0.1/" + "x" * 10_000, "is not a URL: it has 10017 characters"),
        ("http://evil.net/", "evil.net is not an allowed host; allowed: 127.0.0.1, *.example"),
        ("http://127.0.0.1.evil.net/", "is not an allowed host"),
        ("http://nowhere.example/", "there is no host nowhere.example: no such name"),
    ],
)
async def test_what_may_not_be_fetched_is_refused_with_a_reason(url: str, problem: str) -> None:
    assert problem in await Web("127.0.0.1", "*.example").problem(url)


async def test_a_name_that_leads_to_this_machine_is_refused(site: Site) -> None:
    web = Web("*.example", "*")
    for host in ("rebound.example", "2130706433", "0x7f.1", "localhost"):
        assert "127.0.0.1, which is not a public address" in await web.problem(site.url("/", host))
    assert site.requests == []


async def test_redirects_are_followed(site: Site) -> None:
    site.add("/a", b"", "Location: /b", status="301 Moved")
    site.add("/b", b"", f"Location: {site.url('/c', 'localhost')}", status="307 Moved")
    site.add("/c", b"arrived", PLAIN)
    found = await Web("127.0.0.1", "localhost").call("web_fetch", url=site.url("/a"))
    assert (found["url"], found["text"]) == (site.url("/c", "localhost"), "arrived")


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("http://evil.net/", "evil.net is not an allowed host"),
        ("//evil.net/", "evil.net is not an allowed host"),
        ("http://inner.example/", "127.0.0.1, which is not a public address"),
        ("file:///etc/passwd", "is not a web address"),
        ("http://a:b@127.0.0.1/", "a user name or a password"),
        ("/a", "leads through more than 10 redirects"),
    ],
)
async def test_a_redirect_leads_nowhere_else(site: Site, location: str, problem: str) -> None:
    site.add("/a", b"", f"Location: {location}", status="302 Found")
    assert problem in await Web("127.0.0.1", "*.example").problem(site.url("/a"))
    assert all(request.startswith("GET /a ") for request in site.requests)


async def test_no_cookie_is_sent_to_anybody(site: Site) -> None:
    cookie = "Set-Cookie: session=secret; Path=/"
    site.add("/a", b"", cookie, f"Location: {site.url('/b', 'other.corp')}", status="302 Found")
    site.add("/b", b"arrived", PLAIN)
    await Web("127.0.0.1", "other.corp").fetch(site.url("/a"))
    assert "secret" not in "".join(site.requests)


async def test_of_a_large_page_only_the_allowed_part_is_read(site: Site) -> None:
    site.add("/large", b"x" * 50_000_000, PLAIN)
    found = await Web("127.0.0.1", max_bytes=5000).call("web_fetch", url=site.url("/large"))
    assert found["text"] == "x" * 5000
    assert found["incomplete"] == "only the first 5000 bytes of the page were read"


async def test_of_a_large_page_in_html_only_so_much_is_turned_into_text(site: Site) -> None:
    site.add("/large", b"<p>first<!--" + b" " * 4_000_000 + b"--><p>last", HTML)
    found = await Web("127.0.0.1", max_bytes=50_000_000).fetch(site.url("/large"))
    assert found["text"] == "first"
    assert found["incomplete"] == "only the first 4000000 bytes of the page were read"


async def test_of_a_large_text_no_more_is_decoded_than_anybody_can_ask_for(site: Site) -> None:
    site.add("/large", b"x" * 8_000_001, PLAIN)
    found = await Web("127.0.0.1", max_bytes=50_000_000).fetch(site.url("/large"), maxCharacters=3)
    assert found["text"] == "xxx"
    assert found["incomplete"] == (
        "only the first 8000000 bytes of the page were read; "
        "the text has 8000000 characters; set maxCharacters to see more of it"
    )


async def test_a_page_that_is_packed_is_unpacked_only_as_far_as_is_allowed(site: Site) -> None:
    bomb = gzip.compress(b"x" * 50_000_000)
    site.add("/bomb", bomb, PLAIN, "Content-Encoding: gzip")
    site.add("/fine", gzip.compress(b"fine"), PLAIN, "Content-Encoding: gzip")
    web = Web("127.0.0.1", max_bytes=5000)
    assert (await web.call("web_fetch", url=site.url("/bomb")))["text"] == "x" * 5000
    assert (await web.call("web_fetch", url=site.url("/fine")))["text"] == "fine"


@pytest.mark.parametrize(
    "body",
    [
        # The start of gzip, and pieces that stand for nothing.
        pytest.param(b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + b"\0\0\0\xff\xff" * 200_000, id="empty"),
        pytest.param(gzip.compress(b"") + b"\0" * 1_000_000, id="after its end"),
    ],
)
async def test_of_what_stands_for_nothing_no_more_is_read_either(site: Site, body: bytes) -> None:
    site.add("/empty", body, PLAIN, "Content-Encoding: gzip")
    # The server never closes, so that this ends only by what was read.
    site.stays_open = True
    result = await Web("127.0.0.1").fetch(site.url("/empty"))
    assert result["text"] == ""
    assert result["incomplete"] == "only the first 0 bytes of the page were read"


async def test_a_page_in_several_packed_parts_is_read_whole(site: Site) -> None:
    body = gzip.compress(b"hello ") + gzip.compress(b"world") + b"\0" * 10
    site.add("/parts", body, PLAIN, "Content-Encoding: gzip")
    assert (await Web("127.0.0.1").fetch(site.url("/parts")))["text"] == "hello world"


async def test_of_a_long_text_as_much_is_told_as_was_asked_for(site: Site) -> None:
    site.add("/long", b"abcdefgh", PLAIN)
    found = await Web("127.0.0.1").call("web_fetch", url=site.url("/long"), maxCharacters=3)
    assert found["text"] == "abc"
    assert found["incomplete"] == "the text has 8 characters; set maxCharacters to see more of it"


@pytest.mark.parametrize(
    ("body", "headers", "problem"),
    [
        (b"\x89PNG", ["Content-Type: image/png"], "is image/png, not text"),
        (b"\x7fELF\0", [], "is binary data, not text"),
        (b"x", [PLAIN, "Content-Encoding: br"], "has the unsupported encoding 'br'"),
        (b"no gzip", [PLAIN, "Content-Encoding: gzip"], "cannot be read: Error -3"),
        (
            gzip.compress(b"x", mtime=0)[:-9],
            [PLAIN, "Content-Encoding: gzip"],
            "the compressed page is incomplete",
        ),
        (b"x", [PLAIN, "Content-Length: 100"], "cannot be read: peer closed connection"),
    ],
)
async def test_what_is_no_text_or_broken_is_named(
    site: Site, body: bytes, headers: list[str], problem: str
) -> None:
    site.add("/odd", body, *headers)
    assert problem in await Web("127.0.0.1").problem(site.url("/odd"))


async def test_what_is_no_http_gives_no_answer(site: Site) -> None:
    site.pages["/odd"] = b"SSH-2.0-OpenSSH\r\n\r\n"
    assert "sent no valid response" in await Web("127.0.0.1").problem(site.url("/odd"))


async def test_a_host_where_nobody_listens_cannot_be_reached(site: Site) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    await listener.aclose()
    assert "127.0.0.1 cannot be reached" in await Web("127.0.0.1").problem(
        f"http://127.0.0.1:{port}/"
    )


async def test_of_several_addresses_one_that_answers_is_enough(site: Site) -> None:
    site.add("/", b"hello", PLAIN)
    web = Web("wiki.corp")
    # Nobody listens at the first: it is loopback as well.
    web.addresses = ["127.0.0.2", "127.0.0.1"]
    found = await web.call("web_fetch", url=site.url("/", "wiki.corp"))
    assert found["text"] == "hello"


async def test_a_server_that_never_answers_is_given_up(site: Site) -> None:
    problem = await Web("127.0.0.1", timeout_seconds=0.1).problem(site.url("/never"))
    assert problem == "the page took longer than 0.1 s"


async def test_a_fetch_that_is_aborted_ends(site: Site) -> None:
    web = Web("127.0.0.1")

    async def fetch() -> None:
        with web.abort.signal.cancelling():
            await web.fetch(site.url("/never"))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fetch)
            await site.stall.wait()
            web.abort.abort("enough")
        await site.was_left.wait()


async def test_what_a_server_sends_is_read_where_nobody_else_waits(site: Site) -> None:
    site.add("/page", b"hi", PLAIN)
    web = Web("127.0.0.1")
    await web.fetch(site.url("/page"))
    assert web.loops
    assert asyncio.get_running_loop() not in web.loops


async def test_a_proxy_of_the_environment_is_not_asked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    site.add("/", b"direct", PLAIN)
    found = await Web("127.0.0.1").call("web_fetch", url=site.url("/"))
    assert found["text"] == "direct"


async def test_a_certificate_has_to_be_of_the_host_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "site.pem"
    _make_certificate("secure.corp", file)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(file)
    trusting = ssl.create_default_context(cafile=file)
    monkeypatch.setattr("nacre.tools.core.web_fetcher.tls_context", lambda: trusting)
    async with loopback_site(server) as site:
        site.add("/", b"secret", PLAIN)
        web = Web("secure.corp", "other.corp")
        found = await web.call("web_fetch", url=f"https://secure.corp:{site.port}/")
        assert found["text"] == "secret"
        assert "Hostname mismatch" in await web.problem(f"https://other.corp:{site.port}/")


def _make_certificate(host: str, file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


@pytest.fixture
def threads() -> anyio.CapacityLimiter:
    return anyio.CapacityLimiter(1)


async def test_what_it_returns_and_raises_comes_back(threads: anyio.CapacityLimiter) -> None:
    async def thread() -> int:
        return threading.get_ident()

    async def fault() -> None:
        raise LookupError("not there")

    assert await run_in_own_loop(thread, threads=threads) != threading.get_ident()
    with pytest.raises(LookupError, match="not there"):
        await run_in_own_loop(fault, threads=threads)


async def test_it_is_cancelled_with_whoever_waits_for_it(threads: anyio.CapacityLimiter) -> None:
    is_running, was_cancelled = threading.Event(), threading.Event()

    async def endless() -> None:
        is_running.set()
        try:
            await anyio.sleep_forever()
        finally:
            was_cancelled.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: run_in_own_loop(endless, threads=threads))
            await anyio.to_thread.run_sync(is_running.wait)
            tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(was_cancelled.wait)
        # And its thread is free again.
        await run_in_own_loop(anyio.lowlevel.checkpoint, threads=threads)
