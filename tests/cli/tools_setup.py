"""Servers and tools for tests of the `tools` commands."""

import sys
from pathlib import Path
from typing import Any

from tests.cli.surroundings import Surroundings

CALLING_SERVER = Path(__file__).with_name("calling_mcp_server.py")

OWN_TOOLS = '''
async def add(a: int, b: int = 2) -> int:
    """Add two numbers. They are whole."""
    return a + b

async def greet(name: str) -> str:
    """Say hello."""
    return f"hello {name}"

async def explode() -> None:
    """Fail."""
    raise ValueError("no such table")

async def forget() -> None:
    """Give nothing back."""

TOOLS = [add, greet, explode, forget]
'''

WITHOUT_CORE: dict[str, Any] = {"deny": ["group:fs", "group:messaging"]}
"""For `tools` of a configuration: none of the tools that every agent has."""


def calling_server(**more: Any) -> dict[str, Any]:
    """An entry that starts a server whose tools can be called."""
    return {"command": sys.executable, "args": [str(CALLING_SERVER)], **more}


def own_tools(surroundings: Surroundings, name: str) -> str:
    """What `--tools` takes for a module of this name with some tools."""
    # Imported modules stay: each test needs a name of its own.
    module = surroundings.project / f"{name}.py"
    module.write_text(OWN_TOOLS, encoding="utf-8")
    return f"{name}:TOOLS"
