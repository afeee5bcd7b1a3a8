"""Decodes web pages and converts HTML to Markdown.

The pages are untrusted. `turbohtml` takes linear time for all pages of the tests; docs/decisions.md
compares it with other libraries.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    from turbohtml import Markdown

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


_MAX_LINK_CHARACTERS: Final = 2_000
# Of a page with more of them, the rest is plain text: each takes microseconds in Python.
_MAX_LINKS: Final = 20_000
_MAX_CELLS: Final = 50_000
_MAX_TITLE_CHARACTERS: Final = 300
_EMPTY_LINK = re.compile(r"\[\s*+\]\([^()\s]*+\)")
# Elements whose content is not text for a reader.
_HIDDEN: Final = "script, style, svg, template, iframe, noembed, noframes, title"


@dataclass(frozen=True, kw_only=True, slots=True)
class PageText:
    """The readable content of a page."""

    title: str
    text: str


def page_text(source: str, *, url: str) -> PageText:
    """Convert a page to Markdown, with absolute links."""
    import turbohtml

    document = turbohtml.parse(source)
    title = document.find("title")
    title_text = " ".join(title.text.split()) if title else ""
    document.remove(_HIDDEN)
    for index, link in enumerate(document.find_all("a")):
        href = link.attrs.get("href")
        is_kept = index < _MAX_LINKS
        if is_kept and isinstance(href, str) and (address := _web_address(url, href)):
            link.attrs["href"] = address
        else:
            link.attrs.pop("href", None)
    for cell in document.select("td, th")[:_MAX_CELLS]:
        cell.insert(0, turbohtml.Text("| "))
    text = document.to_markdown(_markdown_options()).replace("\N{NO-BREAK SPACE}", " ")
    return PageText(
        title=title_text[:_MAX_TITLE_CHARACTERS], text=_EMPTY_LINK.sub("", text).strip()
    )


@cache
def _markdown_options() -> Markdown:
    from turbohtml import Markdown

    # For a model, escapes and emphasis are tokens without content. The library writes HTML for a
    # table whose rows differ in length, so tables are lines of cells. It repeats the marks of all
    # enclosing quotes on each line, so quotes are plain text.
    return Markdown(
        inline=Markdown.Inline(ignore_emphasis=True),
        images=Markdown.Images(mode="ignore"),
        tables=Markdown.Tables(mode="strip"),
        escaping=Markdown.Escaping(mode="none", asterisks=False, underscores=False),
        strip=("blockquote",),
    )


def _web_address(base: str, target: str) -> str:
    """The absolute address of a link; empty if it does not lead to another web page."""
    target = target.strip()
    if not target or target.startswith("#"):
        return ""
    try:
        address = urljoin(base, target)
        is_web = urlsplit(address).scheme in ("http", "https")
    except ValueError:
        return ""
    return address if is_web and len(address) <= _MAX_LINK_CHARACTERS else ""
