"""The user's folders, on each kind of machine."""

import sys
from pathlib import Path

import pytest

from nacre.config.folders import (
    FolderKind,
    NotPrivateError,
    default_cache_directory,
    private_cache_directory,
    user_folder,
)


@pytest.mark.parametrize(
    ("kind", "platform", "folder"),
    [
        ("config", "linux", ".config/nacre"),
        ("data", "linux", ".local/share/nacre"),
        ("state", "linux", ".local/state/nacre"),
        ("cache", "linux", ".cache/nacre"),
        ("config", "darwin", ".config/nacre"),
        ("data", "darwin", "Library/Application Support/nacre"),
        ("cache", "darwin", "Library/Caches/nacre"),
    ],
)
def test_each_kind_has_its_place_at_home(kind: FolderKind, platform: str, folder: str) -> None:
    assert user_folder(kind, {"HOME": "/home/ada"}, platform=platform) == Path("/home/ada", folder)


def test_the_environment_may_name_another_place() -> None:
    environment = {"HOME": "/home/ada", "XDG_DATA_HOME": "/data"}
    assert user_folder("data", environment, platform="darwin") == Path("/data/nacre")


def test_a_relative_place_is_ignored() -> None:
    environment = {"HOME": "/home/ada", "XDG_CONFIG_HOME": "here"}
    assert user_folder("config", environment, platform="linux") == Path("/home/ada/.config/nacre")


def test_windows_has_variables_of_its_own() -> None:
    environment = {"USERPROFILE": "/ada", "APPDATA": "/ada/Roaming", "LOCALAPPDATA": "/ada/Local"}
    assert user_folder("config", environment, platform="win32") == Path("/ada/Roaming/nacre")
    assert user_folder("data", environment, platform="win32") == Path("/ada/Local/nacre")
    assert user_folder("cache", environment, platform="win32") == Path("/ada/.cache/nacre")


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
