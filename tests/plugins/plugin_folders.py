"""Plugins in folders of a test's own."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from nacre.code_mode.namespaces import NamespaceRegistry
from nacre.config.plugins import PluginEntry, PluginsConfig
from nacre.hooks import ContextRegistry, Hooks
from nacre.plugins import MANIFEST_NAME, PluginHost

if TYPE_CHECKING:
    from pathlib import Path

    from nacre.json_types import JsonObject

GREETING = """
from nacre.plugins.api import PluginApi

async def greet(name: str) -> str:
    "Greet somebody."
    return f"hello {name}"

def register(api: PluginApi) -> None:
    api.add_tool(greet)
"""

SLOW_GREETING = """
from tests.plugins.plugin_folders import LOADING

async def greet_slowly(name: str) -> str:
    "Greet somebody."
    return f"hello {name}"

def register(api):
    LOADING.started.set()
    LOADING.may_end.wait()
    api.add_tool(greet_slowly)
"""


class Loading:
    """A plugin with the code above tells that it loads, and waits for the test."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.may_end = threading.Event()


LOADING = Loading()


def plugin_folder(
    folder: Path, plugin_id: str = "greeter", code: str = GREETING, **manifest: object
) -> Path:
    """A folder with a manifest and a `plugin.py`."""
    place = folder / plugin_id
    place.mkdir(parents=True)
    (place / MANIFEST_NAME).write_text(json.dumps({"id": plugin_id, **manifest}), encoding="utf-8")
    (place / "plugin.py").write_text(code, encoding="utf-8")
    return place


class Plugins:
    """A host, and the registries that it writes to."""

    def __init__(self, *reserved_ids: str) -> None:
        self.hooks = Hooks()
        self.namespaces = NamespaceRegistry()
        self.contexts = ContextRegistry()
        self.host = PluginHost(
            hooks=self.hooks,
            namespaces=self.namespaces,
            contexts=self.contexts,
            reserved_ids=reserved_ids,
        )

    async def apply(self, *paths: Path, **entries: JsonObject) -> None:
        await self.host.apply(
            PluginsConfig(
                paths=paths,
                uses_entry_points=False,
                entries={key: PluginEntry(config=config) for key, config in entries.items()},
            )
        )

    @property
    def tool_ids(self) -> list[str]:
        return [tool.id for tool in self.host.tools]

    @property
    def problems(self) -> dict[str, str]:
        return {it.id: it.problem for it in self.host.status() if it.problem}
