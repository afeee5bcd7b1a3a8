"""What a model writes never runs in the page, never loads anything, and never hides what it is."""

import re

from playwright.async_api import Request, expect

from nacre.testing import Call, Say
from tests.e2e.gateways import Gateway, Home
from tests.web.pages import App

HOSTILE = """<script>window.pwned = 1</script>
<img src=x onerror="window.pwned = 2"><svg onload="window.pwned = 3"></svg>
<iframe srcdoc="<script>parent.pwned = 4</script>"></iframe>
<a href="javascript:window.pwned=5" id="raw">raw link</a>
<form action="http://evil.example/"><button>send it</button></form>
<style>body { display: none }</style><base href="http://evil.example/">
[a link](javascript:window.pwned=6) [another](data:text/html,<script>window.pwned=7</script>)
[a page](https://pearls.example/x) ![pixel](http://evil.example/pixel.png)
<math><mtext><mglyph><style><img src=x onerror="window.pwned=8"></style></mglyph></mtext></math>
\u202etxt.exe\u202c and \x1b[31mred\x1b[0m

```html
<script>window.pwned = 9</script>
```

The end of the answer."""
_MAX_ROWS = 1500


async def test_scripts_handlers_and_links_of_an_answer_do_nothing(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    code = f"console.log({HOSTILE!r}.slice(0, 400)); return `<img src=x onerror='pwned = 10'>`"
    marker = shared_home.model.script(Call("exec", {"code": code}), Say(HOSTILE))
    run = await gateway.start(f"<b onclick='pwned = 11'>hi</b> {marker}", title="<i>title</i>")
    await gateway.events(run)
    session = (await gateway.get(f"/api/runs/{run}"))["sessionId"]
    foreign: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith((gateway.url, "data:", "blob:")):
            foreign.append(request.url)

    app.page.on("request", note)
    page = await app.open(f"/sessions/{session}")
    await expect(page.get_by_text("The end of the answer.", exact=True)).to_be_visible()
    await page.get_by_role("button", name=re.compile("^Result")).click()
    for link in await page.get_by_role("log").get_by_role("link").all():
        address = await link.get_attribute("href") or ""
        assert re.match(r"(https?://|/app/|/api/)", address), address
        if address.startswith("https://pearls"):
            assert await link.get_attribute("rel") == "noopener noreferrer"
            assert await link.get_attribute("target") == "_blank"
    forbidden = "script, iframe, form[action], svg[onload], base, style, [onerror], [onclick]"
    assert await page.locator(f"[role=log] :is({forbidden})").count() == 0
    assert await page.evaluate("() => window.pwned") is None
    await expect(page.locator("code", has_text="window.pwned = 9").last).to_be_visible()
    await expect(page.get_by_role("navigation")).to_contain_text("<i>title</i>")
    text = await page.evaluate("() => document.body.innerText")
    assert ("\x1b" in text, "\u202e" in await page.locator(".code").first.inner_text()) == (
        False,
        False,
    )
    assert foreign == []


async def test_a_huge_table_is_shown_and_the_page_still_answers(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    lines = ["| a | b | c |", "|---|---|---|"]
    lines += [f"| {n} | {'x' * 40} | {n * n} |" for n in range(_MAX_ROWS)]
    marker = shared_home.model.script(Say("\n".join(lines) + "\n\nThat was the table."))
    run = await gateway.start(f"a table {marker}")
    await gateway.events(run)
    session = (await gateway.get(f"/api/runs/{run}"))["sessionId"]
    page = await app.open(f"/sessions/{session}")
    await expect(page.get_by_role("table")).to_be_visible()
    box = page.get_by_role("textbox", name="Message")
    await box.fill("still there")
    await expect(box).to_have_value("still there")
    width = await page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    assert width <= 0
