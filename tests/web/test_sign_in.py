"""Sign-in of a browser: the printed link, the token, sign-out, and a token that is replaced."""

from pathlib import Path

import httpx2
from playwright.async_api import Browser, expect

from tests.e2e.gateways import CODE_MODE, TOKEN, Gateway, open_home
from tests.web.pages import App, open_app


async def test_the_printed_link_signs_in_once(browser: Browser, gateway: Gateway) -> None:
    link = (await gateway.post("/api/web/codes", {}))["url"]
    async with open_app(browser, gateway.url) as app:
        await app.page.goto(link)
        await expect(app.page.get_by_role("link", name="Catalog")).to_be_visible()
        # The code must not stay in the address, from which it could be copied or logged.
        assert "code=" not in app.page.url
        await app.page.reload()
        await expect(app.page.get_by_role("link", name="Catalog")).to_be_visible()
        cookies = await app.context.cookies()
        kinds = [(it.get("httpOnly"), it.get("sameSite")) for it in cookies]
        assert kinds == [(True, "Strict")]
        assert await app.page.evaluate("() => document.cookie") == ""
        app.check()
    async with open_app(browser, gateway.url) as other:
        await other.page.goto(link)
        await expect(other.page.get_by_role("alert")).to_contain_text("nacre link")
        await expect(other.page.get_by_role("link", name="Catalog")).to_have_count(0)


async def test_the_token_signs_in_and_sign_out_ends_it(browser: Browser, gateway: Gateway) -> None:
    async with open_app(browser, gateway.url) as app:
        page = await app.open("/operate")
        field = page.get_by_label("Token or link")
        await field.fill("a-wrong-token-0123456789")
        await field.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("wrong")
        await field.fill(TOKEN)
        await field.press("Enter")
        # The page that was asked for, not the first one.
        await expect(page.get_by_role("heading", name="Operate")).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token or link")).to_be_visible()
        await page.reload()
        await expect(page.get_by_label("Token or link")).to_be_visible()
        app.check()


async def test_a_cookie_changes_nothing_for_pages_of_other_origins(
    app: App, gateway: Gateway
) -> None:
    cookies = {it.get("name", ""): it.get("value", "") for it in await app.context.cookies()}
    async with httpx2.AsyncClient(base_url=gateway.url, cookies=cookies) as client:
        own = await client.post(
            "/api/runs", json={"text": "/help"}, headers={"origin": gateway.url}
        )
        foreign = await client.post(
            "/api/runs", json={"text": "/help"}, headers={"origin": "http://evil.example"}
        )
        unknown = await client.post("/api/runs", json={"text": "/help"})
    assert [own.status_code, foreign.status_code, unknown.status_code] == [202, 403, 403]


async def test_a_new_token_ends_the_sessions_of_the_old_one(
    browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("the-first-token-0123456789\n", encoding="utf-8")
    async with open_home(tmp_path) as home:
        await home.configure(tools=CODE_MODE, gateway={"port": 0, "auth": {"tokenFile": str(file)}})
        async with home.gateway() as gateway, open_app(browser, gateway.url) as app:
            page = app.page
            await page.goto(gateway.app_url)
            await expect(page.get_by_role("link", name="Catalog")).to_be_visible()
            file.write_text("the-second-token-0123456789\n", encoding="utf-8")
            await expect(page.get_by_label("Token or link")).to_be_visible()
            await page.get_by_label("Token or link").fill("the-second-token-0123456789")
            await page.get_by_role("button", name="Sign in").click()
            await expect(page.get_by_role("link", name="Catalog")).to_be_visible()
