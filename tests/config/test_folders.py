"""The user's folders, on each kind of machine."""

from pathlib import Path

import pytest

from nacre.config.folders import FolderKind, user_folder


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
