"""A program that waits for an answer survives the end of its gateway, under an open page."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, expect

from nacre.testing import Call, Say
from tests.e2e.gateways import open_home
from tests.web.pages import nested_call, open_app, program, send

DURABLE = {"codeMode": {"enabled": True, "durable": True}}
PAY = """text("before");
const sum = await tools.kit_add({ a: 1, b: 2 });
const paid = await tools.kit_pay({ amount: sum });
return paid;"""


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_a_suspended_program_survives_and_continues_from_the_page(
    browser: Browser, tmp_path: Path, is_killed: bool
) -> None:
    async with open_home(tmp_path) as home:
        await home.configure(tools=DURABLE)
        marker = home.model.script(Call("exec", {"code": PAY}), Say("all is paid"))
        async with home.gateway() as gateway, open_app(browser, gateway.url) as app:
            port = str(urlsplit(gateway.url).port)
            page = app.page
            await page.goto(gateway.app_url)
            await send(page, f"pay {marker}")
            card = page.get_by_role("group", name="Approval of kit_pay")
            await expect(card).to_be_visible()
            await expect(program(page)).to_contain_text("survives a restart")
            other = await app.new_tab("/operate?tab=cells")
            cell = other.get_by_role("listitem").filter(has_text="kit_pay({ amount: sum })")
            await expect(cell).to_contain_text("survives a restart")
            if is_killed:
                await gateway.kill()
            else:
                gateway.process.terminate()
                await gateway.process.wait()
            await expect(page.get_by_text("No connection to the gateway")).to_be_visible()

            async with home.gateway("--port", port):
                await expect(page.get_by_text("The gateway was restarted.")).to_be_visible()
                await expect(card).to_be_visible()
                await expect(program(page)).to_have_accessible_name("Program, suspended")
                await expect(nested_call(page, "kit_add")).to_have_accessible_name(
                    re.compile("completed")
                )
                await expect(cell).to_contain_text("survives a restart")
                await page.reload()
                await expect(page.get_by_text("The gateway was restarted.")).to_be_visible()
                await card.get_by_role("button", name="Allow once").click()
                await expect(page.get_by_text("all is paid")).to_be_visible()
                await expect(program(page)).to_have_accessible_name("Program, completed")
                await page.get_by_role("button", name=re.compile("^Result")).click()
                await expect(page.get_by_role("region", name="Result")).to_contain_text("paid 3")
                await expect(cell).to_have_count(0)
                await page.get_by_role("button", name="Show the run").click()
                waits = page.get_by_role("treeitem", name=re.compile("^Run waits "))
                await expect(waits.first).to_contain_text("continued after a restart")
            app.check()
