"""Draws the pictures of docs/images with a real gateway, a scripted model and Chromium.

`make screenshots` starts it. With a folder as its argument, it draws all views into that folder,
in light and dark, for desktop and phone.
"""

import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import anyio
from playwright.async_api import Browser, Page, StorageState, ViewportSize, expect

from nacre.testing import Call, Say, ScriptedProvider, Think, by_marker
from tests.e2e.gateways import CODE_MODE, Gateway, Home, ScriptedModel, time_server
from tests.e2e.outside import open_outside
from tests.forked_python import ForkedStarts
from tests.web.browsers import HOW_TO_GET_IT, find_chromium, open_browser
from tests.web.pages import PATIENCE_MS, App, open_app

if TYPE_CHECKING:
    from nacre.testing.script import Script

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_IN_DOCS = {
    "web_approval_dark_phone.png",
    "web_approval_light.png",
    "web_catalog_light.png",
    "web_chat_light.png",
    "web_operate_light.png",
    "web_replay_light.png",
    "web_timeline_light.png",
}
_PLUGINS = Path(__file__).parent / "plugins"
_DESKTOP: ViewportSize = {"width": 1280, "height": 800}
_PHONE: ViewportSize = {"width": 390, "height": 844}

_LATE = """const orders = await tools.orders_list({ status: "late" });
const details = await Promise.all(
  orders.map(async (order) => {
    const [customer, shipment] = await Promise.all([
      tools.customers_get({ customer: order.customer }),
      tools.shipments_track({ order: order.id }),
    ]);
    return { order: order.id, customer: customer.name, reason: shipment.reason };
  }),
);
console.log(`${details.length} late orders`);
return details;"""
_REFUND = """const orders = await tools.orders_list({ status: "late" });
const [worst] = orders.sort((a, b) => b.daysLate - a.daysLate);
const refund = await tools.refunds_create({ order: worst.id, amount: 20 });
await tools.mail_send({ customer: worst.customer, text: "We are sorry for the delay." });
return refund;"""
_LATE_PROMPT = "Which orders are late, and why?"
_REFUND_PROMPT = "Refund 20 for the order that is latest, and say sorry"
_THOUGHT = "I need the late orders first, then the customer and the shipment of each of them."
_OTHERS = (
    "Plan the inventory count",
    "Translate the return policy",
    "Compare the carriers of last month",
    "Draft the newsletter for March",
)
_ANSWER = """Three orders are late, all for the same reason: **a customs form is missing**.

| Order | Customer | Days late |
|---|---|---|
| 4051 | Katherine Johnson | 9 |
| 4021 | Ada Lovelace | 6 |
| 4044 | Grace Hopper | 2 |

I can send the forms again, or offer a refund for order `4051`."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A gateway in which things have happened: what the pictures show."""

    gateway: Gateway
    late_run: str
    late_call: str
    """The call of its program."""
    late_session: str
    refund_session: str


@asynccontextmanager
async def open_scene(folder: Path) -> AsyncGenerator[Scene]:
    # Each conversation plays the script that its first message names.
    scripts: dict[str, Script] = {text: (Say("Done."),) for text in _OTHERS}
    scripts[_LATE_PROMPT] = ((Think(_THOUGHT), Call("exec", {"code": _LATE})), Say(_ANSWER))
    scripts[_REFUND_PROMPT] = (Call("exec", {"code": _REFUND}), Say("The refund is on its way."))
    model = ScriptedModel()
    pattern = "|".join(re.escape(text) for text in scripts)
    model.provider = ScriptedProvider(scripts, script_for=by_marker(pattern))
    async with model.provider, open_outside() as outside:
        home = Home(folder, model, outside)
        await _configure(home)
        async with home.gateway() as gateway:
            for text in _OTHERS:
                await gateway.finished(text, title=text)
            refund = await gateway.start(_REFUND_PROMPT)
            await gateway.event(refund, "approval.requested")
            late = await gateway.finished(_LATE_PROMPT)
            yield Scene(
                gateway=gateway,
                late_run=late["runId"],
                late_call=await _find_program(gateway, late["runId"]),
                late_session=late["sessionId"],
                refund_session=(await gateway.get(f"/api/runs/{refund}"))["sessionId"],
            )


