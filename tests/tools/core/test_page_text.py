"""Pages as text: ordinary ones, broken ones, and such as were made to take long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.tools.core.page_text import PageText, page_text

URL = "https://example.org/docs/"


def text_of(source: str) -> str:
    return page_text(source, url=URL).text


def test_a_page_is_told_with_its_headings_lists_links_and_code() -> None:
    page = page_text(
        """<!DOCTYPE html><html><head><title> A &amp;
        page </title><style>p { color: red }</style></head><body>
        <script>if (a < b) alert("<p>no</p>")</script>
        <h2>First</h2><p>Some <b>bold</b>
        words&nbsp;&mdash; and <a class=x href='../b?c=1&amp;d=2'>a link</a>.</p>
        <ul><li>one<li>two</ul><!-- not <p>this</p> -->
        <pre><code>def f():
    return 1 &lt; 2
</code></pre>
        <table><tr><td>a<td>b</tr></table></body></html>""",
        url=URL,
    )
    assert page == PageText(
        title="A & page",
        text="## First\n\n"
        "Some bold words — and [a link](https://example.org/b?c=1&d=2).\n\n"
        "- one\n- two\n\n"
        "def f():\n    return 1 < 2\n\n"
        "| a | b",
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("a</>b<>c</ d", "a</>b<>c</ d"),
        ("<p title=it's>kept</p> <p>too</p>", "kept\n\ntoo"),
        ('<p title="a > b">kept</p>', "kept"),
        ('<p title="open>kept</p>', "kept"),
        ("a<!-- never closed", "a"),
        ("a<script>never closed", "a"),
        ("a<svg><text>no</text></svg>b<svg/>c<svg>d", "abcd"),
        ("a<b", "a"),
        ("<SCRIPT>x</SCRIPT>y<sTyLe>z</style>", "y"),
        ('<a href="#top">up</a> <a href="javascript:x()">run</a> <a>none</a>', "up run none"),
        ('<a href="/x"> <img src=y> </a>after', "after"),
        ("<a href=/x>a<pre>b</a></pre>c", "[a](https://example.org/x)\n\nb\n\nc"),
        ('<a href="http://[bad">text</a>', "text"),
        (
            "<a href=/x>one<a href=/y>two",
            "[one](https://example.org/x)[two](https://example.org/y)",
        ),
        ("&#x110000; &#0; &bogus; &#" + "9" * 10_000 + ";", "\ufffd \ufffd &bogus; \ufffd"),
        ("x\r\n<pre>a\r\n  b\r\n</pre>", "x\n\na\n  b"),
    ],
)
def test_broken_pages_are_read_as_browsers_do(source: str, text: str) -> None:
    assert text_of(source) == text


def test_a_title_is_not_longer_than_a_line() -> None:
    assert len(page_text(f"<title>{'x' * 5000}</title>", url=URL).title) == 300


EVIL = [
    "<a",
    "<a ",
    "<!--",
    "<!",
    "</",
    "<",
    "<a x=",
    '<a x="',
    "<a x='",
    "<a x=\"'",
    '<a x="y>" ',
    "<svg>",
    "<script",
    "<template>",
    "<title",
    "&#",
    "&",
    "&amp",
    " href href",
    "<a href=",
    "<pre>",
    "<li>",
    "</a>",
    "\n",
    " ",
    "]]>",
]


@pytest.mark.parametrize("piece", EVIL)
@pytest.mark.parametrize("end", ["", ">", '">'])
def test_a_page_that_was_made_for_it_takes_no_longer(piece: str, end: str) -> None:
    # Were any of them read in the square of its size, this would take minutes.
    text_of(piece * (400_000 // len(piece)) + end)


@given(st.lists(st.sampled_from([*EVIL, ">", '"', "'", "x", "</svg>", "</p>"]), max_size=40))
def test_any_page_has_a_text(pieces: list[str]) -> None:
    page_text("".join(pieces), url=URL)
