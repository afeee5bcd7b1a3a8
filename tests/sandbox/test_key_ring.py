"""The keys of snapshots: their formats and sources."""

import os
import stat
import sys
from pathlib import Path

import pytest

from nacre.config import SnapshotKeysConfig
from nacre.errors import ConfigError
from nacre.sandbox import KeyRing, load_key_ring, new_key, parse_key_ring


def test_the_first_line_is_the_key_for_new_snapshots() -> None:
    first, second = new_key(), new_key()
    ring = parse_key_ring(f"# keys\n{first.to_line()}\n\n{second.to_line()}\n", source="a test")
    assert ring.current == first
    assert ring.find(second.id) == second


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no key"),
        ("k1", "invalid line 1"),
        ("k1 c2hvcnQ=", "invalid line 1"),
        ("k1 ***", "invalid line 1"),
        (f"{'k' * 65} {new_key().to_line().split()[1]}", "invalid line 1"),
    ],
)
def test_a_bad_line_is_named_without_its_content(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_key_ring(text, source="a test")
    assert "c2hvcnQ" not in str(caught.value)


def test_two_keys_with_one_id_are_refused() -> None:
    key = new_key()
    with pytest.raises(ConfigError, match="two keys with one id"):
        KeyRing(key, key)


def test_a_key_is_not_in_its_representation() -> None:
    key = new_key()
    assert str(key.secret) not in repr(key)


def test_a_missing_file_is_created_once_and_is_private(tmp_path: Path) -> None:
    config = SnapshotKeysConfig(file=tmp_path / "data" / "snapshot-keys")
    ring = load_key_ring(config)
    assert load_key_ring(config).current == ring.current
    assert os.listdir(config.file.parent) == ["snapshot-keys"]
    if sys.platform != "win32":
        assert stat.S_IMODE(config.file.stat().st_mode) == 0o600


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    config = SnapshotKeysConfig(file=tmp_path / "snapshot-keys")
    load_key_ring(config)
    config.file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_key_ring(config)


def test_keys_come_from_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = new_key()
    config = SnapshotKeysConfig(file=tmp_path / "unused", env="NACRE_TEST_KEYS")
    with pytest.raises(ConfigError, match="NACRE_TEST_KEYS, which is not set"):
        load_key_ring(config)
    monkeypatch.setenv("NACRE_TEST_KEYS", key.to_line())
    assert load_key_ring(config).current == key
    assert not config.file.exists()


def test_keys_come_from_a_command(tmp_path: Path) -> None:
    key = new_key()
    command = (sys.executable, "-c", f"print({key.to_line()!r})")
    config = SnapshotKeysConfig(file=tmp_path / "unused", command=command)
    assert load_key_ring(config).current == key


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (("nacre-no-such-program",), "cannot be run: No such file"),
        ((sys.executable, "-c", "raise SystemExit(3)"), "exit code 3"),
    ],
)
def test_a_failed_command_says_why(tmp_path: Path, command: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_key_ring(SnapshotKeysConfig(file=tmp_path / "unused", command=command))
