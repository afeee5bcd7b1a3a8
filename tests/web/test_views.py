"""Catalog, playground, operate and settings, each as a person uses it."""

import json
import re
from typing import Any

import anyio
from playwright.async_api import Locator, Page, expect

from nacre.testing import Call, Say
from tests.e2e.gateways import Gateway, Home
from tests.web.pages import App


async def _fill_input(page: Page, value: Any) -> Locator:
    await page.get_by_label("Input, as JSON").fill(json.dumps(value))
    await page.get_by_role("button", name="Call", exact=True).click()
    return page.get_by_role("region", name="Result")


async def test_a_tool_is_found_explained_and_called(app: App) -> None:
    page = await app.open("/catalog")
    summary = page.get_by_role("region", name="What the model sees")
    await expect(summary).to_contain_text("exec, wait")
    await expect(summary).to_contain_text(re.compile(r"\d+ tools"))
    await page.get_by_label("Search tools").fill("add numbers")
    hit = page.get_by_role("listitem").filter(has_text="kit_add").first
    await hit.get_by_text(re.compile("^score ")).click()
    await expect(hit.get_by_role("table")).to_contain_text("summary")
    await hit.get_by_role("button", name=re.compile("kit_add")).click()
    await expect(page.get_by_role("region", name="Declaration for programs")).to_contain_text(
        "kit_add"
    )
    await page.get_by_role("tab", name="Schema").click()
    await expect(page.get_by_role("region", name="Input schema")).to_contain_text("integer")
    await page.get_by_role("tab", name="Try it").click()
    result = await _fill_input(page, {"a": 20, "b": 22})
    await expect(result).to_contain_text("42")
    await _fill_input(page, {"a": "twenty"})
    await expect(
        page.locator(".try-call").get_by_text(re.compile("integer|required"))
    ).to_be_visible()


async def test_a_call_by_hand_waits_for_its_approval(app: App) -> None:
    page = await app.open("/catalog?tool=openclaw:kit:kit_pay")
    await page.get_by_role("tab", name="Try it").click()
    await _fill_input(page, {"amount": 7})
    await expect(page.get_by_text("The call waits for an approval.")).to_be_visible()
    await page.get_by_role("button", name="1 approval waiting").click()
    tray = page.get_by_role("dialog", name="Approvals")
    await tray.get_by_role("button", name="Allow once").click()
    await expect(tray.get_by_text("Nothing waits for an approval.")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("region", name="Result")).to_contain_text("paid 7")


async def test_a_program_of_the_playground_is_shown_as_in_the_chat(app: App) -> None:
    page = await app.open("/playground")
    code = "console.log('adding'); return tools.kit_add({ a: 1, b: 2 })"
    editor = page.get_by_role("textbox", name="Program")
    await editor.fill(code)
    await editor.press("Control+Enter")
    await expect(page.get_by_role("region", name="Program, completed")).to_be_visible()
    await expect(page.get_by_role("region", name="Output")).to_contain_text("adding")
    await expect(page.get_by_role("treeitem", name=re.compile("kit_add"))).to_be_visible()
    await page.get_by_role("link", name="Timeline").click()
    await expect(page.get_by_test_id("run-state")).to_have_text("Completed")
    await page.go_back()
    await expect(editor).to_have_value(code)


async def test_an_operator_sees_what_runs_and_aborts_a_cell(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    code = "return tools.kit_pay({ amount: 1 })"
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("aborted then"))
    run = await gateway.start(f"pay {marker}")
    await gateway.event(run, "run.waiting")
    page = await app.open("/operate")
    await expect(page.get_by_role("region", name="Gateway")).to_contain_text("ready")
    await expect(page.get_by_role("region", name="Workers")).to_contain_text("idle")
    await page.get_by_role("tab", name="Cells").click()
    cell = page.get_by_role("listitem").filter(has_text="kit_pay({ amount: 1 })")
    await expect(cell).to_contain_text(re.compile(r"snapshot [\d.]+ kB"))
    await cell.get_by_role("button", name="Abort").click()
    await expect(cell).to_have_count(0)
    await page.get_by_role("tab", name="Plugins").click()
    await expect(page.get_by_role("region", name="Plugins")).to_contain_text("kit_hold")
    await page.get_by_role("tab", name="MCP servers").click()
    await expect(page.get_by_text("No MCP server is configured")).to_be_visible()
    await page.get_by_role("tab", name="Approvals").click()
    await expect(page.get_by_role("region", name="Approvals")).to_contain_text("money is about")
    await page.get_by_role("tab", name="Logs").click()
    await expect(page.get_by_label("Filter the log")).to_be_visible()
    await page.get_by_role("button", name="Diagnostics bundle").click()
    await expect(page.get_by_text("The bundle is written when you allow it")).to_be_visible()


async def test_a_setting_is_changed_in_the_form_and_in_the_file(
    app: App, shared_home: Home
) -> None:
    file = anyio.Path(shared_home.folder) / "nacre.json5"
    page = await app.open("/settings")
    await page.get_by_label("Find a setting").fill("codeMode.timeoutMs")
    field = page.get_by_label("codeMode.timeoutMs", exact=True)
    await field.fill("23456")
    await field.press("Tab")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("The settings are saved.").first).to_be_visible()
    assert json.loads(await file.read_text())["tools"]["codeMode"]["timeoutMs"] == 23456

    await page.get_by_role("tab", name="File").click()
    text = page.get_by_label("Configuration file")
    await expect(text).to_have_value(re.compile("23456"))
    assert "an-e2e-token" not in await text.input_value()
    await text.fill((await text.input_value()).replace("23456", '"soon"'))
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert").first).to_contain_text("timeoutMs")
    # Somebody else changes the file meanwhile: nothing is written without a decision.
    theirs = (await file.read_text()).replace("23456", "11111")
    await file.write_text(theirs)
    await text.fill((await text.input_value()).replace('"soon"', "34567"))
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_label("In the file now")).to_contain_text("11111")
    assert await file.read_text() == theirs
    await page.get_by_role("button", name="Save mine over it").click()
    await expect(page.get_by_label("In the file now")).to_have_count(0)
    assert json.loads(await file.read_text())["tools"]["codeMode"]["timeoutMs"] == 34567
