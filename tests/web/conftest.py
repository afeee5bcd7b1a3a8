"""A browser for all tests, a gateway for each module, a page that is signed in for each test."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from playwright.async_api import Browser, StorageState, expect

from tests.e2e.gateways import CODE_MODE, Gateway, Home, open_home
from tests.web.browsers import HOW_TO_GET_IT, find_chromium, open_browser
from tests.web.pages import PATIENCE_MS, App, open_app

_reports = pytest.StashKey[dict[str, pytest.TestReport]]()

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
async def browser() -> AsyncGenerator[Browser]:
    """One for all tests; each test has its own cookies and storage."""
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


@pytest.fixture
async def app(
    request: pytest.FixtureRequest,
    browser: Browser,
    gateway: Gateway,
    signed_in: StorageState,
    tmp_path: Path,
) -> AsyncGenerator[App]:
    """A page that is signed in. If the test fails, its screenshot is in `tmp_path`."""
    async with open_app(browser, gateway.url, storage_state=signed_in) as opened:
        yield opened
        report = request.node.stash.get(_reports, {}).get("call")
        if report is not None and report.failed:
            await opened.save_screenshots(tmp_path)
        else:
            opened.check()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let fixtures know whether their test failed."""
    report = yield
    item.stash.setdefault(_reports, {})[report.when] = report
    return report
