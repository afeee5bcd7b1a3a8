"""Rules about the repository itself: what is checked in, and what it may say."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BINARY_SUFFIXES = {".wasm", ".so", ".whl"}
# Spelled in parts, so that this file does not hold what it forbids.
MACHINE_PATH = re.compile(r"(?<![\w.~*)}-])/(?:" + "|".join(("work", "root")) + r")/")
# Funding addresses may stand in an npm lock file, so only a registry's own counts there.
NPM_DOWNLOAD_ADDRESS = re.compile(r'"resolved"|://registry\.')
PYTHON_INDEX_ADDRESS = re.compile(r"://|^\s*--(?:(?:extra-)?index-url|find-links)", re.MULTILINE)


def checked_in_files() -> list[Path]:
    """Return every file that git tracks, or would track if it were added now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not in a git repository")
    paths = (ROOT / name for name in os.fsdecode(listed.stdout).split("\0") if name)
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace")


def npm_lock_files() -> list[Path]:
    return [path for path in checked_in_files() if path.name == "package-lock.json"]


def python_lock_files() -> list[Path]:
    return sorted((ROOT / "requirements").glob("*.txt"))


def test_npm_lock_files_hold_integrity_hashes_and_no_download_address() -> None:
    locks = npm_lock_files()
    assert locks
    assert [relative(lock) for lock in locks if '"integrity"' not in text_of(lock)] == []
    found = [relative(lock) for lock in locks if NPM_DOWNLOAD_ADDRESS.search(text_of(lock))]
    assert found == []


def test_python_lock_files_hold_hashes_and_no_registry_address() -> None:
    locks = python_lock_files()
    assert locks
    assert [relative(lock) for lock in locks if "--hash=sha256:" not in text_of(lock)] == []
    found = [relative(lock) for lock in locks if PYTHON_INDEX_ADDRESS.search(text_of(lock))]
    assert found == []


def test_npm_is_told_beside_every_lock_file_to_leave_addresses_out() -> None:
    setting = "omit-lockfile-registry-resolved=true"
    folders = {ROOT, *(lock.parent for lock in npm_lock_files())}
    lacking = [
        relative(folder)
        for folder in folders
        if not (folder / ".npmrc").is_file() or setting not in text_of(folder / ".npmrc")
    ]
    assert lacking == []


def test_no_file_names_a_path_of_one_machine() -> None:
    found = [
        f"{relative(path)}:{number}"
        for path in checked_in_files()
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []


def test_no_binary_is_checked_in() -> None:
    found = [relative(path) for path in checked_in_files() if path.suffix in BINARY_SUFFIXES]
    assert found == []


@pytest.mark.parametrize("command", ["make run", "make test"])
def test_readme_says_how_to_start(command: str) -> None:
    assert command in text_of(ROOT / "README.md")


def test_ci_script_is_executable() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
