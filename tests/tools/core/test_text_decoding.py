"""Content types and character encodings of fetched pages."""

import pytest

from nacre.tools.core.page_text import ContentType, decode_text


@pytest.mark.parametrize(
    ("header", "is_text"),
    [
        ("text/html; charset=utf-8", True),
        ("TEXT/Plain", True),
        ("application/json", True),
        ("application/problem+json", True),
        ("image/svg+xml", True),
        ("", True),
        ("image/png", False),
        ("application/octet-stream", False),
        ("application/pdf", False),
    ],
)
def test_text_is_known_by_its_type(header: str, is_text: bool) -> None:
    assert ContentType.parse(header).is_text is is_text


@pytest.mark.parametrize(
    ("header", "data", "text"),
    [
        ("text/plain", "☃".encode(), "☃"),
        ("text/plain; charset=utf-8", b"a\xff", "a\ufffd"),
        ("text/plain; charset=iso-8859-1", b"\x80\xe9", "€é"),
        ("text/plain; charset='windows-1251'", "привет".encode("cp1251"), "привет"),
        ("text/plain; charset=Shift_JIS", "日本".encode("shift_jis"), "日本"),
        ("text/plain; charset=utf-8", b"\xef\xbb\xbfa", "a"),
        ("text/plain", "wide".encode("utf-16"), "wide"),
        ("text/html", b'<meta charset="koi8-r">' + "да".encode("koi8-r"), None),
        ("text/plain; charset=punycode", b"abc-", "abc-"),
        ("text/plain; charset=zlib", b"abc", "abc"),
        ("text/plain; charset=cp9999", b"abc", "abc"),
        ("text/plain; charset=../../etc", b"abc", "abc"),
    ],
)
def test_text_is_in_the_encoding_that_is_named(header: str, data: bytes, text: str | None) -> None:
    found = decode_text(data, ContentType.parse(header))
    assert found == text or (text is None and found.endswith("да"))


@pytest.mark.parametrize(
    ("header", "data", "is_binary"),
    [
        ("text/plain", b"abc", False),
        ("", b"\x7fELF\0\0", True),
        ("text/plain", "abc".encode("utf-16"), False),
        ("text/plain; charset=utf-16le", "abc".encode("utf-16le"), False),
    ],
)
def test_what_is_called_text_and_is_none_is_noticed(
    header: str, data: bytes, is_binary: bool
) -> None:
    assert ContentType.parse(header).is_contradicted_by(data) is is_binary
