"""The first view of the web app: until the message box can be used, and what it loads."""

import json
from importlib.resources import files
from typing import Any, Final

from benchmarks.gateway_model import Spoken
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.web_browser import (
    find_chromium,
    open_web_app,
    share_of,
    to_figure,
    unavailable,
)
from nacre.testing.script import Say

_SESSIONS: Final = 50
_NAMES: Final = (
    "web_first_view",
    "web_first_view_cpu",
    "web_first_view_share",
    "web_first_view_cached",
)


def _script(_: dict[str, Any]) -> list[Spoken]:
    return [Say("Here you are.")]


async def measure(effort: Effort) -> list[Figure]:
    sizes = _sizes()
    program = find_chromium()
    if program is None:
        return [sizes, *unavailable(_NAMES)]
    first: list[float] = []
    again: list[float] = []
    cpu: list[float] = []
    async with open_web_app(program, _script) as app:
        async with app.client() as client:
            for number in range(_SESSIONS):
                await client.chat("say something", user=f"user {number}")
        for number in range(effort.times(21, quick=5) + 1):
            async with app.window() as window:
                opened = await window.open("/")
                used = await window.cpu_ms()
                opened_again = await window.open("/")
            if number > 0:  # The first window warms up the gateway and the browser.
                first.append(opened)
                cpu.append(used)
                again.append(opened_again)
    return [
        sizes,
        to_figure("web_first_view", first),
        to_figure("web_first_view_cpu", cpu),
        to_figure("web_first_view_share", share_of(cpu, first)),
        to_figure("web_first_view_cached", again),
    ]


def _sizes() -> Figure:
    """What the first view loads, compressed with gzip."""
    text = files("nacre.gateway").joinpath("assets", "manifest.json").read_text(encoding="utf-8")
    manifest = json.loads(text)
    sizes = {name: manifest["files"][name]["gzipBytes"] / 1000 for name in manifest["firstView"]}
    return Figure(name="web_first_view_size", value=sum(sizes.values()), details=sizes)
