"""Chromium for the browser tests: where it is, and how it is started."""

import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# It runs as root in containers, and must not ask the network for anything.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Processes that tests do not need: each of them takes 0.1 s of CPU time to start.
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
)
HOW_TO_GET_IT = "no Chromium found: install chromium, or set CHROMIUM to the path of the program"


def find_chromium() -> str | None:
    """Return the path of a Chromium or Chrome, from CHROMIUM or PATH."""
    given = os.environ.get("CHROMIUM")
    if given:
        if not Path(given).is_file():
            raise FileNotFoundError(f"CHROMIUM is {given!r}, which is no file")
        return given
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@asynccontextmanager
async def open_browser(program: str) -> AsyncGenerator[Browser]:
    """Start the browser with an empty profile."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        try:
            yield browser
        finally:
            await browser.close()
