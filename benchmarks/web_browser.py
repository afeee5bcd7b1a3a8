"""Chromium with the web app of a gateway: windows that are signed in, tasks, CPU time, memory."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from playwright.async_api import Browser, Page

from benchmarks.gateway_model import Script, quick_model
from benchmarks.gateway_peer import TOKEN, Client, Peer, gateway, write_config
from benchmarks.measurement import median
from benchmarks.report import Figure
from tests.web.browsers import HOW_TO_GET_IT, find_chromium, open_browser

PATIENCE_MS: Final = 120_000
_CODE_MODE: Final = {"codeMode": {"enabled": True}}
_TASKS: Final = "disabled-by-default-devtools.timeline"
_MAIN_THREAD: Final = "CrRendererMain"
# Runs in each page before its own scripts. The promise has the time at which the message box could
# be used, and was drawn, in milliseconds since the start of the navigation.
_WATCH_MESSAGE_BOX: Final = """
window.messageBox = new Promise((resolve) => {
  const observer = new MutationObserver(() => {
    const box = document.querySelector(".composer textarea");
    if (box === null || box.disabled || box.readOnly) return;
    observer.disconnect();
    // The task after the next frame: the box is drawn, and the page can take a key press.
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => resolve(performance.now());
      channel.port2.postMessage(null);
    });
  });
  observer.observe(document, { childList: true, subtree: true, attributes: true });
});
"""


@dataclass(kw_only=True)
class Tasks:
    """The tasks of the main thread of a page, in milliseconds: by the clock, and CPU time."""

    wall: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])

    def count_over(self, milliseconds: float) -> int:
        return sum(each > milliseconds for each in self.wall)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A browser window with its own cookies and cache, signed in to the gateway."""

    url: str
    page: Page
    session: Any
    """The `CDPSession` of the page, whose types are not known."""

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol."""
        return await self.session.send(method, parameters)

    async def open(self, path: str) -> float:
        """Go to a path of the app; return when the message box could be used, in milliseconds."""
        await self.page.goto(f"{self.url}/app{path}", wait_until="commit")
        return float(await self.page.evaluate("() => window.messageBox"))

    async def cpu_ms(self) -> float:
        """The CPU time of the main thread so far, since the navigation."""
        return (await self._metrics())["TaskDuration"] * 1000

    async def heap_mb(self) -> float:
        """The JavaScript heap after garbage collection."""
        await self.send("HeapProfiler.collectGarbage")
        return (await self.send("Runtime.getHeapUsage"))["usedSize"] / 1e6

    async def node_count(self) -> int:
        """The DOM nodes of the page."""
        return int((await self._metrics())["Nodes"])

    async def _metrics(self) -> dict[str, float]:
        found = await self.send("Performance.getMetrics")
        return {each["name"]: each["value"] for each in found["metrics"]}


@dataclass(frozen=True, kw_only=True)
class WebApp:
    """A gateway process, and a browser."""

    peer: Peer
    browser: Browser

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[Client]:
        """A new connection to the API, because the gateway closes idle ones."""
        client = await Client.connect(self.peer)
        try:
            yield client
        finally:
            client.close()

    @asynccontextmanager
    async def window(self) -> AsyncGenerator[Window]:
        url = f"http://127.0.0.1:{self.peer.port}"
        context = await self.browser.new_context(viewport={"width": 1280, "height": 800})
        try:
            context.set_default_timeout(PATIENCE_MS)
            await context.add_init_script(_WATCH_MESSAGE_BOX)
            answer = await context.request.post(
                f"{url}/api/web/sign-in", data={"token": TOKEN}, headers={"origin": url}
            )
            if not answer.ok:
                raise RuntimeError(f"the sign-in failed: {answer.status} {await answer.text()}")
            page = await context.new_page()
            window = Window(url=url, page=page, session=await context.new_cdp_session(page))
            # CPU time of the main thread, which other processes of the machine do not change.
            await window.send("Performance.enable", timeDomain="threadTicks")
            await window.send("HeapProfiler.enable")
            yield window
        finally:
            await context.close()

    @asynccontextmanager
    async def trace(self, window: Window) -> AsyncGenerator[Tasks]:
        """The tasks of the window within the block; filled in at its end."""
        tasks = Tasks()
        await self.browser.start_tracing(page=window.page, categories=[_TASKS])
        try:
            yield tasks
        finally:
            document = json.loads(await self.browser.stop_tracing())
        _collect_tasks(document["traceEvents"], tasks)


def _collect_tasks(events: list[dict[str, Any]], tasks: Tasks) -> None:
    threads = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == _MAIN_THREAD
    }
    by_thread: dict[tuple[int, int], list[dict[str, Any]]] = {thread: [] for thread in threads}
    for each in events:
        thread = (each["pid"], each["tid"])
        if each["name"] == "RunTask" and "dur" in each and thread in by_thread:
            by_thread[thread].append(each)
    # The browser also has renderers without a page, which do nothing.
    found = max(by_thread.values(), key=lambda own: sum(each["dur"] for each in own))
    tasks.wall = [each["dur"] / 1000 for each in found]
    tasks.cpu = [each.get("tdur", 0) / 1000 for each in found]


@asynccontextmanager
async def open_web_app(program: str, script: Script) -> AsyncGenerator[WebApp]:
    """A gateway whose model follows the script, and a browser; `program` is a Chromium."""
    with TemporaryDirectory() as folder:
        async with quick_model(script) as model:
            write_config(Path(folder), model.url, _CODE_MODE)
            _allow_long_sessions(Path(folder) / "nacre.json5")
            async with gateway(Path(folder)) as peer, open_browser(program) as browser:
                yield WebApp(peer=peer, browser=browser)


def _allow_long_sessions(path: Path) -> None:
    """A session is not summarised, however long it is."""
    document = json.loads(path.read_text(encoding="utf-8"))
    document["agents"]["defaults"]["compaction"] = {"enabled": False}
    path.write_text(json.dumps(document), encoding="utf-8")


def unavailable(names: Sequence[str]) -> list[Figure]:
    """The figures of a machine without Chromium."""
    return [Figure(name=name, value=None, note=HOW_TO_GET_IT) for name in names]


def to_figure(name: str, samples: Sequence[float]) -> Figure:
    """The median of the samples; the details are their spread."""
    details = {"least": min(samples), "most": max(samples), "samples": len(samples)}
    return Figure(name=name, value=median(samples), details=details)


def share_of(cpu: Sequence[float], wall: Sequence[float]) -> list[float]:
    """The CPU time in percent of the wall time; low on a machine that does other things."""
    return [100 * own / whole for own, whole in zip(cpu, wall, strict=True)]


__all__ = [
    "PATIENCE_MS",
    "Tasks",
    "WebApp",
    "Window",
    "find_chromium",
    "open_web_app",
    "share_of",
    "to_figure",
    "unavailable",
]
