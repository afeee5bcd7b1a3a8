"""A whole agent service on a store of the test's own, with models that play a script."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from nacre.storage import Store, open_store
from tests.agent.agent_setup import AgentSetup, open_agent
from tests.storage.conftest import postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

OpenAgent = Callable[..., AbstractAsyncContextManager[AgentSetup]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{tmp_path}/nacre.db") as store:
        yield store


@pytest.fixture
def open_service(store: Store, tmp_path: Path) -> OpenAgent:
    """`async with open_service(tools=[...], document={...}) as setup`."""

    def opened(**options: Any) -> AbstractAsyncContextManager[AgentSetup]:
        return open_agent(store=store, folder=tmp_path, **options)

    return opened
