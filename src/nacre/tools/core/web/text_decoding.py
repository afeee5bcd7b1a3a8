"""Bytes of a web page as text: which types are text, and in which encoding they are."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Final

_TEXT_TYPE = re.compile(
    r"text/.+|.+[+/](json|xml)|application/(javascript|ecmascript|x-javascript|x-ndjson|yaml|x-yaml"
    r"|toml|graphql|sql|x-sh|rtf|x-www-form-urlencoded|json-seq|jsonl|x-jsonlines)"
)
# Few: Python has encodings that take very long, or that are none of text.
_ENCODING = re.compile(
    r"utf-?8|utf-?16(le|be)?|us-ascii|ascii|latin-?1|iso-?8859-\d{1,2}|windows-\d{3,4}|cp\d{3,4}"
    r"|koi8-[ru]|mac-?roman|shift[_-]?jis|euc-(jp|kr)|iso-2022-jp|gb2312|gbk|gb18030|big5"
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.-]{1,40})", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.-]{1,40})", re.IGNORECASE)
_LOOK_BYTES: Final = 1_024
_WIDE_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ContentType:
    """What a server says about a page."""

    media_type: str
    """In small letters; empty if it says nothing."""
    charset: str

    @classmethod
    def parse(cls, header: str) -> ContentType:
        media_type, _, rest = header[:500].partition(";")
        charset = _CHARSET.search(rest)
        return cls(
            media_type=media_type.strip().lower(),
            charset=charset.group(1).lower() if charset else "",
        )

    @property
    def is_text(self) -> bool:
        return not self.media_type or _TEXT_TYPE.fullmatch(self.media_type) is not None

    @property
    def is_html(self) -> bool:
        return self.media_type in ("text/html", "application/xhtml+xml")

    def is_contradicted_by(self, data: bytes) -> bool:
        """Whether there is no such text in the data."""
        is_wide = self.charset.startswith("utf") and "16" in self.charset
        return not is_wide and not data.startswith(_WIDE_MARKS) and b"\0" in data[:_LOOK_BYTES]


def decode_text(data: bytes, content_type: ContentType) -> str:
    """The text; what does not fit the encoding becomes U+FFFD."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    charset = content_type.charset
    if not charset and content_type.is_html:
        named = _META_CHARSET.search(data[:_LOOK_BYTES])
        charset = named.group(1).decode("ascii", errors="replace").lower() if named else ""
    return data.decode(_codec(charset), errors="replace")


def _codec(charset: str) -> str:
    if charset in ("iso-8859-1", "iso8859-1", "latin1", "latin-1", "us-ascii", "ascii"):
        # What browsers make of these names: a page that says so often means more.
        return "cp1252"
    if _ENCODING.fullmatch(charset):
        try:
            return codecs.lookup(charset).name
        except LookupError:
            pass
    return "utf-8"
