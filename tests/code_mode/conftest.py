"""A runtime for tests, and tools whose answers a test controls."""

from collections.abc import AsyncIterator

import pytest

from nacre import Runtime


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    """Two workers, as on a small machine."""
    async with Runtime(workers=2) as runtime:
        yield runtime
