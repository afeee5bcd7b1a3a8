"""A runtime for tests, and tools whose answers a test controls."""

from collections.abc import AsyncIterator

import pytest

from nacre import Runtime
from tests.storage.conftest import postgres, postgres_server

__all__ = ["postgres", "postgres_server"]


@pytest.fixture(scope="module")
async def shared_runtime() -> AsyncIterator[Runtime]:
    """Two workers, as on a small machine, for a whole file: starting them takes long."""
    async with Runtime(workers=2) as runtime:
        yield runtime


@pytest.fixture
async def runtime(shared_runtime: Runtime) -> AsyncIterator[Runtime]:
    """Without runs and namespaces of the tests before."""
    yield shared_runtime
    await shared_runtime.abort(reason="the test has ended")
    shared_runtime.namespaces.clear()
