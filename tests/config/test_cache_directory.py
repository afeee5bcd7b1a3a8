"""The directory of things that can be made again."""

import sys
from pathlib import Path

import pytest

from nacre.config.folders import NotPrivateError, default_cache_directory, private_cache_directory

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="no such modes on Windows")


def test_the_environment_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NACRE_CACHE_DIR", raising=False)
    assert default_cache_directory() == tmp_path / "nacre"
    monkeypatch.setenv("NACRE_CACHE_DIR", str(tmp_path / "own"))
    assert default_cache_directory() == tmp_path / "own"


def test_a_relative_xdg_path_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NACRE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path in default_cache_directory().parents


@posix_only
def test_it_is_made_for_this_user_alone(tmp_path: Path) -> None:
    made = private_cache_directory(tmp_path / "a" / "b")
    assert made.stat().st_mode & 0o777 == 0o700


@posix_only
def test_one_that_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    with pytest.raises(NotPrivateError, match=r"can be written by others \(mode 0770; chmod go-w"):
        private_cache_directory(tmp_path)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotPrivateError, match="is not a directory"):
        private_cache_directory(file)
