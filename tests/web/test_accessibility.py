"""Each view without a barrier that axe finds serious, in light and dark, on desktop and phone."""

from typing import Any, Literal

import pytest
from playwright.async_api import Browser, StorageState, expect

from nacre.testing import Call, Say
from tests.e2e.gateways import Gateway, Home
from tests.web.pages import App, find_barriers, open_app

_PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


async def _run_something(gateway: Gateway, home: Home) -> tuple[str, str]:
    """A run with a program, a nested call, a failed call and an open approval; and its session."""
    code = "await tools.kit_add({ a: 1, b: 2 }); return tools.kit_pay({ amount: 1 })"
    marker = home.model.script(Call("exec", {"code": code}), Say("never said"))
    run = await gateway.start(f"Look **here** {marker}", title="A session with an approval")
    await gateway.event(run, "approval.requested")
    return run, (await gateway.get(f"/api/runs/{run}"))["sessionId"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_view_has_a_serious_barrier(
    browser: Browser,
    gateway: Gateway,
    shared_home: Home,
    signed_in: StorageState,
    scheme: Literal["light", "dark"],
) -> None:
    run, session = await _run_something(gateway, shared_home)
    paths = {
        "/": "What should the agent do?",
        f"/sessions/{session}": "money is about to move",
        f"/runs/{run}": "Model call 1",
        "/catalog?q=add&tool=openclaw:kit:kit_add": "Declaration",
        "/playground": "Nothing has run yet",
        "/operate": "Workers of the sandbox",
        "/operate?tab=approvals": "money is about to move",
        "/operate?tab=plugins": "kit_add",
        "/operate?tab=logs": "Follow",
        "/settings": "Find a setting",
        "/settings?tab=text": "File",
    }
    found: dict[str, object] = {}
    options: dict[str, Any] = {**_PHONE} if scheme == "dark" else {}
    async with open_app(
        browser, gateway.url, storage_state=signed_in, color_scheme=scheme, **options
    ) as app:
        for path, text in paths.items():
            page = await app.open(path)
            await _wait_for(app, path, text)
            barriers = await find_barriers(page)
            if barriers:
                found[path] = barriers
        app.check()
    assert found == {}


async def _wait_for(app: App, path: str, text: str) -> None:
    if path.startswith("/settings"):
        await expect(app.page.get_by_role("tab", name="File")).to_be_visible()
        return
    await expect(app.page.get_by_text(text).first).to_be_attached()


async def test_the_sign_in_page_has_no_serious_barrier(browser: Browser, gateway: Gateway) -> None:
    async with open_app(browser, gateway.url) as app:
        page = await app.open("/")
        await expect(page.get_by_label("Token or link")).to_be_visible()
        assert list(await find_barriers(page)) == []
