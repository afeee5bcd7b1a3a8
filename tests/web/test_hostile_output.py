"""What a model writes never runs in the page, never loads anything, and never hides what it is."""

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Browser, Page, Request, expect

from nacre.testing import Call, Say, Stall
from tests.e2e.gateways import CODE_MODE, Gateway, Home, open_home
from tests.web.pages import PATIENCE_MS, App, send

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


async def test_texts_that_are_nested_too_deeply_are_shown_as_they_are(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    texts = (
        f"{'>' * 8000} deep",
        f"{'- ' * 4000}deep",
        f"{'> - ' * 2000}deep",
        "_a" * 7000 + " deep",
    )
    for text in texts:
        run = await gateway.finished(f"go {shared_home.model.script(Say(text))}")
        page = await app.open(f"/sessions/{run['sessionId']}")
        await expect(page.get_by_role("log")).to_contain_text(text[-9:])
        await expect(page.get_by_text("This part cannot be shown")).to_have_count(0)


HIDDEN = ("\u202e", "\x1b", "\u200b", "\U000e0041")


@pytest.fixture(scope="module")
async def shared_home(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> AsyncGenerator[Home]:
    """With a plugin whose texts are hostile."""
    async with open_home(tmp_path_factory.mktemp("hostile")) as opened:
        await opened.configure(tools=CODE_MODE)
        file = anyio.Path(opened.folder) / "nacre.json5"
        document = json.loads(await file.read_text(encoding="utf-8"))
        document["plugins"]["paths"].append(str(Path(__file__).parent / "plugins" / "hostile"))
        await file.write_text(json.dumps(document), encoding="utf-8")
        yield opened


async def _check_page(page: Page) -> None:
    """No script has run, and nothing is hidden."""
    assert await page.evaluate("() => window.pwned") is None
    assert await page.locator("main :is(script, iframe, [onerror], img[src=x])").count() == 0
    text = await page.evaluate(
        "() => document.body.innerText + document.title + "
        "[...document.querySelectorAll('[title], [aria-label]')].map((it) => it.title).join()"
    )
    assert [each for each in HIDDEN if each in text] == []


async def test_names_inputs_results_and_errors_of_hostile_tools_do_nothing_in_any_view(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    code = """console.log("\\u202e \\u001b[31mred \\u200b");
const shouted = await tools.hostile_shout({ note: "\\u202eevil\\u200b\\u001b[1m" });
try { await tools.hostile_shout({ fails: true }); } catch (error) { console.log(error.message); }
// The record hides what looks like a secret.
const note = "-----BEGIN A PRIVATE KEY-----\\nrm -rf ~ \\u202e\\u3164";
await tools.hostile_shout({ asks: true, note });
throw new Error(shouted.text);"""
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("\u202edone \x1b[31mred"))
    title = "\u202eeltit \x1b[31m<b onclick='pwned = 23'>b</b>"
    run = await gateway.start(f"shout {marker}", title=title)
    await gateway.event(run, "approval.requested")
    session = (await gateway.get(f"/api/runs/{run}"))["sessionId"]
    page = await app.open(f"/sessions/{session}")
    card = page.get_by_role("group", name=re.compile("^Approval of hostile_shout"))
    await expect(card).to_contain_text("⟨U+202E⟩gnp.exe")
    await expect(card).to_contain_text(r"rm -rf ~ \u202e\u3164")
    await _check_page(page)
    await page.get_by_role("button", name="1 approval waiting").click()
    tray = page.get_by_role("dialog", name="Approvals")
    await expect(tray).to_contain_text("⟨U+202E⟩eltit")
    await _check_page(page)
    await tray.get_by_role("button", name="Allow once").click()
    await page.keyboard.press("Escape")
    await expect(page.get_by_text(re.compile("done"))).to_be_visible()
    for row in await page.get_by_role("treeitem").all():
        await row.press("Enter")
    await expect(page.get_by_role("group", name="Error")).to_contain_text("⟨U+202E⟩gnp.exe")
    await _check_page(page)

    for path, ready in {
        f"/runs/{run}": "hostile_shout",
        "/catalog?tool=openclaw:hostile:hostile_shout": "Declaration for programs",
        "/operate?tab=plugins": "hostile",
        "/operate?tab=approvals": "hostile_shout",
        "/operate?tab=logs": "Follow",
    }.items():
        await app.open(path)
        await expect(page.get_by_text(ready).first).to_be_visible()
        await _check_page(page)


async def test_a_huge_line_that_arrives_in_pieces_does_not_stop_the_page(
    app: App, shared_home: Home
) -> None:
    may_end = anyio.Event()
    piece = "pearl **and** [shell](https://pearls.example/) " * 400
    marker = shared_home.model.script(
        [*(Say(piece) for _ in range(40)), Stall(may_end), Say(" the end")]
    )
    page = await app.open("/")
    await send(page, f"much {marker}")
    await expect(page.get_by_role("log")).to_contain_text("pearl")
    box = page.get_by_role("textbox", name="Message")
    await box.fill("still there")
    await expect(box).to_have_value("still there")
    may_end.set()
    # Seconds of work for the browser, which a busy machine makes longer.
    copy = page.get_by_role("button", name="Copy the answer")
    await expect(copy).to_be_visible(timeout=4 * PATIENCE_MS)
    assert await page.evaluate("() => document.querySelectorAll('*').length") < 30_000
