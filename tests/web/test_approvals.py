"""What a run waits for: approvals, client tools and questions, answered here or elsewhere."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.async_api import Browser, expect

from nacre.testing import Call, RecordedRequest, Say
from nacre.testing.script import PlainTurn
from tests.e2e.gateways import Gateway, Home, open_home
from tests.web.pages import App, open_app, program, send

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue

PAY = "const paid = await tools.kit_pay({ amount: 3 }); return paid"


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


async def test_questions_of_codex_are_answered_in_place(browser: Browser, tmp_path: Path) -> None:
    names: JsonObject = {
        "id": "name",
        "header": "Name",
        "question": "Whose is it?",
        "options": [
            {"label": "Eve", "description": "the first one"},
            {"label": "Ada", "description": "the other one"},
        ],
    }
    sizes: JsonObject = {
        "id": "size",
        "header": "Size",
        "question": "How large?",
        "options": [{"label": "Small", "description": "fits in a hand"}],
    }

    def answer(request: RecordedRequest) -> PlainTurn:
        if request.messages[-1].role == "tool":
            return Say(f"You said {request.tool_results[-1]}")
        asked: list[JsonValue] = [names, sizes] if "both" in request.prompt else [names]
        return Call("request_user_input", {"questions": asked})

    async with open_home(tmp_path) as home:
        provider = {"api": "openai-responses", "agentRuntime": {"id": "codex"}}
        agents = {"defaults": {"model": "scripted/gpt-5.5", "workspace": str(home.folder)}}
        await home.configure(tools={}, plugins={}, provider=provider, agents=agents)
        marker = home.model.play(answer)
        async with home.gateway() as gateway, open_app(browser, gateway.url) as app:
            page = app.page
            await page.goto(gateway.app_url)
            await send(page, f"paint {marker}")
            form = page.get_by_role("group", name="Question of the agent")
            await expect(form).to_contain_text("Whose is it?")
            await page.reload()
            await form.get_by_role("button", name="Ada").click()
            await expect(
                page.get_by_text('You said {"answers":{"name":{"answers":["Ada"]')
            ).to_be_visible()
            await expect(form).to_have_count(0)

            await send(page, "paint both")
            answers = form.get_by_role("button", name="Send the answers")
            await form.get_by_role("button", name="Eve").click()
            await expect(answers).to_be_disabled()
            await form.get_by_role("button", name="Small").click()
            await answers.click()
            await expect(page.get_by_text(re.compile("You said .*Small"))).to_be_visible()
            await expect(form).to_have_count(0)

            await send(page, "paint again")
            await form.get_by_label("Your own answer").fill("Grace")
            await form.get_by_role("button", name="Answer", exact=True).click()
            await expect(page.get_by_text(re.compile("You said .*Grace"))).to_be_visible()
            app.check()


async def test_a_call_is_allowed_always_and_another_is_denied_with_a_reason(
    app: App, shared_home: Home
) -> None:
    code = """const first = await tools.kit_pay({ amount: 3 });
const again = await tools.kit_pay({ amount: 3 });
let other;
try { other = await tools.kit_pay({ amount: 4 }); } catch (error) { other = error.message; }
return { first, again, other };"""
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("so be it"))
    page = await app.open("/")
    await send(page, f"pay {marker}")
    card = page.get_by_role("group", name="Approval of kit_pay")
    await expect(card).to_contain_text('"amount": 3')
    await card.get_by_role("button", name="Always").click()
    # The second call has the same input, so nobody is asked.
    await expect(card).to_contain_text('"amount": 4')
    await card.get_by_role("button", name="Deny").click()
    await card.get_by_label("Reason for the model").fill("four is too much")
    await card.get_by_role("button", name="Deny the call").click()
    await expect(page.get_by_text("so be it")).to_be_visible()
    calls = page.get_by_role("treeitem")
    await expect(calls).to_have_count(3)
    # The focus stays where the answered request was.
    await expect(calls.nth(2)).to_be_focused()
    await calls.nth(2).press("Enter")
    await expect(calls.nth(2)).to_contain_text("Denied")
    await page.get_by_role("button", name=re.compile("^Result")).click()
    result = page.get_by_role("region", name="Result").last
    await expect(result).to_contain_text("paid 3")
    await expect(result).to_contain_text("four is too much")


async def test_what_is_answered_elsewhere_closes_the_forms_of_this_page(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    code = """const [seen, paid] = await Promise.allSettled([
  tools.ask_camera({}), tools.kit_pay({ amount: 1 })]);
return { seen, paid };"""
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("seen and paid"))
    tool = {"name": "ask_camera", "description": "Look", "parameters": {"type": "object"}}
    run = await gateway.start(f"look {marker}", clientTools=[tool])
    asked = (await gateway.event(run, "client_call.requested")).data["callId"]
    approval = (await gateway.event(run, "approval.requested")).data["approvalId"]
    session = (await gateway.get(f"/api/runs/{run}"))["sessionId"]
    page = await app.open(f"/sessions/{session}")
    form = page.get_by_role("group", name="Result of ask_camera")
    card = page.get_by_role("group", name="Approval of kit_pay")
    # Somebody is about to answer both here.
    await form.get_by_label("Result", exact=True).fill("half of an answ")
    await card.get_by_role("button", name="Edit").click()
    results = [{"callId": asked, "content": "a pearl", "isError": False}]
    await gateway.post(f"/api/runs/{run}/client-results", {"results": results})
    await expect(form).to_have_count(0)
    await expect(card.get_by_role("textbox")).to_be_visible()
    await gateway.post(f"/api/approvals/{approval}", {"answer": "allow-once"})
    await expect(card).to_have_count(0)
    await expect(page.get_by_text("seen and paid")).to_be_visible()