async def _find_program(gateway: Gateway, run_id: str) -> str:
    events = (await gateway.get(f"/api/runs/{run_id}/trajectory"))["events"]
    return next(it["event"]["toolCallId"] for it in events if it["event"]["kind"] == "cell.started")


async def _configure(home: Home) -> None:
    await home.configure(tools=CODE_MODE, plugins={}, mcp=time_server())
    path = anyio.Path(home.folder) / "nacre.json5"
    document = json.loads(await path.read_text(encoding="utf-8"))
    document["plugins"]["paths"] = [str(_PLUGINS / "shop")]
    await path.write_text(json.dumps(document, indent=2), encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What a picture shows: a path of the app, and what is there when it is complete."""

    name: str
    path: str
    is_ready: str
    """A CSS selector."""
    click: str = ""
    height: int = 800
    """Of the window on a desktop."""


def pictures_of(scene: Scene) -> list[Picture]:
    return [
        Picture(name="chat", path=f"/sessions/{scene.late_session}", is_ready="table", height=1060),
        Picture(
            name="approval", path=f"/sessions/{scene.refund_session}", is_ready="text=Allow once"
        ),
        Picture(
            name="timeline",
            path=f"/runs/{scene.late_run}",
            is_ready=".status-pill.completed",
            click=".waterfall-row.kind-cell",
        ),
        Picture(
            name="replay",
            path=f"/runs/{scene.late_run}?replay={scene.late_call}",
            is_ready=".status-pill.completed:has-text('No difference')",
            height=860,
        ),
        Picture(
            name="catalog",
            path="/catalog?q=late+orders&tool=openclaw:shop:orders_list",
            is_ready=".catalog-view:has(.explanation) .tool-page pre",
        ),
        Picture(name="playground", path="/playground", is_ready="text=Run"),
        Picture(name="operate", path="/operate", is_ready=".card"),
        Picture(name="settings", path="/settings", is_ready=".form-field"),
    ]


async def draw(
    browser: Browser, scene: Scene, state: StorageState, folder: Path, *, is_phone: bool
) -> None:
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        async with open_app(
            browser,
            scene.gateway.url,
            storage_state=state,
            color_scheme=scheme,
            viewport=_PHONE if is_phone else _DESKTOP,
            device_scale_factor=2 if is_phone else 1,
            has_touch=is_phone,
        ) as app:
            for picture in pictures_of(scene):
                if not is_phone:
                    await app.page.set_viewport_size({**_DESKTOP, "height": picture.height})
                name = f"web_{picture.name}_{scheme}{'_phone' if is_phone else ''}.png"
                if folder == IMAGES and name not in _IN_DOCS:
                    continue
                page = await app.open(picture.path)
                await _draw_one(page, picture)
                await page.screenshot(path=folder / name)
            app.check()


async def _draw_one(page: Page, picture: Picture) -> None:
    await expect(page.locator(picture.is_ready).first).to_be_visible(timeout=PATIENCE_MS)
    if picture.click:
        await page.locator(picture.click).first.click()
    await page.evaluate("() => document.fonts.ready")


async def sign_in(app: App, link: str) -> StorageState:
    await app.page.goto(link)
    await expect(app.page.get_by_role("navigation")).to_be_visible()
    return await app.context.storage_state()


async def main(folder: Path) -> None:
    program = find_chromium()
    if program is None:
        sys.exit(f"error: {HOW_TO_GET_IT}")
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as home:
        async with open_browser(program) as browser, open_scene(Path(home)) as scene:
            async with open_app(browser, scene.gateway.url) as app:
                state = await sign_in(app, scene.gateway.app_url)
            await draw(browser, scene, state, folder, is_phone=False)
            await draw(browser, scene, state, folder, is_phone=True)


if __name__ == "__main__":
    forked_starts = ForkedStarts()
    forked_starts.prepare_if_used()
    try:
        anyio.run(main, Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
    finally:
        forked_starts.close()
