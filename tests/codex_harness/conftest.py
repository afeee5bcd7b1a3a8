"""An agent service on a store of its own, and app-servers without a slow login shell."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nacre.code_mode import Runtime
from nacre.codex_harness import open_codex_harness
from nacre.storage import Store
from tests.agent.agent_setup import AgentSetup
from tests.agent.conftest import OpenAgent, open_service, store
from tests.codex_harness.codex_setup import MODEL, codex_document

__all__ = ["open_service", "store"]


@pytest.fixture
def open_codex(store: Store, open_service: OpenAgent, tmp_path: Path) -> OpenAgent:
    """`async with open_codex(url, tools=[...]) as setup`: turns run in the real app-server."""

    @asynccontextmanager
    async def opened(
        url: str,
        *,
        model: str = MODEL,
        codex: Mapping[str, Any] | None = None,
        document: Mapping[str, Any] | None = None,
        approval_seconds: float = 3600,
        **options: Any,
    ) -> AsyncGenerator[AgentSetup]:
        whole = {**codex_document(url, codex=codex), **(document or {})}
        agent = {"model": model, "workspace": str(tmp_path / "workspace")}
        async with (
            open_codex_harness(Runtime(approval_seconds=approval_seconds), store) as harness,
            open_service(harness=harness, document=whole, agent=agent, **options) as setup,
        ):
            yield setup

    return opened


@pytest.fixture(autouse=True)
def home_without_shell_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Codex reads the login shell of each thread; that of a developer may take a second."""
    home = Path(tmp_path_factory.getbasetemp()) / "home"
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
