"""Operate and catalog of a gateway with several agents, an MCP server and heartbeats."""

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Browser, expect

from nacre.testing import Call, Say
from tests.e2e.gateways import CODE_MODE, Gateway, Home, open_home, time_server
from tests.storage.conftest import PostgresServer, postgres, postgres_server
from tests.web.pages import App, find_barriers, open_app, send

__all__ = ["postgres", "postgres_server"]


@pytest.fixture(scope="module")
async def shared_home(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> AsyncGenerator[Home]:
    """With two agents, one of which has heartbeats and may not pay."""
    async with open_home(tmp_path_factory.mktemp("operate")) as opened:
        agents = {
            "defaults": {"model": "scripted/model", "workspace": str(opened.folder)},
            "list": [
                {"id": "main"},
                {
                    "id": "keeper",
                    "heartbeat": {"every": "1h", "prompt": "look after it #1"},
                    "tools": {"deny": ["kit_pay"]},
                },
            ],
        }
        opened.model.play(lambda _request: Say("HEARTBEAT_OK"))
        await opened.configure(tools=CODE_MODE, mcp=time_server(), agents=agents)
        yield opened


async def test_the_catalog_shows_what_each_agent_has_and_what_its_model_sees(app: App) -> None:
    page = await app.open("/catalog")
    await expect(page.get_by_role("button", name=re.compile("^kit_pay"))).to_be_visible()
    await page.get_by_role("button", name="Show the definitions").click()
    dialog = page.get_by_role("dialog", name="What the model sees")
    await expect(dialog.get_by_role("region", name=re.compile("^exec, "))).to_contain_text("tools")
    assert list(await find_barriers(page)) == []
    await page.keyboard.press("Escape")
    await page.get_by_label("Agent").select_option("keeper")
    await expect(page.get_by_role("button", name=re.compile("^kit_add"))).to_be_visible()
    await expect(page.get_by_role("button", name=re.compile("^kit_pay"))).to_have_count(0)
    await page.get_by_label("Search tools").fill("pay")
    await expect(page).to_have_url(re.compile("agent=keeper&q=pay"))
    await page.get_by_label("Search tools").fill("add")
    await page.get_by_role("button", name=re.compile("^kit_add")).click()
    await page.get_by_role("tab", name="Schema").click()
    seen = page.get_by_role("region", name="Its definition, if the model saw it directly")
    await expect(seen).to_contain_text('"kit_add"')


async def test_an_mcp_server_is_shown_and_restarted(app: App) -> None:
    page = await app.open("/operate?tab=servers")
    row = page.get_by_role("row").filter(has_text="time")
    await expect(row).to_contain_text("stdio")
    await row.get_by_role("button", name="Restart").click()
    await expect(page.get_by_text("time was restarted.")).to_be_visible()
    await expect(row.get_by_role("cell").nth(2)).to_have_text("2")
    assert list(await find_barriers(page)) == []


async def test_an_agent_is_woken(app: App) -> None:
    page = await app.open("/operate")
    await page.get_by_role("tab", name="Heartbeats").click()
    row = page.get_by_role("row").filter(has_text="keeper")
    await expect(row).to_contain_text("1 h 0 min")
    await row.get_by_role("button", name="Wake now").click()
    await expect(page.get_by_text("keeper is awake.")).to_be_visible()
    await expect(row).to_contain_text("quiet")
    assert list(await find_barriers(page)) == []
    # No session is in Codex, so that there is nothing to show.
    await expect(page.get_by_role("tab", name="Codex")).to_have_count(0)
    await row.get_by_role("link", name="Run").click()
    await expect(page.get_by_test_id("run-state")).to_have_text("Completed")


async def test_the_log_is_filtered_and_saved(app: App, shared_home: Home) -> None:
    page = await app.open("/operate?tab=logs")
    await page.get_by_label("Lowest level").select_option("debug")
    file = anyio.Path(shared_home.folder) / "nacre.json5"
    document = json.loads(await file.read_text(encoding="utf-8"))
    document["tools"]["codeMode"]["timeoutMs"] = 12_345
    await file.write_text(json.dumps(document), encoding="utf-8")
    log = page.get_by_role("log", name="Log")
    await expect(log).to_contain_text("the configuration changed: tools")
    await page.get_by_label("Filter the log").fill("no line has this")
    await expect(page.get_by_text("No lines")).to_be_visible()
    await page.get_by_label("Filter the log").fill("nacre")
    await expect(log).to_be_visible()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Save").click()
    text = (await (await download.value).path()).read_text(encoding="utf-8")
    assert re.match(r"\d{4}-\d\d-\d\dT\S+ [A-Z]+ nacre\S*: ", text)


async def test_a_diagnostics_bundle_is_written_when_it_is_allowed(
    app: App, gateway: Gateway
) -> None:
    page = await app.open("/operate")
    async with page.expect_response("**/api/diagnostics") as response:
        await page.get_by_role("button", name="Diagnostics bundle").click()
    run = (await (await response.value).json())["runId"]
    await expect(page.get_by_text("The bundle is written when you allow it")).to_be_visible()
    await page.get_by_role("button", name=re.compile("approval waiting")).click()
    tray = page.get_by_role("dialog", name="Approvals")
    await tray.get_by_role("button", name="Allow once").click()
    await expect(tray.get_by_text("Nothing waits for an approval.")).to_be_visible()
    await gateway.events(run)
    result = (await gateway.get(f"/api/runs/{run}"))["result"]
    assert (result["error"], ".zip" in result["text"]) == ("", True)


async def test_the_gateways_on_one_database_are_listed_with_their_runs(
    browser: Browser, tmp_path: Path, postgres: PostgresServer
) -> None:
    async with open_home(tmp_path) as home:
        storage = {"url": postgres.url()}
        await home.configure(tools=CODE_MODE, storage=storage)
        code = "return tools.kit_pay({ amount: 1 })"
        marker = home.model.script(Call("exec", {"code": code}), Say("never said"))
        async with (
            home.gateway() as first,
            home.gateway() as second,
            open_app(browser, second.url) as app,
        ):
            page = app.page
            await page.goto(second.app_url)
            await send(page, f"pay {marker}")
            await expect(page.get_by_role("group", name="Approval of kit_pay")).to_be_visible()
            await app.open("/operate")
            await page.get_by_role("tab", name="Gateways").click()
            rows = page.get_by_role("region", name="Gateways").get_by_role("row")
            await expect(rows).to_have_count(3)
            this = rows.filter(has_text="this one")
            await expect(this.locator("td")).to_contain_text(["alive", "1", "0", "1", "0", "0"])
            assert list(await find_barriers(page)) == []
            await first.kill()
            await expect(rows.filter(has_text="dead").or_(rows.nth(2))).to_be_visible()
            app.check()
