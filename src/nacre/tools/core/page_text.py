"""Decodes web pages and converts HTML to text.

Goes through a page once, from its beginning to its end. `html.parser` goes back in pages that were
made for it, and then takes time that grows with the square of their size.
"""

from __future__ import annotations

import codecs
import html
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin, urlsplit

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


_NAME = re.compile(r"[a-zA-Z][^\s/>]*+")
# Possessive, so that it never goes back. A quote that nothing closes is taken as any other sign.
_REST_OF_TAG = re.compile(r"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+>""")
_HREF = re.compile(r"""\shref\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++))""", re.IGNORECASE)
_BLANKS = re.compile(r"[^\S\n]++")
_EMPTY_LINES = re.compile(r"\n{3,}+")
_LONG_NUMBER = re.compile(r"&#[xX]?[0-9a-fA-F]{8,}+;?")
_MAX_LINK_CHARACTERS: Final = 2_000
_MAX_TITLE_CHARACTERS: Final = 300

# Up to their end tag there is no markup in them, and nothing to read.
_CODE: Final = frozenset(("script", "style", "iframe", "noembed", "noframes"))
# Not to be read either, where they have an end.
_UNREAD: Final = frozenset(("svg", "template"))
_PARAGRAPH = re.compile(
    r"address|article|aside|blockquote|body|d[dlt]|details|fieldset|fig(caption|ure)|footer|form"
    r"|h[1-6]|header|hr|main|nav|[ou]l|p|section|summary|table"
)
_LINE = re.compile(r"br|caption|div|legend|li|option|tr")
_MARKS: Final = {
    **{f"h{level}": f"{'#' * level} " for level in range(1, 7)},
    "li": "- ",
    "td": " | ",
    "th": " | ",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PageText:
    """What a page says."""

    title: str
    text: str


def page_text(source: str, *, url: str) -> PageText:
    """The text of a page; links are told as Markdown, with whole addresses."""
    reader = _Reader(source, url)
    reader.read()
    return PageText(title=reader.title, text=reader.text.render())


class _Blocks:
    """Text in the making: what flows, and what stays as it is, such as code."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._parts: list[str] = []
        self._link_start = 0
        self.is_verbatim = False

    def add(self, text: str) -> None:
        self._parts.append(text)

    def add_flowing(self, text: str) -> None:
        self.add(text if self.is_verbatim else text.replace("\n", " "))

    def open_link(self) -> None:
        self.add("[")
        self._link_start = len(self._parts)

    def close_link(self, target: str) -> None:
        """A link without a text, such as an image, is left out."""
        if "".join(self._parts[self._link_start :]).strip():
            self.add(f"]({target})")
        else:
            del self._parts[self._link_start - 1 :]

    def begin(self, *, is_verbatim: bool) -> None:
        """End the block, and begin one of that kind. No link goes on in it."""
        text = "".join(self._parts).replace("\r", "")
        self._blocks.append(text.strip("\n").rstrip() if self.is_verbatim else _reflow(text))
        self._parts = []
        self.is_verbatim = is_verbatim

    def render(self) -> str:
        self.begin(is_verbatim=False)
        return "\n\n".join(filter(None, self._blocks))


class _Reader:
    """Goes through a page, tag by tag."""

    def __init__(self, source: str, url: str) -> None:
        self._source = source
        self._url = url
        self._at = 0
        self.title = ""
        self.text = _Blocks()
        self._link = ""
        self._without_end: set[str] = set()

    def read(self) -> None:
        while self._at < len(self._source):
            opening = self._source.find("<", self._at)
            if opening < 0:
                opening = len(self._source)
            self.text.add_flowing(_unescape(self._source[self._at : opening]))
            self._at = opening
            self._read_markup()
        self._close_link()

    def _read_markup(self) -> None:
        ahead = self._source[self._at : self._at + 4]
        if ahead.startswith("<!--"):
            self._skip_past("-->", self._at + 4)
        elif ahead.startswith(("<!", "<?")):
            self._skip_past(">", self._at + 2)
        elif ahead.startswith("</"):
            self._read_tag(self._at + 2, is_end=True)
        elif ahead:
            self._read_tag(self._at + 1, is_end=False)

    def _skip_past(self, end: str, start: int) -> None:
        found = self._source.find(end, start)
        self._at = len(self._source) if found < 0 else found + len(end)

    def _read_tag(self, start: int, *, is_end: bool) -> None:
        name = _NAME.match(self._source, start)
        if name is None:
            # Not a tag: a sign that means "less than".
            self.text.add(self._source[self._at : start])
            self._at = start
            return
        rest = _REST_OF_TAG.match(self._source, name.end())
        self._at = rest.end() if rest else len(self._source)
        tag = name.group().lower()
        if rest and is_end:
            self._end_tag(tag)
        elif rest:
            self._start_tag(tag, rest.group())

    def _start_tag(self, tag: str, attributes: str) -> None:
        if tag in _CODE:
            self._text_until_end_of(tag)
        elif tag in _UNREAD and not attributes.endswith("/>"):
            self._skip_if_it_ends(tag)
        elif tag == "title":
            text = " ".join(_unescape(self._text_until_end_of(tag)).split())
            self.title = self.title or text[:_MAX_TITLE_CHARACTERS]
        elif tag == "a":
            self._close_link()
            self._open_link(attributes)
        elif tag == "pre":
            self._close_link()
            self.text.begin(is_verbatim=True)
        else:
            self._break_for(tag)
            self.text.add(_MARKS.get(tag, ""))

    def _end_tag(self, tag: str) -> None:
        if tag in ("a", "pre"):
            self._close_link()
        if tag == "pre":
            self.text.begin(is_verbatim=False)
        self._break_for(tag)

    def _text_until_end_of(self, tag: str) -> str:
        start, end = self._at, self._end_of(tag)
        self._at = len(self._source) if end is None else end
        return self._source[start : self._at]

    def _skip_if_it_ends(self, tag: str) -> None:
        if tag in self._without_end:
            return
        end = self._end_of(tag)
        if end is None:
            # Known from now on: a page full of them must not be searched for each.
            self._without_end.add(tag)
        else:
            self._at = end

    def _end_of(self, tag: str) -> int | None:
        end = re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE).search(self._source, self._at)
        return end.start() if end else None

    def _break_for(self, tag: str) -> None:
        if _PARAGRAPH.fullmatch(tag):
            self.text.add("\n\n")
        elif _LINE.fullmatch(tag):
            self.text.add("\n")

    def _open_link(self, attributes: str) -> None:
        href = _HREF.search(attributes)
        target = _unescape(next(filter(None, href.groups()), "")).strip() if href else ""
        if target and not target.startswith("#"):
            self._link = _web_address(self._url, target)
        if self._link:
            self.text.open_link()

    def _close_link(self) -> None:
        if self._link:
            self.text.close_link(self._link)
        self._link = ""


def _web_address(base: str, target: str) -> str:
    """The whole address of a link; empty for one that is none."""
    try:
        address = urljoin(base, target)
        is_web = urlsplit(address).scheme in ("http", "https")
    except ValueError:
        return ""
    return address if is_web and len(address) <= _MAX_LINK_CHARACTERS else ""


def _unescape(text: str) -> str:
    # Python refuses numbers of thousands of digits, and no character has so many.
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


def _reflow(text: str) -> str:
    lines = (line.strip(" ") for line in _BLANKS.sub(" ", text).split("\n"))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip()
