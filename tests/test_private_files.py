"""Files that only their owner can read."""

import os
import stat
from pathlib import Path

import pytest

from nacre.private_files import create_private, read_private, replace_private, write_private


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_written_file_and_its_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "token"
    write_private(path, b"secret")
    assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o700)
    assert read_private(path) == b"secret"


def test_a_file_is_created_once_and_keeps_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a" / "history"
    create_private(path)
    assert (mode_of(path), path.read_bytes()) == (0o600, b"")
    path.write_bytes(b"lines")
    create_private(path)
    assert path.read_bytes() == b"lines"


@pytest.mark.parametrize("mode", [0o640, 0o602, 0o604])
def test_a_file_that_is_open_to_others_is_not_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    write_private(path, b"secret")
    path.chmod(mode)
    assert read_private(path) is None


def test_a_file_of_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    write_private(path, b"secret")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert read_private(path) is None


def test_a_file_that_is_missing_is_none(tmp_path: Path) -> None:
    assert read_private(tmp_path / "token") is None


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_private(path, b"old")
    with pytest.raises(ZeroDivisionError), replace_private(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_meanwhile_sees_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_private(path, b"old")
    with replace_private(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
