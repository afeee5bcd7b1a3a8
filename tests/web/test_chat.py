"""The chat: answers as they grow, programs with their calls, large results, stop, old turns."""

import re
from base64 import b64encode

import anyio
from playwright.async_api import Page, Route, expect

from nacre.testing import Call, RecordedRequest, Say, Stall, Think
from nacre.testing.script import PlainTurn
from tests.e2e.gateways import Gateway, Home
from tests.web.pages import ONE_PIXEL, App, nested_call, program, send

YIELD = "text('before'); await yield_control('look'); text('after'); return 'the value'"


async def test_an_answer_grows_word_by_word_and_thoughts_are_folded(
    app: App, shared_home: Home
) -> None:
    may_end = anyio.Event()
    marker = shared_home.model.script(
        [
            Think("A secret plan."),
            Say("# Pearls\n\nThey **grow**\n\n```python\nsize = "),
            Stall(may_end),
            Say("1\n```\n\nin shells."),
        ]
    )
    page = await app.open("/")
    await send(page, f"how? {marker}")
    conversation = page.get_by_role("log")
    await expect(conversation.get_by_role("heading", name="Pearls")).to_be_visible()
    await expect(conversation.locator("strong")).to_have_text("grow")
    await expect(conversation.locator("pre")).to_contain_text("size =")
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    may_end.set()
    await expect(conversation.get_by_text("in shells.")).to_be_visible()
    await expect(conversation.locator("pre .hljs-number")).to_have_text("1")
    await expect(page.get_by_text("A secret plan.")).to_have_count(0)
    await page.get_by_role("button", name="Thoughts").click()
    await expect(page.get_by_text("A secret plan.")).to_be_visible()
    await app.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="Copy the answer").click()
    copied = await page.evaluate("() => navigator.clipboard.readText()")
    assert copied.startswith("# Pearls") and copied.endswith("in shells.")


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
    await page.get_by_role("button", name=re.compile("tokens saved")).click()
    saved = page.get_by_role("region", name="What code mode saved")
    await expect(saved.get_by_role("row", name="Definitions of tools")).to_contain_text("kB")
    await expect(saved.get_by_role("row", name="Results of calls")).to_contain_text(" B")
    await expect(program(page)).to_contain_text("javascript")
    await expect(program(page).locator("header .call-time")).to_have_text(re.compile(r"\d+ m?s"))
    await expect(program(page).locator(".hljs-keyword").first).to_have_text("const")
    await expect(nested_call(page, "kit_hold").locator(".call-bar")).to_have_count(1)

    await page.reload()
    await expect(program(page)).to_have_accessible_name("Program, completed")
    await expect(page.get_by_role("region", name="Output")).to_contain_text("the sum is 3")
    await expect(nested_call(page, "kit_hold")).to_have_accessible_name(re.compile("completed"))
    await expect(page.locator("strong", has_text="three")).to_be_visible()


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


async def test_a_large_result_does_not_enter_the_page_whole(app: App, shared_home: Home) -> None:
    code = "const text = await tools.kit_hold({ note: 'n' }); return text.slice(0, 40_000)"
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("that was much"))
    page = await app.open("/")
    await send(page, f"much {marker}")
    held = await shared_home.outside.call()
    await held.answer("".join(f"pearl {n}\n" for n in range(90_000)))
    await expect(page.get_by_text("that was much")).to_be_visible()
    await page.get_by_role("button", name=re.compile("^Result")).click()
    await nested_call(page, "kit_hold").press("Enter")
    results = page.get_by_role("region", name="Result")
    await expect(results).to_have_count(2)
    for index in range(2):
        await expect(results.nth(index)).to_contain_text("pearl 1")
    assert await _count_characters(page) < 50_000
    # The rest of what the model got comes in parts, each instead of the one before.
    await results.last.get_by_role("button", name="Load what is stored").click()
    await results.last.get_by_role("button", name="Next").click()
    await expect(results.last).to_contain_text(re.compile("Characters 16,001 to 32,000 of "))
    assert await _count_characters(page) < 50_000


async def _count_characters(page: Page) -> int:
    return await page.evaluate("() => document.body.textContent.length")


async def test_a_person_continues_a_suspended_program_and_the_model_gets_its_result(
    app: App, shared_home: Home
) -> None:
    may_wait = anyio.Event()

    def wait(request: RecordedRequest) -> PlainTurn:
        return [Stall(may_wait), Call("wait", {"runId": request.last_object["runId"]})]

    marker = shared_home.model.script(Call("exec", {"code": YIELD}), wait, Say("so it is"))
    page = await app.open("/")
    await send(page, f"yield {marker}")
    await expect(program(page)).to_have_accessible_name("Program, suspended")
    await expect(program(page)).to_contain_text(re.compile(r"until it is continued · [\d.]+ kB"))
    await program(page).get_by_role("button", name="Continue the program").click()
    await expect(program(page)).to_have_accessible_name("Program, completed")
    await expect(program(page)).to_contain_text("resumed after 1 suspension")
    await expect(page.get_by_role("region", name="Output")).to_contain_text("after")
    await expect(page.get_by_role("button", name="Continue the program")).to_have_count(0)
    may_wait.set()
    await expect(page.get_by_text("so it is")).to_be_visible()
    assert "the value" in shared_home.model.requests(marker)[-1].tool_results[-1]


