"""The debug switch of code mode: what it shows, and what it keeps to itself."""

import logging
from collections.abc import Iterator

import pytest

from nacre import CodeMode, tool
from nacre.telemetry.debug_flags import get_debug_flags


@tool
async def find_key(name: str) -> str:
    """Find a key."""
    return f"sk-{name}"


@pytest.fixture
def read_again() -> Iterator[None]:
    get_debug_flags.cache_clear()
    yield
    get_debug_flags.cache_clear()


async def lines_of_a_run(caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.INFO, logger="nacre.debug"):
        async with CodeMode(tools=[find_key]) as code_mode:
            await code_mode.exec('return await tools.find_key({ name: "hidden" })')
    return [record.getMessage() for record in caplog.records if "debug" in record.name]


@pytest.mark.usefixtures("read_again")
async def test_the_switch_shows_the_surface_the_cells_and_their_calls(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENCLAW_DEBUG_CODE_MODE", "1")
    lines = await lines_of_a_run(caplog)
    assert "code mode is active; the model sees exec, wait; the catalog has 1 openclaw" in lines[0]
    kinds = [line.split()[0] for line in lines[1:]]
    assert kinds == [
        "call.started",
        "cell.started",
        "call.started",
        "call.ended",
        "cell.ended",
        "call.ended",
    ]
    assert "toolId=openclaw:core:find_key" in lines[3]
    assert "hidden" not in "\n".join(lines)


@pytest.mark.usefixtures("read_again")
async def test_without_the_switch_nothing_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("OPENCLAW_DEBUG_CODE_MODE", raising=False)
    assert await lines_of_a_run(caplog) == []
