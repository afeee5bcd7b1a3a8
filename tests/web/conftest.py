"""A browser for all tests, a gateway for each module, a page that is signed in for each test."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, StorageState, expect

from tests.e2e.gateways import CODE_MODE, Gateway, Home, open_home
from tests.web.browsers import HOW_TO_GET_IT, find_chromium, open_browser
from tests.web.pages import CONTEXT_OPTIONS, PATIENCE_MS, App

_reports = pytest.StashKey[dict[str, pytest.TestReport]]()

expect.set_options(timeout=PATIENCE_MS)


# Not for the session: tests after these run without an event loop, some of them.
@pytest.fixture(scope="package")
async def browser() -> AsyncGenerator[Browser]:
    """One for all tests of a process; each test starts with the same cookies and storage."""
    program = find_chromium()
    if program is None:
        pytest.skip(HOW_TO_GET_IT)
    async with open_browser(program) as opened:
        yield opened


@pytest.fixture(scope="module")
async def shared_home(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> AsyncGenerator[Home]:
    """A folder with a configuration, for all tests of a module."""
    async with open_home(tmp_path_factory.mktemp("web")) as opened:
        await opened.configure(tools=CODE_MODE)
        yield opened


@pytest.fixture(scope="module")
async def gateway(shared_home: Home) -> AsyncGenerator[Gateway]:
    """A gateway process, for all tests of a module."""
    async with shared_home.gateway() as started:
        yield started


@pytest.fixture(scope="module")
async def signed_in(browser: Browser, gateway: Gateway) -> StorageState:
    """The cookies of a browser that has opened the printed link."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(gateway.app_url)
    await expect(page.get_by_role("navigation")).to_be_visible()
    state = await context.storage_state()
    await context.close()
    return state


@pytest.fixture(scope="module")
async def shared_context(browser: Browser, gateway: Gateway) -> AsyncGenerator[BrowserContext]:
    """For the pages of all tests of a module: to open one for each test takes 0.2 s of CPU time."""
    context = await browser.new_context(**CONTEXT_OPTIONS)
    # It keeps the process that draws the pages.
    first = await context.new_page()
    await first.goto(f"{gateway.url}/healthz")
    yield context
    await context.close()


@pytest.fixture
async def app(
    request: pytest.FixtureRequest,
    shared_context: BrowserContext,
    gateway: Gateway,
    signed_in: StorageState,
    tmp_path: Path,
) -> AsyncGenerator[App]:
    """A new page that is signed in. If the test fails, its screenshot is in `tmp_path`.

    Whatever outlives a page is as it was, except for what `page.clock` and init scripts change in a
    context: use `open_app` for them.
    """
    first = shared_context.pages[0]
    await first.evaluate("localStorage.clear()")
    await shared_context.clear_permissions()
    await shared_context.clear_cookies()
    await shared_context.add_cookies([{**cookie} for cookie in signed_in.get("cookies", ())])
    opened = App(url=gateway.url, context=shared_context, page=await shared_context.new_page())
    opened.watch(opened.page)
    try:
        yield opened
        report = request.node.stash.get(_reports, {}).get("call")
        if report is not None and report.failed:
            await opened.save_screenshots(tmp_path)
        else:
            opened.check()
    finally:
        for page in shared_context.pages[1:]:
            await page.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let fixtures know whether their test failed."""
    report = yield
    item.stash.setdefault(_reports, {})[report.when] = report
    return report
