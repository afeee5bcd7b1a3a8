"""The real app-server of Codex with a scripted model, and an app-server that misbehaves."""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from nacre.codex_harness.mirror import MIN_ID_VERSION
from nacre.config import CodexConfig, SystemConfig, system_config_from
from nacre.json_types import JsonObject
from nacre.testing import Call

MODEL = "mock/gpt-5.5"
PROGRAM = os.environ.get("CODEX_UNDER_TEST")
"""Another program than the installed one, from `make test-codex-versions`."""
FAKE_SERVER = Path(__file__).parent / "fake_app_server.py"


def _find_version() -> tuple[int, ...]:
    if PROGRAM is None:
        text = version("openai-codex-cli-bin")
    else:
        text = subprocess.check_output([PROGRAM, "--version"], text=True).split()[-1]
    return tuple(map(int, text.split(".")[:3]))


CODEX_VERSION = _find_version()
"""The version of Codex that the tests use, for what older ones lack."""
HAS_CONTEXT = CODEX_VERSION >= MIN_ID_VERSION
"""Whether facts of a turn are context; in older versions they are part of its input."""


def skip_old_codex(reason: str) -> pytest.MarkDecorator:
    """Skip a test with the oldest supported versions; the reason says what they lack."""
    version = ".".join(map(str, CODEX_VERSION))
    return pytest.mark.skipif(not HAS_CONTEXT, reason=f"Codex {version} {reason}")


def mcp_call(server: str, tool: str, arguments: JsonObject, call_id: str = "") -> Call:
    """A call of a tool of an MCP server that Codex runs itself, as this version names it."""
    namespace = f"mcp__{server}" if HAS_CONTEXT else f"mcp__{server}__"
    return Call(tool, arguments, call_id, namespace=namespace)


def codex_document(
    url: str,
    *,
    agent: Mapping[str, Any] | None = None,
    codex: Mapping[str, Any] | None = None,
    **sections: Any,
) -> dict[str, Any]:
    """A document whose model `mock/gpt-5.5` at `url` runs in Codex."""
    provider = {
        "api": "openai-responses",
        "baseUrl": url,
        "apiKey": "sk-of-the-mock",
        "maxRetries": 0,
        "agentRuntime": {"id": "codex"},
    }
    return {
        "models": {"providers": {"mock": provider}},
        "agents": {"defaults": {"model": MODEL, **(agent or {})}},
        "plugins": {"entries": {"codex": {"config": _with_program(codex or {})}}},
        **sections,
    }


async def read_config(document: Mapping[str, Any], folder: Path) -> SystemConfig:
    """The configuration, with all directories of the user below `folder`."""
    environment = {
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_DATA_HOME": str(folder / "data"),
    }
    # Looks for folders, so not on the event loop.
    return await anyio.to_thread.run_sync(
        partial(system_config_from, document, environment=environment, folder=folder)
    )


async def codex_config(folder: Path, app_server: Mapping[str, Any] | None = None) -> CodexConfig:
    """The settings of the harness alone."""
    codex = _with_program({"appServer": app_server or {}})
    document = {"plugins": {"entries": {"codex": {"config": codex}}}}
    return (await read_config(document, folder)).codex


def _with_program(codex: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the program that `make test-codex-versions` names."""
    server = {"command": PROGRAM} if PROGRAM else {}
    return {**codex, "appServer": {**server, **codex.get("appServer", {})}}


def fake_server(*steps: str, **settings: Any) -> dict[str, Any]:
    """Settings of an app-server that misbehaves; the module of the server lists the steps."""
    return {"command": sys.executable, "args": [str(FAKE_SERVER), *steps], **settings}


def mock_provider_config(url: str) -> JsonObject:
    """Thread config that makes `url` the model provider `mock`."""
    return {
        "model_providers.mock": {
            "name": "mock",
            "base_url": url,
            "wire_api": "responses",
            "requires_openai_auth": False,
            "supports_websockets": False,
            "request_max_retries": 0,
            "stream_max_retries": 0,
        }
    }
