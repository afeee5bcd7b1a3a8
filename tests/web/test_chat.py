"""The chat: programs with their calls as they run, approvals, stop, steering, drafts."""

import re

from playwright.async_api import Locator, Page, expect

from nacre.testing import Call, Say
from tests.e2e.gateways import Gateway, Home
from tests.web.pages import App, send

PAY = "const paid = await tools.kit_pay({ amount: 3 }); return paid"


def program(page: Page) -> Locator:
    return page.get_by_role("region", name=re.compile("^Program, "))


def nested_call(page: Page, name: str) -> Locator:
    return page.get_by_role("treeitem", name=re.compile(f"^{name}, "))


async def test_a_message_becomes_a_program_with_live_calls_and_an_answer(
    app: App, shared_home: Home
) -> None:
    code = """
const sum = await tools.kit_add({ a: 1, b: 2 });
console.log("the sum is " + sum);
const held = await tools.kit_hold({ note: "n" });
return { sum, held };
"""
    marker = shared_home.model.script(
        Call("exec", {"code": code}), Say("It is **three**, see `sum`.\n\n- one\n- two")
    )
    page = await app.open("/")
    await send(page, f"add them {marker}")
    held = await shared_home.outside.call()
    await expect(page).to_have_url(re.compile("/app/sessions/session_"))
    await expect(program(page)).to_have_accessible_name("Program, running")
    await expect(nested_call(page, "kit_add")).to_have_accessible_name(re.compile("completed"))
    await expect(nested_call(page, "kit_hold")).to_have_accessible_name(re.compile("running"))
    # Details come when they are asked for.
    await expect(page.get_by_role("region", name="Input")).to_have_count(0)
    await nested_call(page, "kit_add").press("Enter")
    await expect(page.get_by_role("region", name="Input")).to_contain_text('"b": 2')

    await held.answer("kept")
    await expect(program(page)).to_have_accessible_name("Program, completed")
    await expect(page.get_by_role("region", name="Output")).to_contain_text("the sum is 3")
    await expect(page.locator("strong", has_text="three")).to_be_visible()
    await expect(page.get_by_role("listitem").filter(has_text="two")).to_be_visible()
    await expect(page.get_by_text(re.compile(r"\d+ in, \d+ out"))).to_be_visible()

    await page.reload()
    await expect(program(page)).to_have_accessible_name("Program, completed")
    await expect(page.get_by_role("region", name="Output")).to_contain_text("the sum is 3")
    await expect(nested_call(page, "kit_hold")).to_have_accessible_name(re.compile("completed"))
    await expect(page.locator("strong", has_text="three")).to_be_visible()


