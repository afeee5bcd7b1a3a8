"""Plugins of installed packages: found by their entry point, read before anything runs."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nacre.config.plugins import PluginsConfig
from nacre.plugins import MANIFEST_NAME
from nacre.plugins.sources import BrokenSource, PluginSource, find_sources
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


def test_entry_points_can_be_left_alone(tmp_path: Path) -> None:
    install(tmp_path)
    assert find_sources(PluginsConfig(uses_entry_points=False)) == []
