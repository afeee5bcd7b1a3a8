"""The list of sessions: search, rename, fork, export, delete."""

import re

from playwright.async_api import Page, expect

from nacre.testing import Call, Say
from tests.e2e.gateways import Gateway, Home
from tests.web.pages import App, send


async def _start(gateway: Gateway, home: Home, title: str, *answers: str) -> str:
    marker = home.model.script(*(Say(answer) for answer in answers))
    run = await gateway.start(f"hello {marker}", title=title)
    await gateway.events(run)
    return (await gateway.get(f"/api/runs/{run}"))["sessionId"]


async def _choose(page: Page, title: str, action: str) -> None:
    await page.get_by_role("navigation").get_by_role("button", name=f"Actions for {title}").click()
    await page.get_by_role("menuitem", name=action).click()


async def test_a_session_is_found_renamed_and_deleted(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    session = await _start(gateway, shared_home, "Old name", "A rare nautilus was found.")
    page = await app.open("/")
    await page.get_by_label("Search sessions").fill("nautilus")
    hit = page.get_by_role("list", name="Search results").get_by_role("link")
    await expect(hit.locator("mark")).to_have_text("nautilus")
    await hit.click()
    # The list of hits has the text, too.
    conversation = page.get_by_role("log")
    await expect(conversation.get_by_text("A rare nautilus was found.")).to_be_visible()
    await page.get_by_label("Search sessions").fill("")

    other = await app.new_tab(f"/sessions/{session}")
    await _choose(page, "Old name", "Rename")
    await page.get_by_label("Title").fill("New name")
    await page.get_by_role("button", name="Rename", exact=True).click()
    for each in (page, other):
        await expect(each.get_by_role("heading", name="New name")).to_be_visible()

    await _choose(page, "New name", "Delete")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("link", name="New name")).to_have_count(0)
    await expect(
        other.get_by_role("navigation").get_by_role("link", name="New name")
    ).to_have_count(0)
    assert (await gateway.client.get(f"/api/sessions/{session}")).status_code == 404


async def test_a_session_is_forked_from_a_turn_and_exported(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    session = await _start(
        gateway, shared_home, "To be forked", "the first", "the second", "the third"
    )
    page = await app.open(f"/sessions/{session}")
    await expect(page.get_by_text("the first")).to_be_visible()
    await send(page, "go on")
    await expect(page.get_by_text("the second")).to_be_visible()
    await page.get_by_role("button", name="Fork the session here").first.click()
    await expect(page).not_to_have_url(re.compile(session))
    await expect(page.get_by_text("the first")).to_be_visible()
    await expect(page.get_by_text("the second")).to_have_count(0)

    await page.goto(f"{app.url}/app/sessions/{session}")
    await expect(page.get_by_text("the second")).to_be_visible()
    async with page.expect_download() as download:
        await (
            page.get_by_role("main").get_by_role("button", name="Actions for To be forked").click()
        )
        await page.get_by_role("menuitem", name="Export as Markdown").click()
    text = (await (await download.value).path()).read_text(encoding="utf-8")
    assert "the second" in text
    async with page.expect_download() as download:
        await (
            page.get_by_role("main").get_by_role("button", name="Actions for To be forked").click()
        )
        await page.get_by_role("menuitem", name="Export as JSON lines").click()
    text = (await (await download.value).path()).read_text(encoding="utf-8")
    assert text.count('"run.started"') == 2


async def test_a_session_with_a_run_is_stopped_and_deleted(app: App, shared_home: Home) -> None:
    code = "return tools.kit_hold({ note: 'n' })"
    marker = shared_home.model.script(Call("exec", {"code": code}))
    page = await app.open("/")
    await send(page, f"hold {marker}")
    held = await shared_home.outside.call()
    await page.get_by_role("main").get_by_role("button", name=re.compile("^Actions for")).click()
    await page.get_by_role("menuitem", name="Delete").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("it is stopped first")
    await dialog.get_by_role("button", name="Delete").click()
    await held.gone()
    await expect(page.get_by_text("What should the agent do?")).to_be_visible()
