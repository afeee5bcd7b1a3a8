"""A sandbox that the tests of a file share."""

from collections.abc import AsyncIterator

import pytest

from nacre.sandbox import Sandbox, SandboxOptions


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    """Two workers, as on a small machine."""
    async with Sandbox(SandboxOptions(workers=2)) as sandbox:
        yield sandbox
