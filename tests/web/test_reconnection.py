"""A page goes on after a reload, in two tabs, and when the gateway is killed and started again."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Browser, StorageState, expect

from nacre.testing import Call, Say
from tests.e2e.gateways import CODE_MODE, TOKEN, Gateway, Home, open_home
from tests.web.pages import App, open_app, send

HOLD = "return tools.kit_hold({ note: 'n' })"


async def test_a_reload_in_the_middle_of_a_run_shows_the_same_and_goes_on(
    app: App, shared_home: Home
) -> None:
    code = "await tools.kit_add({ a: 1, b: 1 }); " + HOLD
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("all done"))
    page = await app.open("/")
    await send(page, f"hold {marker}")
    held = await shared_home.outside.call()
    running = page.get_by_role("treeitem", name="kit_hold, running")
    await expect(running).to_be_visible()
    await page.reload()
    await expect(running).to_be_visible()
    await expect(page.get_by_role("treeitem", name="kit_add, completed")).to_be_visible()
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await held.answer("ok")
    await expect(page.get_by_text("all done")).to_be_visible()
    await expect(page.get_by_role("treeitem")).to_have_count(2)


async def test_two_tabs_show_the_same_run_and_the_session_list_is_live(
    app: App, shared_home: Home
) -> None:
    marker = shared_home.model.script(Call("exec", {"code": HOLD}), Say("for both"))
    page = await app.open("/")
    other = await app.new_tab("/")
    await send(page, f"both tabs {marker}")
    held = await shared_home.outside.call()
    link = other.get_by_role("link", name=re.compile("^both tabs"))
    await expect(link.get_by_role("img")).to_have_accessible_name(re.compile("[Rr]un"))
    await link.click()
    await expect(other.get_by_role("treeitem", name="kit_hold, running")).to_be_visible()
    await held.answer("ok")
    for each in (page, other):
        await expect(each.get_by_text("for both")).to_be_visible()


async def test_switching_sessions_does_not_wait_for_a_run(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    quick = shared_home.model.script(Say("the other session"))
    done = await gateway.start(f"hi {quick}", title="Finished long ago")
    await gateway.events(done)
    marker = shared_home.model.script(Call("exec", {"code": HOLD}), Say("at last"))
    page = await app.open("/")
    await send(page, f"slow {marker}")
    held = await shared_home.outside.call()
    await page.get_by_role("link", name="Finished long ago").click()
    await expect(page.get_by_text("the other session")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("treeitem", name="kit_hold, running")).to_be_visible()
    await held.answer("ok")
    await expect(page.get_by_text("at last")).to_be_visible()


async def test_a_page_survives_a_gateway_that_is_killed_and_started_again(
    browser: Browser, tmp_path: Path
) -> None:
    async with open_home(tmp_path) as home:
        await home.configure(tools=CODE_MODE)
        marker = home.model.script(Call("exec", {"code": HOLD}), Say("never said"))
        again = home.model.script(Say("back again"))
        async with home.gateway() as gateway:
            port = str(urlsplit(gateway.url).port)
            async with open_app(browser, gateway.url) as app:
                page = app.page
                await page.goto(gateway.app_url)
                await send(page, f"hold {marker}")
                await home.outside.call()
                await expect(page.get_by_role("treeitem", name="kit_hold, running")).to_be_visible()
                await gateway.kill()
                await expect(page.get_by_text("No connection to the gateway")).to_be_visible()
                async with home.gateway("--port", port):
                    # By itself, without a new sign-in, and with the truth about the run.
                    await expect(page.get_by_text("Interrupted")).to_be_visible()
                    await send(page, f"again {again}")
                    await expect(page.get_by_text("back again")).to_be_visible()
                app.check()


async def test_a_page_that_nobody_sees_gives_up_its_connection_and_catches_up_later(
    browser: Browser, signed_in: StorageState, gateway: Gateway, shared_home: Home
) -> None:
    marker = shared_home.model.script(Say("the first"), Say("while you were away"))
    run = await gateway.finished(f"hi {marker}")
    async with open_app(browser, gateway.url, storage_state=signed_in) as app:
        page = app.page
        await page.clock.install()
        await app.open(f"/sessions/{run['sessionId']}")
        await expect(page.get_by_text("the first")).to_be_visible()
        streams: list[str] = []
        page.on("request", lambda it: streams.append(it.url) if "/api/events" in it.url else None)
        async with page.expect_event("requestfailed", lambda it: "/api/events" in it.url):
            await page.evaluate(_SET_VISIBILITY, "hidden")
            await page.clock.run_for(31_000)
        await gateway.finished("go on", sessionId=run["sessionId"])
        assert streams == []
        await page.evaluate(_SET_VISIBILITY, "visible")
        await page.clock.run_for(1000)
        await expect(page.get_by_text("while you were away")).to_be_visible()
        assert len(streams) == 1
        app.check()


_SET_VISIBILITY = """(state) => {
  Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def test_a_view_that_cannot_be_loaded_says_so_and_a_reload_helps(app: App) -> None:
    page = await app.open("/")
    await expect(page.get_by_role("link", name="Catalog")).to_be_visible()
    await page.route("**/app/assets/catalog-*.js", lambda route: route.abort())
    await page.get_by_role("link", name="Catalog").click()
    await expect(page.get_by_role("alert")).to_contain_text("could not be loaded")
    await page.unroute("**/app/assets/catalog-*.js")
    await page.get_by_role("button", name="Reload the page").click()
    await expect(page.get_by_label("Search tools")).to_be_visible()


async def test_a_cookie_that_has_expired_asks_for_the_token_and_leads_back(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    marker = shared_home.model.script(Say("the first"), Say("after the sign-in"))
    run = await gateway.finished(f"hi {marker}")
    page = await app.open(f"/sessions/{run['sessionId']}")
    await expect(page.get_by_text("the first")).to_be_visible()
    await page.get_by_role("textbox", name="Message").fill("not lost")
    await app.context.clear_cookies()
    await page.get_by_role("textbox", name="Message").press("Enter")
    await page.get_by_label("Token or link").fill(TOKEN)
    await page.get_by_role("button", name="Sign in").click()
    # The page that was open, with the message that was not sent.
    await expect(page.get_by_text("the first")).to_be_visible()
    await page.get_by_role("button", name="Send again").click()
    await expect(page.get_by_text("after the sign-in")).to_be_visible()
