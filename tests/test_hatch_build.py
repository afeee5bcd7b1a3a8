"""The build hook: builds the guest when it has to, and only then."""

import json
from pathlib import Path

import pytest

from hatch_build import GuestBuildError, build_guest

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


def test_a_guest_is_built_once_for_the_same_sources(tree: Path) -> None:
    assert build_guest(tree) is True
    assert build_guest(tree) is False
    assert output(tree).read_text(encoding="utf-8") == "1"


def test_a_changed_source_is_built_again(tree: Path) -> None:
    build_guest(tree)
    (tree / "guest" / "src" / "index.js").write_text("2", encoding="utf-8")
    assert build_guest(tree) is True
    assert output(tree).read_text(encoding="utf-8") == "2"


@pytest.mark.parametrize("folder", ["test", "bakeoff", "node_modules"])
def test_what_is_no_source_does_not_matter(tree: Path, folder: str) -> None:
    build_guest(tree)
    (tree / "guest" / folder).mkdir(exist_ok=True)
    (tree / "guest" / folder / "x.js").write_text("3", encoding="utf-8")
    assert build_guest(tree) is False


def test_a_missing_output_is_built_again(tree: Path) -> None:
    build_guest(tree)
    output(tree).unlink()
    assert build_guest(tree) is True


def test_built_assets_need_neither_node_nor_sources(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_guest(tree)
    (tree / "guest").rename(tree / "elsewhere")
    monkeypatch.setenv("PATH", "")
    assert build_guest(tree) is False


def test_a_missing_node_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GuestBuildError, match=r"[Nn]ode"):
        build_guest(tree)


def test_a_build_that_fails_leaves_no_stamp(tree: Path) -> None:
    (tree / "guest" / "build.mjs").write_text("throw new Error('broken')", encoding="utf-8")
    with pytest.raises(GuestBuildError, match="broken"):
        build_guest(tree)
    assert not (output(tree).parent / "build-stamp.json").exists()
