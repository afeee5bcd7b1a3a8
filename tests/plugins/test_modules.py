"""Modules of a plugin that are forgotten while they are still being imported."""

import sys
import threading
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from nacre.plugins.manifest import PluginManifest
from nacre.plugins.modules import PluginModules
from nacre.plugins.sources import PluginSource

SLOW = """
from importing_test import is_importing, may_go_on

is_importing.set()
assert may_go_on.wait(5)
from slow_package import helper

def register(api): ...
"""


def slow_source(folder: Path) -> PluginSource:
    package = folder / "slow_package"
    package.mkdir()
    for name, code in (("__init__", ""), ("helper", ""), ("main", SLOW)):
        (package / f"{name}.py").write_text(code, encoding="utf-8")
    point = EntryPoint(name="slow", value="slow_package.main:register", group="nacre.plugins")
    manifest = PluginManifest(id="slow", name="slow")
    return PluginSource(
        manifest=manifest, folder=package, entry_point=point, package="slow_package"
    )


def test_an_import_that_ends_after_it_was_given_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_importing, may_go_on = threading.Event(), threading.Event()
    signals = ModuleType("importing_test")
    vars(signals).update(is_importing=is_importing, may_go_on=may_go_on)
    monkeypatch.setitem(sys.modules, "importing_test", signals)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    modules = PluginModules(slow_source(tmp_path))

    def load() -> None:
        # What Python says of a module that was taken away under its hands.
        with suppress(KeyError):
            modules.load_entry()

    thread = threading.Thread(target=load)
    thread.start()
    assert is_importing.wait(5)
    modules.unload()
    may_go_on.set()
    thread.join(5)

    assert not thread.is_alive()
    assert [name for name in sys.modules if name.startswith("slow_package")] == []
