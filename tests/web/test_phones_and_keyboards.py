"""On a phone everything fits and can be touched; with a keyboard everything can be reached."""

import re
from typing import Any

from playwright.async_api import Browser, Page, StorageState, expect

from nacre.testing import Call, Say
from tests.e2e.gateways import Gateway, Home
from tests.web.pages import App, nested_call, open_app, program

_PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
# Smaller letters make a phone zoom in; smaller targets are hard to touch (links in texts excepted).
_SMALL = """
() => {
  const isShown = (it) => it.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const name = (it) => `${it.tagName} ${it.className} ${it.textContent.slice(0, 30)}`;
  const inputs = "input:not([type=checkbox], [type=file]), textarea, select";
  const fields = document.querySelectorAll(inputs);
  const targets = document.querySelectorAll("button, a.button, .session-row > a, .view-links a");
  return [
    ...[...fields].filter(isShown).filter((it) => parseFloat(getComputedStyle(it).fontSize) < 16),
    ...[...targets].filter(isShown).filter((it) => it.getBoundingClientRect().height < 43.5),
  ].map(name);
}
"""
_OVERFLOW = "() => document.documentElement.scrollWidth - innerWidth"
PROGRAM = "await tools.kit_add({ a: 1, b: 2 }); return tools.kit_pay({ amount: 1 })"


async def test_on_a_phone_each_view_fits_and_its_fields_and_buttons_are_large_enough(
    browser: Browser, gateway: Gateway, shared_home: Home, signed_in: StorageState
) -> None:
    marker = shared_home.model.script(Call("exec", {"code": PROGRAM}), Say("never said"))
    run = await gateway.start(f"pay {marker}", title="A session with a rather long title")
    await gateway.event(run, "approval.requested")
    session = (await gateway.get(f"/api/runs/{run}"))["sessionId"]
    paths = {
        "/": "What should the agent do?",
        f"/sessions/{session}": "money is about to move",
        f"/runs/{run}": "Model call 1",
        "/catalog": "kit_add",
        "/catalog?tool=openclaw:kit:kit_add": "Declaration for programs",
        "/playground": "Nothing has run yet",
        "/operate": "Workers of the sandbox",
        "/operate?tab=cells": "kit_pay",
        "/operate?tab=approvals": "money is about to move",
        "/operate?tab=logs": "Follow",
        "/settings": "providers",
        "/settings?tab=text": "File",
    }
    found: dict[str, object] = {}
    async with open_app(browser, gateway.url, storage_state=signed_in, **_PHONE) as app:
        for path, text in paths.items():
            page = await app.open(path)
            await expect(page.get_by_text(text).first).to_be_visible()
            problems = [await page.evaluate(_OVERFLOW), *await page.evaluate(_SMALL)]
            if problems != [0]:
                found[path] = problems
        # The side bar covers the page, and closes when a session is chosen.
        page = await app.open("/catalog")
        await page.get_by_role("button", name="Menu").click()
        link = page.get_by_role("navigation").get_by_role("link", name="A session with a rather")
        await expect(link).to_be_in_viewport()
        problems = await page.evaluate(_SMALL)
        if problems:
            found["side bar"] = problems
        await link.click()
        await expect(page.get_by_role("heading", name="A session with")).to_be_visible()
        await expect(link).not_to_be_in_viewport()
        app.check()
    assert found == {}


async def test_a_turn_is_started_inspected_and_stopped_with_the_keyboard_alone(
    app: App, shared_home: Home
) -> None:
    code = """await tools.kit_add({ a: 1, b: 2 });
await tools.kit_add({ a: 3, b: 4 });
await tools.kit_hold({ note: 'n' })"""
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("never said"))
    page = await app.open("/")
    # The message box has the focus. Shift+Enter adds a line.
    await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    await page.keyboard.type(f"first line {marker}")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("second line")
    await page.keyboard.press("Enter")
    held = await shared_home.outside.call()
    await expect(page.get_by_role("log")).to_contain_text("second line")
    await expect(page.get_by_role("textbox", name="Message")).to_be_focused()

    calls = page.get_by_role("treeitem")
    await expect(calls).to_have_count(3)
    await _tab_to(page, '[role="treeitem"]')
    for key, row in (("j", 1), ("j", 2), ("k", 1), ("Home", 0), ("End", 2), ("ArrowUp", 1)):
        await page.keyboard.press(key)
        await expect(calls.nth(row)).to_be_focused()
    await page.keyboard.press("ArrowRight")
    await expect(calls.nth(1)).to_contain_text('"a": 3')
    await page.keyboard.press("ArrowLeft")
    await expect(calls.nth(1)).to_have_attribute("aria-expanded", "false")
    await page.keyboard.press("Escape")
    await held.gone()
    await expect(page.get_by_text(re.compile("^Stopped"))).to_be_visible()
    await expect(program(page)).to_have_accessible_name("Program, aborted")
    await expect(nested_call(page, "kit_hold")).to_have_accessible_name(re.compile("aborted"))


async def _tab_to(page: Page, selector: str) -> None:
    """Press Shift+Tab until such an element has the focus."""
    for _ in range(30):
        await page.keyboard.press("Shift+Tab")
        if await page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"the keyboard does not reach {selector}")


async def test_menus_and_dialogs_take_the_focus_and_give_it_back(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    marker = shared_home.model.script(Say("hello"))
    run = await gateway.start(f"hi {marker}", title="To be renamed")
    await gateway.events(run)
    page = await app.open(f"/sessions/{(await gateway.get(f'/api/runs/{run}'))['sessionId']}")
    menu = page.get_by_role("main").get_by_role("button", name="Actions for To be renamed")
    await menu.press("Enter")
    await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("menuitem", name="Fork")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(menu).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Title", exact=True)).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(menu).to_be_focused()
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    await page.keyboard.type("operate")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("tab", name="Health")).to_be_visible()
    await page.get_by_role("tab", name="Health").focus()
    await page.keyboard.press("ArrowRight")
    await expect(page.get_by_role("tab", name="Cells")).to_be_focused()
    await _send_nothing(page)


async def _send_nothing(page: Page) -> None:
    """An empty message is not sent."""
    await page.goto(page.url.split("/app/")[0] + "/app/")
    await page.get_by_role("textbox", name="Message").press("Enter")
    await expect(page.get_by_text("What should the agent do?")).to_be_visible()
