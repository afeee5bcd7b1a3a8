"""The config file: which one it is, and changes that neither harm nor lose anything."""

import json
import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from nacre.config import config_file
from nacre.config.config_file import (
    ConfigFile,
    find_config_file,
    read_config_file,
    remove_config_member,
    set_config_member,
)
from nacre.errors import ConfigError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def write(path: Path, text: str = "{}") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def refusal_of(file: ConfigFile) -> str:
    with pytest.raises(ConfigError) as refusal:
        read_config_file(file)
    return str(refusal.value)


def test_the_nearest_file_is_found_first(project: Path, environment: Mapping[str, str]) -> None:
    user = Path(environment["XDG_CONFIG_HOME"]) / "nacre"

    def found(
        named: Path | None = None, variables: Mapping[str, str] = environment
    ) -> tuple[Path, str]:
        file = find_config_file(named, environment=variables, project=project)
        return file.path, file.origin

    assert found() == (user / "nacre.json5", "user")
    assert (write(user / "nacre.json"), "user") == found()
    assert (write(user / "nacre.json5"), "user") == found()
    assert (write(project / "nacre.json"), "project") == found()
    assert (write(project / "nacre.json5"), "project") == found()
    variables = {**environment, "NACRE_CONFIG": "/etc/nacre.json5"}
    assert found(variables=variables) == (Path("/etc/nacre.json5"), "environment")
    assert found(Path("mine.json"), variables) == (Path("mine.json"), "option")


@pytest.mark.parametrize("folder", ["", "relative"])
def test_without_a_folder_for_configuration_it_is_the_one_at_home(
    tmp_path: Path, project: Path, folder: str
) -> None:
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": folder}
    file = find_config_file(environment=environment, project=project)
    assert file.path == tmp_path / ".config" / "nacre" / "nacre.json5"


def test_a_missing_file_is_an_empty_document_unless_it_was_named(tmp_path: Path) -> None:
    path = tmp_path / "nacre.json5"
    assert read_config_file(ConfigFile(path=path, origin="user")) == {}
    assert refusal_of(ConfigFile(path=path, origin="option")) == (
        f"`{path}` is not there, but --config names it"
    )
    assert refusal_of(ConfigFile(path=path, origin="environment")) == (
        f"`{path}` is not there, but NACRE_CONFIG names it"
    )


def test_a_file_is_read_as_json5(tmp_path: Path) -> None:
    path = write(tmp_path / "nacre.json5", "// mine\n{mcp: {servers: {},},}")
    assert read_config_file(ConfigFile(path=path, origin="project")) == {"mcp": {"servers": {}}}
    assert read_config_file(ConfigFile(path=write(path, " \n"), origin="project")) == {}


def test_a_file_that_holds_no_document_is_refused(tmp_path: Path) -> None:
    file = ConfigFile(path=tmp_path / "nacre.json5", origin="project")
    write(file.path, "[1]")
    assert refusal_of(file) == f"`{file.path}` is a list; allowed: an object"
    file.path.write_bytes(b"\xff")
    assert refusal_of(file) == f"`{file.path}` is not UTF-8 text"
    file.path.unlink()
    file.path.mkdir()
    assert refusal_of(file) == f"`{file.path}` cannot be read: Is a directory"


def test_a_new_file_is_made_with_its_folder_for_the_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "nacre.json5"
    set_config_member(path, ["mcp", "servers", "x"], {"command": "y"})
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "tools": {"codeMode": True},
        "mcp": {"servers": {"x": {"command": "y"}}},
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["nacre.json5"]


def test_a_change_keeps_comments_line_ends_mode_and_the_link(tmp_path: Path) -> None:
    target = write(tmp_path / "dotfiles" / "nacre.json5", "{\r\n  a: 1, // one\r\n}\r\n")
    target.chmod(0o640)
    link = tmp_path / "nacre.json5"
    link.symlink_to(target)
    set_config_member(link, ["b"], 2)
    assert link.is_symlink()
    assert target.read_bytes() == b'{\r\n  a: 1, // one\r\n  "b": 2,\r\n}\r\n'
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert remove_config_member(link, ["b"])
    assert target.read_bytes() == b"{\r\n  a: 1, // one\r\n}\r\n"


def test_removing_what_is_not_there_says_so_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "nacre.json5"
    assert not remove_config_member(path, ["a"])
    assert not path.parent.exists()
    write(path, "{}")
    before = path.stat().st_ino
    assert not remove_config_member(path, ["a"])
    assert path.stat().st_ino == before


def test_a_refused_change_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path / "nacre.json5", '{"a": 1')
    with pytest.raises(ConfigError, match="is not JSON5"):
        set_config_member(path, ["b"], 1)
    write(path, "{}")
    with pytest.raises(ConfigError, match="half a character"):
        set_config_member(path, ["b"], "\ud800")
    assert path.read_text(encoding="utf-8") == "{}"
    assert os.listdir(tmp_path) == ["nacre.json5"]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "nacre.json5", "{}")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError) as refusal:
        set_config_member(path, ["a"], 1)
    assert str(refusal.value) == f"`{path}` cannot be written: No space left on device"
    assert path.read_text(encoding="utf-8") == "{}"
    assert os.listdir(tmp_path) == ["nacre.json5"]


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "nacre.json5"
    together = threading.Barrier(8)

    def add(number: int) -> None:
        together.wait(5)
        set_config_member(path, ["mcp", "servers", f"s{number}"], {"command": "x"})

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    servers = json.loads(path.read_text(encoding="utf-8"))["mcp"]["servers"]
    assert sorted(servers) == [f"s{number}" for number in range(8)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_what_is_no_plain_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    pipe = tmp_path / "nacre.json5"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="is not a regular file, and cannot be changed"):
        set_config_member(pipe, ["gateway", "port"], 1)
    assert pipe.is_fifo()


def test_a_file_without_end_is_not_read_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_file, "_MAX_BYTES", 100)
    path = write(tmp_path / "nacre.json5", "{}" + " " * 98)
    file = ConfigFile(path=path, origin="option")
    assert read_config_file(file) == {}
    write(path, "{}" + " " * 99)
    assert "has more than 100 bytes" in refusal_of(file)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can give files away")
def test_a_change_by_root_leaves_the_file_to_its_owner(tmp_path: Path) -> None:
    path = write(tmp_path / "nacre.json5")
    os.chown(path, 12345, 23456)
    set_config_member(path, ["gateway", "port"], 1)
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)
