"""Images are found and verified by hash."""

import json
import shutil
from pathlib import Path

import pytest

from nacre.errors import ImageError
from nacre.sandbox.image import load_image


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    """A copy of the package's assets."""
    copy = tmp_path / "assets"
    shutil.copytree(Path(load_image("cell").path).parent, copy)
    return copy


def test_an_image_is_the_one_that_was_built() -> None:
    assert load_image("cell").wasm().startswith(b"\0asm")


def test_a_changed_image_is_refused_with_both_hashes(assets: Path) -> None:
    image = load_image("cell", assets=assets)
    content = bytearray(Path(image.path).read_bytes())
    content[-1] ^= 1
    Path(image.path).write_bytes(content)
    with pytest.raises(ImageError, match=f"expected {image.identity}; reinstall nacre"):
        image.wasm()


def test_a_missing_image_says_what_to_do(assets: Path) -> None:
    Path(load_image("cell", assets=assets).path).unlink()
    with pytest.raises(ImageError, match="cannot read the sandbox image"):
        load_image("cell", assets=assets).wasm()


@pytest.mark.parametrize("manifest", ["", "{}", "[]", '{"images": {"cell": {"file": "x"}}}'])
def test_a_damaged_manifest_says_what_to_do(assets: Path, manifest: str) -> None:
    (assets / "images.json").write_text(manifest, encoding="utf-8")
    with pytest.raises(ImageError, match=r"missing or damaged.*make install"):
        load_image("cell", assets=assets)


def test_the_manifest_names_the_hash_of_the_file(assets: Path) -> None:
    manifest = json.loads((assets / "images.json").read_bytes())
    assert load_image("typescript").identity == manifest["images"]["typescript"]["sha256"]
