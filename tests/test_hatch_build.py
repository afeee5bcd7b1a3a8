"""The build hook: builds a part when it has to, and only then."""

import json
import shutil
from pathlib import Path

import pytest

from hatch_build import GUEST, WEB, AssetBuildError, build_part

_MAX_FIRST_VIEW_BYTES = 100_000

BUILD = """
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
mkdirSync("../src/nacre/sandbox/assets", { recursive: true });
writeFileSync("../src/nacre/sandbox/assets/out.txt", readFileSync("src/index.js"));
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with a guest that needs no packages."""
    guest = tmp_path / "guest"
    (guest / "src").mkdir(parents=True)
    (guest / "src" / "index.js").write_text("1", encoding="utf-8")
    (guest / "build.mjs").write_text(BUILD, encoding="utf-8")
    package = {"name": "guest", "version": "1.0.0"}
    lock = {**package, "lockfileVersion": 3, "packages": {"": package}}
    (guest / "package.json").write_text(json.dumps(package), encoding="utf-8")
    (guest / "package-lock.json").write_text(json.dumps(lock), encoding="utf-8")
    return tmp_path


def output(tree: Path) -> Path:
    return tree / "src" / "nacre" / "sandbox" / "assets" / "out.txt"


def test_a_part_is_built_once_for_the_same_sources(tree: Path) -> None:
    assert build_part(tree, GUEST) is True
    assert build_part(tree, GUEST) is False
    assert output(tree).read_text(encoding="utf-8") == "1"


def test_a_changed_source_is_built_again(tree: Path) -> None:
    build_part(tree, GUEST)
    (tree / "guest" / "src" / "index.js").write_text("2", encoding="utf-8")
    assert build_part(tree, GUEST) is True
    assert output(tree).read_text(encoding="utf-8") == "2"


@pytest.mark.parametrize("folder", ["test", "bakeoff", "node_modules"])
def test_what_is_no_source_does_not_matter(tree: Path, folder: str) -> None:
    build_part(tree, GUEST)
    (tree / "guest" / folder).mkdir(exist_ok=True)
    (tree / "guest" / folder / "x.js").write_text("3", encoding="utf-8")
    assert build_part(tree, GUEST) is False


def test_a_missing_output_is_built_again(tree: Path) -> None:
    build_part(tree, GUEST)
    output(tree).unlink()
    assert build_part(tree, GUEST) is True


def test_built_assets_need_neither_node_nor_sources(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_part(tree, GUEST)
    (tree / "guest").rename(tree / "elsewhere")
    monkeypatch.setenv("PATH", "")
    assert build_part(tree, GUEST) is False


def test_a_missing_node_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AssetBuildError, match=r"[Nn]ode"):
        build_part(tree, GUEST)


def test_a_build_that_fails_leaves_no_stamp(tree: Path) -> None:
    (tree / "guest" / "build.mjs").write_text("throw new Error('broken')", encoding="utf-8")
    with pytest.raises(AssetBuildError, match="broken"):
        build_part(tree, GUEST)
    assert not (output(tree).parent / "build-stamp.json").exists()


def test_a_build_of_the_web_app_does_not_touch_the_guest(tree: Path) -> None:
    build_part(tree, GUEST)
    shutil.copytree(tree / "guest", tree / "web")
    build = (tree / "web" / "build.mjs").read_text(encoding="utf-8").replace("sandbox", "gateway")
    (tree / "web" / "build.mjs").write_text(build, encoding="utf-8")
    (tree / "web" / "src" / "theme.css").write_text("a {}", encoding="utf-8")
    assert build_part(tree, WEB) is True
    (tree / "web" / "src" / "theme.css").write_text("b {}", encoding="utf-8")
    assert build_part(tree, WEB) is True
    assert build_part(tree, GUEST) is False


def test_what_the_first_view_loads_stays_small() -> None:
    """The budget of the built app. `make install` builds it."""
    assets = Path(__file__).parent.parent / WEB.assets
    manifest = json.loads((assets / "manifest.json").read_bytes())
    sizes = [manifest["files"][name]["gzipBytes"] for name in manifest["firstView"]]
    assert sum(sizes) <= _MAX_FIRST_VIEW_BYTES
    for name in manifest["files"]:
        assert (assets / name).is_file()
