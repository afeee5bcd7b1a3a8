"""Pages of the web app, as a test uses them."""

import base64
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    expect,
)

# Longer than a sound page needs for anything, on a machine with much else to do.
PATIENCE_MS = 30_000
# Each frame of an animation costs time, for nothing.
CONTEXT_OPTIONS: Mapping[str, Any] = {"reduced_motion": "reduce"}
# An image.
ONE_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_AXE = Path(__file__).parents[2] / "tooling" / "node_modules" / "axe-core" / "axe.min.js"
_SERIOUS = {"serious", "critical"}
# What a browser says about a script, a style or a text that the page's policy forbids.
_VIOLATIONS = ("Content Security Policy", "TrustedHTML", "TrustedScript")


@dataclass(kw_only=True)
class App:
    """A browser window with its own cookies; `page` is its first tab."""

    url: str
    context: BrowserContext
    page: Page
    problems: list[str] = field(default_factory=list[str])

    async def open(self, path: str, page: Page | None = None) -> Page:
        """Go to a path of the app, such as `/operate`."""
        opened = page or self.page
        await opened.goto(f"{self.url}/app{path}")
        return opened

    async def new_tab(self, path: str) -> Page:
        page = await self.context.new_page()
        self.watch(page)
        return await self.open(path, page)

    def watch(self, page: Page) -> None:
        """Note errors of scripts, and what the policy of the page has stopped."""
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", self._note_error)
        page.on("console", self._note_message)

    def check(self) -> None:
        """Fail if a script of the page failed, or did what the policy forbids."""
        assert self.problems == []

    async def save_screenshots(self, folder: Path) -> None:
        for number, page in enumerate(self.context.pages, start=1):
            await page.screenshot(path=folder / f"page-{number}.png")

    def _note_error(self, error: Error) -> None:
        self.problems.append(error.message)

    def _note_message(self, message: ConsoleMessage) -> None:
        if any(each in message.text for each in _VIOLATIONS):
            self.problems.append(message.text)


@asynccontextmanager
async def open_app(browser: Browser, url: str, **options: Any) -> AsyncGenerator[App]:
    """A window of the app; `options` are those of Playwright's `new_context`."""
    context = await browser.new_context(**{**CONTEXT_OPTIONS, **options})
    try:
        page = await context.new_page()
        opened = App(url=url, context=context, page=page)
        opened.watch(page)
        yield opened
    finally:
        await context.close()


async def find_barriers(page: Page) -> Sequence[str]:
    """What axe finds serious or critical: the rule, and the first elements that break it."""
    await page.evaluate(_AXE.read_text(encoding="utf-8"))
    found = await page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {node['target']}"
        for violation in found["violations"]
        for node in violation["nodes"]
        if violation["impact"] in _SERIOUS and not _is_row_of_a_tree(violation, node)
    ]


def _is_row_of_a_tree(violation: dict[str, Any], node: dict[str, Any]) -> bool:
    """A row contains the rows below it, so that its name cannot contain all of its text."""
    return violation["id"] == "label-content-name-mismatch" and 'role="treeitem"' in node["html"]


def program(page: Page) -> Locator:
    """The code cell in the chat. Its name has its state: `Program, running`."""
    return page.get_by_role("region", name=re.compile("^Program, "))


def nested_call(page: Page, name: str) -> Locator:
    """A row of the tree of calls. Its name has its state: `kit_add, completed`."""
    return page.get_by_role("treeitem", name=re.compile(f"^{name}, "))


async def send(page: Page, text: str) -> None:
    """Write a message and send it."""
    box = page.get_by_role("textbox", name="Message")
    await box.fill(text)
    await box.press("Enter")
    await expect(box).to_have_value("")
