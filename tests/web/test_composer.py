"""The message box: steering, drafts, commands, files."""

import base64
import re

import anyio
from playwright.async_api import FilePayload, Locator, Route, expect

from nacre.testing import Call, Say
from tests.e2e.gateways import Gateway, Home
from tests.web.pages import ONE_PIXEL, App, send


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


async def test_messages_of_a_follow_up_and_collected_ones_say_that_they_wait(
    app: App, shared_home: Home
) -> None:
    code = "return tools.kit_hold({ note: 'n' })"
    marker = shared_home.model.script(
        Call("exec", {"code": code}), Say("the first is done"), Say("so is the second"), Say("both")
    )
    page = await app.open("/")
    await send(page, f"begin {marker}")
    held = await shared_home.outside.call()
    await page.get_by_role("radio", name="Follow up").click()
    await send(page, "then the second")
    queued = page.get_by_text("Queued: its turn comes after the running one")
    await expect(queued).to_have_count(1)
    await page.get_by_role("radio", name="Collect").click()

    async def delay(route: Route) -> None:
        # The second message waits, so that they keep their order.
        await expect(page.get_by_text("Sending…")).to_have_count(2)
        await route.continue_()

    await page.route("**/api/runs", delay, times=1)
    await send(page, "collected one")
    await send(page, "collected two")
    await expect(queued).to_have_count(3)
    await held.answer("ok")
    turns = page.get_by_role("article")
    await expect(turns).to_have_count(3)
    await expect(turns.nth(0)).to_contain_text("the first is done")
    await expect(turns.nth(1)).to_contain_text(re.compile("then the second.*so is the second"))
    await expect(turns.nth(2)).to_contain_text(
        re.compile("collected one.*collected two.*both", re.DOTALL)
    )
    await expect(queued).to_have_count(0)
    await page.reload()
    await expect(turns.nth(2)).to_contain_text("collected two")


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


async def test_files_are_attached_removed_sent_and_shown(app: App, shared_home: Home) -> None:
    marker = shared_home.model.script(Say("I see both."))
    page = await app.open("/")
    files = page.get_by_label("Files", exact=True)
    await files.set_input_files(
        [
            FilePayload(name="pearl.png", mimeType="image/png", buffer=ONE_PIXEL),
            FilePayload(name="notes.txt", mimeType="text/plain", buffer=b"a rare nautilus"),
            FilePayload(name="wrong.txt", mimeType="text/plain", buffer=b"by mistake"),
        ]
    )
    attached = page.get_by_role("listitem").filter(has_text=re.compile(r"\.(png|txt)"))
    await expect(attached).to_have_count(3)
    await page.get_by_role("button", name="Remove wrong.txt").click()
    await expect(attached).to_have_count(2)
    await send(page, f"compare {marker}")
    await expect(attached).to_have_count(0)
    await expect(page.get_by_text("I see both.")).to_be_visible()
    request = str(shared_home.model.requests(marker)[-1].body)
    assert base64.b64encode(ONE_PIXEL).decode() in request and "a rare nautilus" in request
    assert "by mistake" not in request
    await _check_image(page.get_by_role("log").get_by_role("img"))
    await page.reload()
    await _check_image(page.get_by_role("log").get_by_role("img"))


async def test_a_file_that_is_too_large_is_refused_with_the_reason(app: App) -> None:
    page = await app.open("/")
    large = FilePayload(name="large.bin", mimeType="", buffer=bytes(8_388_609))
    await page.get_by_label("Files", exact=True).set_input_files(large)
    await expect(
        page.get_by_text(re.compile("large.bin was not uploaded: .*8388608"))
    ).to_be_visible()
    await expect(page.get_by_role("button", name="Send")).to_be_enabled()


async def test_files_of_a_reply_are_shown_and_downloaded(app: App, shared_home: Home) -> None:
    folder = anyio.Path(shared_home.folder)
    await (folder / "pearl.png").write_bytes(ONE_PIXEL)
    await (folder / "page.html").write_bytes(b"<script>window.pwned = 1</script>")
    code = "await tools.message({ text: 'look', attachments: ['pearl.png', 'page.html'] })"
    marker = shared_home.model.script(Call("exec", {"code": code}), Say("that was all"))
    page = await app.open("/")
    await send(page, f"draw {marker}")
    await expect(page.get_by_text("that was all")).to_be_visible()
    conversation = page.get_by_role("log")
    for _ in range(2):
        await expect(conversation.get_by_text("look", exact=True)).to_be_visible()
        await _check_image(conversation.get_by_role("img", name="pearl.png"))
        async with page.expect_download() as download:
            await conversation.get_by_role("link", name="page.html").click()
        assert (await download.value).suggested_filename == "page.html"
        await page.reload()


async def _check_image(image: Locator) -> None:
    """Wait until the image was decoded."""
    await expect(image).to_have_js_property("naturalWidth", 1)


async def test_a_message_whose_fate_is_unknown_can_be_sent_again_and_is_taken_once(
    app: App, gateway: Gateway, shared_home: Home
) -> None:
    marker = shared_home.model.play(lambda _request: Say("taken once"))
    page = await app.open("/")
    has_arrived = anyio.Event()

    async def lose_the_answer(route: Route) -> None:
        # The gateway has it; the page does not know.
        await route.fetch()
        await route.abort("connectionreset")
        has_arrived.set()

    await page.route("**/api/runs", lose_the_answer, times=1)
    await send(page, f"only once {marker}")
    await has_arrived.wait()
    await expect(page.get_by_text(re.compile("^Uncertain"))).to_be_visible()
    await page.get_by_role("button", name="Send again").click()
    await expect(page.get_by_role("log").get_by_text("taken once")).to_be_visible()
    await expect(page.get_by_text(re.compile("^Uncertain"))).to_have_count(0)
    found = await gateway.get(f"/api/search?q=%22only+once+{marker.replace('#', '%23')}%22")
    assert len({hit["runId"] for hit in found["hits"] if hit["role"] == "user"}) == 1


async def test_files_are_dropped_and_pasted(app: App) -> None:
    page = await app.open("/")
    attached = page.get_by_role("listitem").filter(has_text=re.compile(r"\.txt"))
    transfer = await page.evaluate_handle(
        """() => {
          const transfer = new DataTransfer();
          transfer.items.add(new File(["pearls"], "dropped.txt", { type: "text/plain" }));
          return transfer;
        }"""
    )
    composer = page.locator("form.composer")
    await composer.dispatch_event("dragover", {"dataTransfer": transfer})
    await expect(page.get_by_text("Drop files to attach them")).to_be_visible()
    await composer.dispatch_event("drop", {"dataTransfer": transfer})
    await expect(attached).to_contain_text("dropped.txt")
    await expect(page.get_by_text("Drop files to attach them")).to_have_count(0)
    await page.get_by_role("textbox", name="Message").evaluate(
        """(box) => {
          const clipboardData = new DataTransfer();
          clipboardData.items.add(new File(["more"], "pasted.txt", { type: "text/plain" }));
          box.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
        }"""
    )
    await expect(attached).to_have_count(2)
