"""Plugins of installed packages: found by their entry point, read before anything runs."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from nacre.config.plugins import PluginsConfig
from nacre.plugins import MANIFEST_NAME
from nacre.plugins.manifest import PluginManifest
from nacre.plugins.sources import BrokenSource, PluginModules, PluginSource, find_sources
from tests.plugins.plugin_folders import GREETING, Plugins

INSTALLED = PluginsConfig()


def install(
    folder: Path,
    *,
    name: str = "greeter",
    manifest_id: str = "greeter",
    value: str = "greeting_package.main:register",
) -> None:
    """A package as pip leaves it: its files, and what its metadata says of it."""
    package = folder / "greeting_package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "main.py").write_text(GREETING, encoding="utf-8")
    (package / MANIFEST_NAME).write_text(json.dumps({"id": manifest_id}), encoding="utf-8")
    metadata = folder / "greeting-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: greeting\nVersion: 1.0\n", encoding="utf-8")
    points = f"[nacre.plugins]\n{name} = {value}\n"
    (metadata / "entry_points.txt").write_text(points, encoding="utf-8")


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    for name in [name for name in sys.modules if name.startswith("greeting_package")]:
        del sys.modules[name]


def test_an_installed_plugin_is_found_without_importing_it(tmp_path: Path) -> None:
    install(tmp_path)
    (source,) = find_sources(INSTALLED)
    assert isinstance(source, PluginSource)
    assert (source.manifest.id, source.folder) == ("greeter", tmp_path / "greeting_package")
    assert source.origin == "nacre.plugins: greeter = greeting_package.main:register"
    assert "greeting_package" not in sys.modules


async def test_an_installed_plugin_is_loaded_and_unloaded(tmp_path: Path) -> None:
    install(tmp_path)
    plugins = Plugins()
    await plugins.host.apply(INSTALLED)
    assert plugins.tool_ids == ["openclaw:greeter:greet"]
    await plugins.host.unload("greeter")
    assert [name for name in sys.modules if name.startswith("greeting_package")] == []


def test_the_entry_points_name_has_to_be_the_id(tmp_path: Path) -> None:
    install(tmp_path, name="hello")
    assert find_sources(INSTALLED) == [
        BrokenSource(
            name="hello",
            origin="nacre.plugins: hello = greeting_package.main:register",
            problem="it is named 'hello', but its nacre.plugin.json has the id 'greeter'",
        )
    ]


def test_a_package_without_a_manifest_is_reported(tmp_path: Path) -> None:
    install(tmp_path)
    (tmp_path / "greeting_package" / MANIFEST_NAME).unlink()
    (source,) = find_sources(INSTALLED)
    assert isinstance(source, BrokenSource)
    assert "nacre.plugin.json cannot be read" in source.problem


@pytest.mark.parametrize("value", ["!!", ":register", "a b", ".main:register"])
def test_an_entry_point_that_is_none_is_reported(tmp_path: Path, value: str) -> None:
    install(tmp_path, value=value)
    (source,) = find_sources(INSTALLED)
    assert isinstance(source, BrokenSource)
    assert source.problem == "its entry point is not of the form package.module:function"


async def test_an_entry_point_may_name_extras(tmp_path: Path) -> None:
    install(tmp_path, value="greeting_package.main:register [more]")
    plugins = Plugins()
    async with plugins.host:
        await plugins.host.apply(INSTALLED)
        assert plugins.tool_ids == ["openclaw:greeter:greet"]


def install_two(folder: Path) -> None:
    """One package with two plugins, each in a package of its own, and a module that both use."""
    names = ("hello", "goodbye")
    for name in names:
        package = folder / "greeting_package" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            "from greeting_package import shared", encoding="utf-8"
        )
        (package / "main.py").write_text(GREETING, encoding="utf-8")
        (package / MANIFEST_NAME).write_text(json.dumps({"id": name}), encoding="utf-8")
    (folder / "greeting_package" / "shared.py").write_text("", encoding="utf-8")
    metadata = folder / "greeting-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: greeting\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"{name} = greeting_package.{name}.main:register" for name in names]
    points = "\n".join(["[nacre.plugins]", *lines, ""])
    (metadata / "entry_points.txt").write_text(points, encoding="utf-8")


async def test_two_plugins_of_one_package_have_manifests_and_modules_of_their_own(
    tmp_path: Path,
) -> None:
    install_two(tmp_path)
    plugins = Plugins()
    async with plugins.host:
        await plugins.host.apply(INSTALLED)
        assert plugins.problems == {}
        assert plugins.tool_ids == ["openclaw:goodbye:greet", "openclaw:hello:greet"]
        kept = sys.modules["greeting_package.hello.main"]
        shared = sys.modules["greeting_package.shared"]

        await plugins.host.unload("goodbye")

        assert sys.modules["greeting_package.hello.main"] is kept
        assert sys.modules["greeting_package.shared"] is shared
        left = [name for name in sys.modules if name.startswith("greeting_package.goodbye")]
        assert left == []
        assert not hasattr(sys.modules["greeting_package"], "goodbye")


async def test_a_plugin_inside_of_anothers_package_stays_when_that_one_goes(tmp_path: Path) -> None:
    install_two(tmp_path)
    outer = tmp_path / "greeting_package"
    (outer / "main.py").write_text(GREETING, encoding="utf-8")
    (outer / MANIFEST_NAME).write_text(json.dumps({"id": "all"}), encoding="utf-8")
    points = tmp_path / "greeting-1.0.dist-info" / "entry_points.txt"
    points.write_text(
        f"{points.read_text(encoding='utf-8')}all = greeting_package.main:register\n",
        encoding="utf-8",
    )
    plugins = Plugins()
    async with plugins.host:
        await plugins.host.apply(INSTALLED)
        assert len(plugins.tool_ids) == 3
        await plugins.host.unload("all")
        assert "greeting_package.main" not in sys.modules
        assert "greeting_package.hello.main" in sys.modules


def test_entry_points_can_be_left_alone(tmp_path: Path) -> None:
    install(tmp_path)
    assert find_sources(PluginsConfig(uses_entry_points=False)) == []


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