async def test_a_person_discards_a_suspended_program_and_the_model_sees_it(
    app: App, shared_home: Home
) -> None:
    may_wait = anyio.Event()

    def wait(request: RecordedRequest) -> PlainTurn:
        return [Stall(may_wait), Call("wait", {"runId": request.last_object["runId"]})]

    marker = shared_home.model.script(Call("exec", {"code": YIELD}), wait, Say("what a pity"))
    page = await app.open("/")
    await send(page, f"yield {marker}")
    await expect(program(page)).to_have_accessible_name("Program, suspended")
    await program(page).get_by_role("button", name="Discard the program").click()
    await expect(program(page)).to_have_accessible_name("Program, aborted")
    may_wait.set()
    await expect(page.get_by_text("what a pity")).to_be_visible()
    assert "unavailable" in shared_home.model.requests(marker)[-1].tool_results[-1]


async def test_old_turns_come_in_pages_and_nothing_moves(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    marker = shared_home.model.play(lambda request: Say(f"Answer to {request.prompt.split()[0]}"))
    runs = [await gateway.finished(f"m{n} {marker}", sessionKey="long") for n in range(53)]
    session = runs[0]["sessionId"]
    page = await app.open(f"/sessions/{session}")
    conversation, turns = page.get_by_role("log"), page.get_by_role("article")
    await expect(page.get_by_text("Answer to m52", exact=True)).to_be_in_viewport()
    assert await turns.count() < len(runs)
    # The reader still sees the turn that was the first one when older ones are added above it.
    first_run = await conversation.evaluate(
        "log => { log.scrollTop = 0; return log.querySelector('article').dataset.run }"
    )
    first = page.locator(f'[data-run="{first_run}"]')
    await expect(turns.first.and_(first)).to_have_count(0)
    await expect(first).to_be_in_viewport()
    # Turns far from the reader leave the page, which keeps their place.
    oldest = page.locator(f'[data-run="{runs[0]["runId"]}"]')
    newest = page.locator(f'[data-run="{runs[-1]["runId"]}"]')
    await page.wait_for_function(_SCROLL_TO_START, arg=runs[0]["runId"])
    await expect(oldest).to_contain_text("Answer to m0")
    await expect(newest).to_be_empty()
    await page.get_by_role("button", name="To the end").click()
    await expect(newest).to_contain_text("Answer to m52")
    await expect(newest).to_be_in_viewport()
    await expect(oldest).to_be_empty()
    # A link to an old turn loads it.
    await app.open(f"/sessions/{session}?run={runs[1]['runId']}")
    await expect(page.get_by_text("Answer to m1", exact=True)).to_be_in_viewport()


_SCROLL_TO_START = """
(runId) => {
  const log = document.querySelector("[role=log]");
  const isAtStart = log.scrollTop === 0 && document.querySelector(`[data-run="${runId}"]`) !== null;
  log.scrollTop = 0;
  return isAtStart;
}
"""


async def test_the_stop_button_stays_until_the_gateway_has_confirmed(
    app: App, shared_home: Home
) -> None:
    marker = shared_home.model.script(Call("exec", {"code": "await tools.kit_hold({ note: 'n' })"}))
    page = await app.open("/")
    await send(page, f"hold {marker}")
    await shared_home.outside.call()
    may_arrive = anyio.Event()

    async def delay(route: Route) -> None:
        await may_arrive.wait()
        await route.continue_()

    await page.route("**/abort", delay)
    await page.get_by_role("button", name="Stop").click()
    stopping = page.get_by_role("button", name="Stopping…")
    await expect(stopping).to_be_disabled()
    await expect(program(page)).to_have_accessible_name("Program, running")
    may_arrive.set()
    await expect(stopping).to_have_count(0)
    await expect(page.get_by_text(re.compile("^Stopped"))).to_be_visible()


async def test_images_of_a_program_are_shown(app: App, shared_home: Home) -> None:
    code = f"image({{ data: '{b64encode(ONE_PIXEL).decode()}', mimeType: 'image/png' }}); return 1"
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("what a pearl"))
    page = await app.open("/")
    await send(page, f"draw {marker}")
    await expect(page.get_by_text("what a pearl")).to_be_visible()
    for _ in range(2):
        image = program(page).get_by_role("img", name="Image 1 of exec")
        await expect(image).to_have_js_property("naturalWidth", 1)
        await page.reload()


async def test_a_call_that_fails_says_why_in_the_tree(app: App, shared_home: Home) -> None:
    code = """try { await tools.kit_add({ a: "one" }); } catch (error) { console.log("caught"); }
return tools.kit_add({ a: 2, b: 2 })"""
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("four"))
    page = await app.open("/")
    await send(page, f"fail {marker}")
    await expect(page.get_by_text("four", exact=True)).to_be_visible()
    failed = page.get_by_role("treeitem", name="kit_add, failed")
    await expect(failed).to_contain_text(re.compile("integer|required"))
    await expect(program(page)).to_contain_text("2 calls, 1 failed")
