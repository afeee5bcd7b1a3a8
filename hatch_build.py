"""Build hook: make the assets before a wheel, an sdist or an editable install is made.

`guest/` holds the JavaScript that runs inside the sandbox, `web/` the app in the browser. Their
builds need Node and npm and write into folders of the package. A stamp beside the outputs holds a
digest of the sources they were made from: while it matches, nothing is built and Node is not
needed, as in an unpacked sdist.

`python hatch_build.py` does the same by hand.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_LEAST_NODE_MAJOR = 20
_SOURCE_SUFFIXES = frozenset({".css", ".html", ".js", ".mjs", ".svg", ".ts", ".tsx"})
_SOURCE_MANIFESTS = ("package.json", "package-lock.json")
_NOT_SOURCES = frozenset({"bakeoff", "node_modules", "test"})


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part that npm builds: the folder of its sources, and the folder of its assets."""

    folder: str
    assets: str


GUEST = Part(folder="guest", assets="src/nacre/sandbox/assets")
WEB = Part(folder="web", assets="src/nacre/gateway/assets")


class AssetBuildError(Exception):
    """A part could not be built; the message says what to do about it."""


class AssetBuildHook(BuildHookInterface[Any]):
    """What hatchling calls before it builds."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            for part in (GUEST, WEB):
                build_part(Path(self.root), part)
        except AssetBuildError as error:
            self.app.abort(str(error))


def build_part(root: Path, part: Part) -> bool:
    """Bring the assets of a part up to date; return whether anything had to be built."""
    folder = root / part.folder
    assets = root / part.assets
    stamp = assets / "build-stamp.json"
    has_sources = (folder / "build.mjs").is_file()
    if not has_sources and not stamp.is_file():
        raise AssetBuildError(f"{folder / 'build.mjs'} is missing, and so are the built assets.")
    digest = source_digest(folder) if has_sources else None
    if is_up_to_date(stamp, digest=digest):
        return False
    if digest is None:
        raise AssetBuildError(f"Assets listed in {stamp} are missing, and {folder} is not there.")

    node, npm = find_node_and_npm()
    if not _are_packages_installed(folder):
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], folder)
    # The stamp goes with the old outputs, so a build that is cut short counts as no build.
    shutil.rmtree(assets, ignore_errors=True)
    assets.mkdir(parents=True)
    _run([node, "build.mjs"], folder)
    outputs = sorted(p.relative_to(assets).as_posix() for p in assets.rglob("*") if p.is_file())
    if not outputs:
        raise AssetBuildError(f"{part.folder}/build.mjs wrote nothing into {assets}.")
    record = {"outputs": outputs, "sourcesSha256": digest}
    stamp.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return True


def source_digest(folder: Path) -> str:
    """Return one SHA-256 over the names and contents of the sources of a part."""
    digest = hashlib.sha256()
    for path in sorted(_source_files(folder)):
        name = path.relative_to(folder).as_posix().encode()
        content = path.read_bytes()
        # Lengths first, so that no two different trees feed the same bytes.
        digest.update(b"%d %d\n" % (len(name), len(content)))
        digest.update(name)
        digest.update(content)
    return digest.hexdigest()


def is_up_to_date(stamp: Path, *, digest: str | None) -> bool:
    """Tell whether the stamp names this digest (any, if None) and all its outputs exist."""
    try:
        record = cast("dict[str, Any]", json.loads(stamp.read_text(encoding="utf-8")))
        outputs = cast("list[str]", record["outputs"])
        recorded_digest = cast("str", record["sourcesSha256"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False
    if digest is not None and digest != recorded_digest:
        return False
    return all((stamp.parent / output).is_file() for output in outputs)


def find_node_and_npm() -> tuple[str, str]:
    """Return the paths of node and npm, or say what is missing."""
    need = (
        f"Building Nacre's sandbox and web app needs Node.js {_LEAST_NODE_MAJOR} or newer, with npm"
    )
    node = shutil.which("node")
    npm = shutil.which("npm")
    if node is None or npm is None:
        missing = "node" if node is None else "npm"
        raise AssetBuildError(
            f"{need}: `{missing}` is not on PATH. Install it and try again "
            "(a released wheel has them inside and needs neither)."
        )
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    version = shown.stdout.strip()
    major = re.match(r"v(\d+)\.", version)
    if major is None or int(major[1]) < _LEAST_NODE_MAJOR:
        raise AssetBuildError(f"{need}: {node} is {version or 'of unknown version'}.")
    return node, npm


def _source_files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            if path.name not in _NOT_SOURCES:
                yield from _source_files(path)
        elif path.suffix in _SOURCE_SUFFIXES or path.name in _SOURCE_MANIFESTS:
            yield path


def _are_packages_installed(folder: Path) -> bool:
    # npm writes this file last, so it also tells a finished install from one cut short.
    installed = folder / "node_modules" / ".package-lock.json"
    lock = folder / "package-lock.json"
    return installed.is_file() and installed.stat().st_mtime >= lock.stat().st_mtime


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        shown = " ".join([Path(command[0]).name, *command[1:]])
        raise AssetBuildError(
            f"`{shown}` in {folder} ended with status {done.returncode}:\n{done.stdout.rstrip()}"
        )


if __name__ == "__main__":
    for each in (GUEST, WEB):
        try:
            was_built = build_part(Path(__file__).resolve().parent, each)
        except AssetBuildError as error:
            sys.exit(f"error: {error}")
        print(f"{each.folder} built" if was_built else f"{each.folder} up to date")
