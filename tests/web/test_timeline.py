"""The timeline of a run: live, stored, filtered, zoomed, downloaded."""

import json
import re

from playwright.async_api import Locator, Page, expect

from nacre.testing import Call, Say
from tests.e2e.gateways import Gateway, Home
from tests.web.pages import App

PROGRAM = """
const sum = await tools.kit_add({ a: 1, b: 2 });
const [held, paid] = await Promise.all([
  tools.kit_hold({ note: "n" }), tools.kit_pay({ amount: sum }),
]);
return { sum, held, paid };
"""
ROWS = ["Model call 1", "exec", "kit_add", "kit_hold", "kit_pay", "Approval"]


def rows_of(page: Page) -> Locator:
    return page.get_by_role("tree", name="Timeline").get_by_role("treeitem")


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("treeitem", name=re.compile(rf"^{re.escape(name)} "))


async def test_a_run_is_drawn_while_it_runs_and_after_it_ended(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    marker = shared_home.model.script(Call("exec", {"code": PROGRAM}), Say("done"))
    run = await gateway.start(f"pay {marker}")
    held = await shared_home.outside.call()
    approval = (await gateway.event(run, "approval.requested")).data["approvalId"]

    page = await app.open(f"/runs/{run}")
    for name in ROWS:
        await expect(row(page, name)).to_be_visible()
    await expect(page.get_by_test_id("run-state")).to_have_text("Waiting")
    await expect(row(page, "kit_add")).to_have_accessible_name(re.compile("Completed"))
    await expect(row(page, "kit_hold")).to_have_accessible_name(re.compile("Running"))
    await expect(row(page, "Approval")).to_have_accessible_name(re.compile("Waiting"))

    await held.answer("kept")
    await expect(row(page, "kit_hold")).to_have_accessible_name(re.compile("Completed"))
    await gateway.post(f"/api/approvals/{approval}", {"answer": "allow-once"})
    await expect(page.get_by_test_id("run-state")).to_have_text("Completed")
    await expect(row(page, "Model call 2")).to_be_visible()
    shown = await _names(page)

    await page.reload()
    await expect(page.get_by_test_id("run-state")).to_have_text("Completed")
    await expect(row(page, "Model call 2")).to_be_visible()
    assert await _names(page) == shown


async def test_rows_are_filtered_zoomed_opened_and_found_in_the_chat(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    code = "const a = 20;\nawait tools.kit_add({ a, b: 22 }); return tools.kit_missing({})"
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("done"))
    run = await gateway.start(f"add {marker}")
    await gateway.events(run)
    page = await app.open(f"/runs/{run}")
    await expect(row(page, "exec")).to_have_accessible_name(re.compile("Failed"))

    await page.get_by_label("Filter", exact=True).fill("b: 22")
    await expect(rows_of(page)).to_have_count(1)
    await page.get_by_label("Filter", exact=True).fill("")
    await page.get_by_role("button", name="Model").click()
    await expect(row(page, "Model call 1")).to_have_count(0)
    await page.get_by_role("button", name="Model").click()
    await expect(row(page, "Model call 1")).to_be_visible()

    fit = page.get_by_role("button", name="Fit")
    await expect(fit).to_be_disabled()
    await page.get_by_role("button", name="Zoom in").click()
    await fit.click()
    await expect(fit).to_be_disabled()

    # With the keyboard: down to the program, fold it, unfold it.
    tree = page.get_by_role("tree", name="Timeline")
    await row(page, "Model call 1").click()
    await tree.press("ArrowDown")
    details = page.get_by_role("complementary", name="Details of exec")
    await expect(details).to_contain_text("kit_missing")
    await tree.press("ArrowLeft")
    await expect(row(page, "kit_add")).to_have_count(0)
    await tree.press("ArrowRight")
    await row(page, "kit_add").click()
    await expect(page.get_by_label("Input").first).to_contain_text('"b": 22')
    await page.get_by_role("link", name="Show in chat").click()
    await expect(page).to_have_url(re.compile(rf"/app/sessions/session_\w+\?run={run}&call="))


async def test_a_trajectory_is_downloaded(app: App, gateway: Gateway, shared_home: Home) -> None:
    marker = shared_home.model.script(Say("hello"))
    run = await gateway.start(f"hi {marker}")
    await gateway.events(run)
    page = await app.open(f"/runs/{run}")
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download").click()
    path = await (await download.value).path()
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [it["kind"] for it in events][0:2] == ["run.started", "model.requested"]
    assert (await download.value).suggested_filename == f"{run}.jsonl"


async def test_an_unknown_run_is_an_error_and_not_a_blank_page(app: App) -> None:
    page = await app.open("/runs/run_unknown")
    await expect(page.get_by_role("alert")).to_contain_text("run_unknown")


async def _names(page: Page) -> list[str]:
    return await rows_of(page).locator(".label").all_inner_texts()
