"""A runtime for the tests of a file."""

from collections.abc import AsyncIterator

import pytest

from nacre import Runtime


@pytest.fixture(scope="module")
async def runtime() -> AsyncIterator[Runtime]:
    """Two workers: a replay never waits for a cell that is live."""
    async with Runtime(workers=2) as runtime:
        yield runtime