async def test_an_approval_survives_a_reload_and_is_answered_in_place(
    app: App, shared_home: Home
) -> None:
    marker = shared_home.model.script(Call("exec", {"code": PAY}), Say("paid"))
    page = await app.open("/")
    await send(page, f"pay {marker}")
    card = page.get_by_role("group", name="Approval of kit_pay")
    await expect(card).to_contain_text("money is about to move")
    await expect(card.get_by_label("Time left")).to_have_text(re.compile(r"^5\d:\d\d$"))
    await page.reload()
    await expect(card).to_be_visible()
    await expect(program(page)).to_have_accessible_name("Program, suspended")

    await card.get_by_role("button", name="Edit").click()
    await card.get_by_role("textbox").fill('{"amount": "much"}')
    await card.get_by_role("button", name="Allow with this input").click()
    await expect(card.get_by_role("alert")).to_be_visible()
    await card.get_by_role("textbox").fill('{"amount": 5}')
    await card.get_by_role("button", name="Allow with this input").click()
    await expect(card).to_have_count(0)
    await expect(page.get_by_text("paid", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Result").click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("paid 5")


async def test_an_approval_that_was_answered_elsewhere_disappears_everywhere(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    marker = shared_home.model.script(Call("exec", {"code": PAY}), Say("not paid"))
    run = await gateway.start(f"pay {marker}")
    approval = (await gateway.event(run, "approval.requested")).data["approvalId"]
    session = (await gateway.get(f"/api/runs/{run}"))["sessionId"]
    page = await app.open(f"/sessions/{session}")
    card = page.get_by_role("group", name="Approval of kit_pay")
    await expect(card).to_be_visible()
    other = await app.new_tab("/catalog")
    tray = other.get_by_role("button", name="1 approval waiting")
    await tray.click()
    dialog = other.get_by_role("dialog", name="Approvals")
    await expect(dialog.get_by_role("button", name="Allow once")).to_be_visible()

    body = {"answer": "deny", "reason": "too expensive"}
    await gateway.post(f"/api/approvals/{approval}", body)
    await expect(card).to_have_count(0)
    await expect(dialog.get_by_role("button", name="Allow once")).to_have_count(0)
    await expect(tray).to_have_count(0)
    await expect(page.get_by_text("not paid")).to_be_visible()


async def test_an_error_is_marked_in_the_program(app: App, shared_home: Home) -> None:
    code = "const fine = 1;\nthrow new Error('boom');\nreturn fine"
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("it failed"))
    page = await app.open("/")
    await send(page, f"fail {marker}")
    await expect(program(page)).to_have_accessible_name("Program, failed")
    await expect(page.get_by_role("group", name="Error")).to_contain_text("line 2")
    await expect(page.locator(".line-numbers .error")).to_have_text("2")


async def test_stop_is_shown_when_the_gateway_has_stopped_the_run(
    app: App, shared_home: Home
) -> None:
    code = "return tools.kit_hold({ note: 'forever' })"
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("never said"))
    page = await app.open("/")
    await send(page, f"hold {marker}")
    held = await shared_home.outside.call()
    await expect(nested_call(page, "kit_hold")).to_be_visible()
    await page.get_by_role("button", name="Stop").click()
    await held.gone()
    await expect(page.get_by_text(re.compile("^Stopped"))).to_be_visible()
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    await expect(page.get_by_role("textbox", name="Message")).to_be_enabled()


async def test_a_message_during_a_run_steers_it_and_the_page_says_so(
    app: App, shared_home: Home
) -> None:
    code = "return tools.kit_hold({ note: 'n' })"
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("as you wish"))
    page = await app.open("/")
    await send(page, f"begin {marker}")
    held = await shared_home.outside.call()
    await expect(page.get_by_role("radio", name="Steer")).to_be_checked()
    await send(page, "and be brief")
    await expect(page.get_by_text("before its next step")).to_be_visible()
    await held.answer("ok")
    await expect(page.get_by_text("as you wish")).to_be_visible()
    await expect(page.get_by_text("and be brief")).to_have_count(1)
    assert "and be brief" in shared_home.model.requests(marker)[-1].prompt


async def test_drafts_commands_and_the_palette_work_with_the_keyboard(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    marker = shared_home.model.script(Say("hello there"))
    run = await gateway.start(f"hi {marker}", title="The greeting")
    await gateway.events(run)
    page = await app.open("/")
    box = page.get_by_role("textbox", name="Message")
    await box.fill("/sta")
    await expect(page.get_by_role("option", name="/status")).to_be_visible()
    await box.press("Tab")
    await expect(box).to_have_value("/status ")
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Go to").fill("greeting")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("hello there")).to_be_visible()
    await box.fill("a draft of this session")
    await page.get_by_role("link", name="Nacre").first.click()
    await expect(box).to_have_value("/status ")
    await page.go_back()
    await expect(box).to_have_value("a draft of this session")
    await page.reload()
    await expect(box).to_have_value("a draft of this session")
    await box.fill("/status")
    await box.press("Enter")
    await expect(page.get_by_text(re.compile("Session: "))).to_be_visible()


async def test_a_client_tool_is_answered_in_place(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    marker = shared_home.model.script(
        Call("exec", {"code": "return tools.ask_camera({ zoom: 2 })"}), Say("a pearl")
    )
    tool = {
        "name": "ask_camera",
        "description": "Look",
        "parameters": {"type": "object", "properties": {"zoom": {"type": "integer"}}},
    }
    run = await gateway.start(f"look {marker}", clientTools=[tool])
    session = (await gateway.get(f"/api/runs/{run}"))["sessionId"]
    page = await app.open(f"/sessions/{session}")
    form = page.get_by_role("group", name="Result of ask_camera")
    await expect(form).to_contain_text('"zoom": 2')
    await form.get_by_label("Result", exact=True).fill("I see a pearl")
    await form.get_by_role("button", name="Send the result").click()
    await expect(page.get_by_text("a pearl", exact=True)).to_be_visible()
    await expect(form).to_have_count(0)


async def test_a_large_result_does_not_enter_the_page_whole(app: App, shared_home: Home) -> None:
    code = "return Array.from({ length: 4000 }, (_, n) => 'pearl ' + n).join('\\n')"
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("that was much"))
    page = await app.open("/")
    await send(page, f"much {marker}")
    await expect(page.get_by_text("that was much")).to_be_visible()
    await page.get_by_role("button", name=re.compile("^Result")).click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("pearl 1")
    size = await page.evaluate("() => document.body.textContent.length")
    assert size < 25_000
