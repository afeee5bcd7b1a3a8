"""The OpenAPI document against the gateway: what it promises holds for requests made up from it."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from tests.e2e.gateways import CODE_MODE, TOKEN, Gateway, Home

SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))
OWN = (
    "--include-path-regex",
    "^/(api|healthz|readyz|metrics)",
    "--exclude-name-regex",
    "^POST /api/(runs|ag-ui|diagnostics)$",
    # A stream without an end.
    "--exclude-path",
    "/api/events",
)
# OpenAI decides what a conversation may hold, and two client tools must not have the same name. A
# schema cannot say either, so requests that fit it may be refused. All else holds.
STARTS = (
    "--include-name-regex",
    "^(POST /api/(runs|ag-ui|diagnostics)$|[A-Z]+ /v1)",
    "--exclude-checks",
    "positive_data_acceptance",
)


@pytest.fixture(scope="module")
async def gateway(shared_home: Home) -> AsyncGenerator[Gateway]:
    """With the demonstration model: whatever is made up gets an answer."""
    agents = {"defaults": {"model": "demo/demo", "workspace": str(shared_home.folder)}}
    # The examples of the document ask for a model of OpenAI.
    models = {"providers": {"openai": {"api": "demo"}}}
    await shared_home.configure(tools=CODE_MODE, agents=agents, models=models)
    async with shared_home.gateway() as started:
        yield started


@pytest.mark.parametrize("selection", [OWN, STARTS], ids=["own API", "starts of runs"])
async def test_what_the_document_promises_holds(
    shared_home: Home, gateway: Gateway, selection: tuple[str, ...]
) -> None:
    with anyio.fail_after(400):
        done = await anyio.run_process(
            [
                *(SCHEMATHESIS, "run", f"{gateway.url}/openapi.json", *selection),
                *("-H", f"Authorization: Bearer {TOKEN}"),
                *("--seed", "1", "--generation-deterministic", "--max-examples", "5"),
                *("--phases", "examples,coverage,fuzzing", "--request-timeout", "60"),
                *("--warnings", "off", "--no-color"),
            ],
            cwd=shared_home.folder,
            check=False,
        )
    assert done.returncode == 0, done.stdout.decode()
    assert "No issues found" in done.stdout.decode()
    assert "Traceback" not in gateway.logs.text
