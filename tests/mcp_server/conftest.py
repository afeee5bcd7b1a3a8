"""A runtime with one worker, and both eras of the protocol."""

from collections.abc import AsyncIterator

import pytest

from nacre import Runtime
from tests.mcp_server.clients import Era


@pytest.fixture(scope="module")
async def shared_runtime() -> AsyncIterator[Runtime]:
    """One for a whole file: starting a worker takes long."""
    async with Runtime(workers=1) as runtime:
        yield runtime


@pytest.fixture
async def runtime(shared_runtime: Runtime) -> AsyncIterator[Runtime]:
    """Without runs of the tests before."""
    yield shared_runtime
    await shared_runtime.abort(reason="the test has ended")


@pytest.fixture(scope="module", params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> Era:
    """With a handshake and a way back to the client, or without both (2026-07-28)."""
    return request.param
