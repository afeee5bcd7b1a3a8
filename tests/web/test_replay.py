"""The replay of a recorded program, with its steps and the first difference."""

import re

import anyio
from playwright.async_api import expect

from nacre.testing import Call, Say
from tests.e2e.gateways import Gateway, Home
from tests.web.pages import App, find_barriers, program

PROGRAM = """const sum = await tools.kit_add({ a: 1, b: 2 });
console.log("the sum is " + sum);
return { sum, lucky: Math.random() < 2 };"""


async def _finish(gateway: Gateway, home: Home, code: str = PROGRAM) -> tuple[str, str]:
    """A run with one program, and its session."""
    marker = home.model.script(Call("exec", {"code": code}), Say("done"))
    run = await gateway.finished(f"add {marker}", title="The sum")
    return run["runId"], run["sessionId"]


async def test_a_recorded_program_runs_again_and_its_steps_are_shown(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    _, session = await _finish(gateway, shared_home)
    page = await app.open(f"/sessions/{session}")
    await program(page).get_by_role("button", name="Replay the program").click()
    await expect(page.get_by_text("No difference")).to_be_visible()
    await expect(page.get_by_role("heading", name="Run in The sum")).to_be_visible()
    await expect(page.get_by_role("region", name="Program")).to_contain_text("tools.kit_add")
    steps = page.get_by_role("region", name="Steps")
    await expect(steps.locator(".step")).to_have_count(2)
    start, answers = await steps.locator(".step").all()
    await expect(start).to_contain_text("The program starts")
    await start.get_by_role("button", name=re.compile("calls openclaw:kit:kit_add")).click()
    await expect(start.locator(".part-value")).to_contain_text('"b": 2')
    await expect(answers).to_contain_text("It gets answers")
    await expect(answers.get_by_role("button", name="output")).to_contain_text("the sum is 3")
    await expect(steps).to_contain_text("sum: 3, lucky: true")
    assert list(await find_barriers(page)) == []
    # The address alone leads to it, and back to the timeline.
    await page.reload()
    await expect(page.get_by_text("No difference")).to_be_visible()
    await page.get_by_role("link", name="Timeline").click()
    await page.get_by_role("treeitem", name=re.compile("^exec ")).click()
    await page.get_by_role("link", name="Replay").click()
    await expect(page.get_by_text("No difference")).to_be_visible()


async def test_changed_code_shows_the_first_difference_and_calls_nothing(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    run, _ = await _finish(gateway, shared_home)
    events = (await gateway.get(f"/api/runs/{run}/trajectory"))["events"]
    call = next(it["event"]["toolCallId"] for it in events if it["event"]["kind"] == "cell.started")
    page = await app.open(f"/runs/{run}?replay={call}")
    await page.get_by_role("button", name="Change the program").click()
    editor = page.get_by_label("Changed program")
    await editor.fill("return tools.kit_hold({ note: 'changed' })")
    await editor.press("Control+Enter")
    await expect(page.get_by_text("Differs from the record")).to_be_visible()
    await expect(page.get_by_role("alert")).to_contain_text("kit_hold")
    await expect(page.get_by_text("not recorded: it would be called")).to_be_visible()
    await expect(page.get_by_text("The program still waits.")).to_be_visible()
    await page.get_by_role("button", name="Recorded program").click()
    await expect(page.get_by_text("No difference")).to_be_visible()
    with anyio.move_on_after(0.1):
        raise AssertionError(f"the replay called {await shared_home.outside.call()}")


async def test_a_program_of_many_steps_comes_in_pages(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    code = "for (let i = 0; i < 60; i++) await tools.kit_add({ a: i, b: 1 }); return 'all'"
    run, session = await _finish(gateway, shared_home, code)
    page = await app.open(f"/sessions/{session}")
    await program(page).get_by_role("button", name="Replay the program").click()
    steps = page.get_by_role("region", name="Steps")
    await expect(steps.get_by_text("61 steps.")).to_be_visible()
    items = steps.locator(".step")
    await expect(items).to_have_count(50)
    await steps.get_by_role("button", name="Show 11 more of 11 steps").click()
    await expect(items).to_have_count(61)
    # Without a record, the page says why.
    await gateway.client.delete(f"/api/sessions/{session}")
    await page.get_by_role("button", name="Replay again").click()
    await expect(page.get_by_role("alert")).to_contain_text(run)
