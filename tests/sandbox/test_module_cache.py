"""The compiled-module cache: what is in it is used only if it is sure to be ours and whole."""

import errno
import gc
import hashlib
import json
import logging
import os
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import wasmtime

import nacre
from nacre.config import folders as cache_directory
from nacre.errors import RuntimeUnavailableError
from nacre.sandbox import module_cache
from nacre.sandbox.module_cache import CachedModule, ModuleCache

KEY = "ab" * 32
OTHER_KEY = "cd" * 32
ARTEFACT = b"\x7fELF" + bytes(range(256)) * 40
PUBLISHED = [".lock", f"{KEY}.cwasm", f"{KEY}.json"]
SECONDS = 30
DAY_SECONDS = 24 * 60 * 60
NOBODY = 65534

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="no such files on Windows")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the real cache, nor leaves anything in the real temporary directory."""
    for name in ("NACRE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("home", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    return tmp_path / "temporary"


@pytest.fixture(autouse=True)
def descriptors_are_closed() -> Iterator[None]:
    before = open_descriptors()
    yield
    gc.collect()
    # What others left behind may go meanwhile.
    assert open_descriptors() <= before


def open_descriptors() -> set[str]:
    # The listing itself takes the lowest free number, before as after.
    return set(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else set()


def build(path: Path) -> None:
    path.write_bytes(ARTEFACT)


def builder_of(artefact: bytes) -> Callable[[Path], None]:
    def build_it(path: Path) -> None:
        path.write_bytes(artefact)

    return build_it


def refuse_to_build(path: Path) -> None:
    raise AssertionError(f"{path} should have been in the cache")


def content(module: CachedModule) -> bytes:
    """What the descriptor gives from where it stands, which has to be the beginning."""
    return os.read(module.fd, 10 * len(ARTEFACT))


def open_and_close(
    cache: ModuleCache, *, key: str = KEY, build: Callable[[Path], None] = build
) -> tuple[str, Path]:
    """Open a module, check that it is the right one, and say where it came from."""
    with cache.open(key, build) as module:
        assert content(module) == ARTEFACT
        return module.origin, module.path


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def age(path: Path, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "nacre.sandbox.module_cache" and record.levelno >= logging.WARNING
    ]


# Hits and misses


def test_a_module_is_built_once_and_then_comes_from_the_cache(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = directory / f"{KEY}.cwasm"
    assert open_and_close(ModuleCache(directory)) == ("built", path)
    assert open_and_close(ModuleCache(directory), build=refuse_to_build) == ("cache", path)
    assert names_in(directory) == PUBLISHED
    assert warnings_in(caplog) == []


def test_the_sidecar_describes_the_artefact(directory: Path) -> None:
    open_and_close(ModuleCache(directory))
    assert json.loads((directory / f"{KEY}.json").read_bytes()) == {
        "formatVersion": 1,
        "key": KEY,
        "size": len(ARTEFACT),
        "sha256": hashlib.sha256(ARTEFACT).hexdigest(),
    }


def test_modules_of_two_keys_live_side_by_side(directory: Path) -> None:
    cache = ModuleCache(directory)
    open_and_close(cache)
    assert open_and_close(cache, key=OTHER_KEY)[0] == "built"
    assert open_and_close(cache, build=refuse_to_build)[0] == "cache"


@pytest.mark.parametrize("key", ["", "../escape", "AB", "ab\n", "g", "a" * 129])
def test_a_key_that_is_not_hexadecimal_is_refused(directory: Path, key: str) -> None:
    with pytest.raises(ValueError, match="a module key is"):
        ModuleCache(directory).open(key, refuse_to_build)
    assert not directory.exists()


def test_wasmtime_loads_a_module_through_the_descriptor(directory: Path) -> None:
    engine = wasmtime.Engine()
    compiled = bytes(wasmtime.Module(engine, '(module (func (export "answer")))').serialize())
    cache = ModuleCache(directory)
    cache.open(KEY, builder_of(compiled)).close()
    with cache.open(KEY, refuse_to_build) as cached:
        shutil.rmtree(directory)
        loaded = wasmtime.Module.deserialize_file(engine, f"/dev/fd/{cached.fd}")
    assert [export.name for export in loaded.exports] == ["answer"]


@posix_only
def test_directory_and_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_and_close(ModuleCache(tmp_path / "new" / "cache"))
    finally:
        os.umask(before)
    modes = {path.name: mode_of(path) for path in (tmp_path / "new").rglob("*")}
    assert modes == {"cache": 0o700, **dict.fromkeys(PUBLISHED, 0o600)}
    assert mode_of(tmp_path / "new") == 0o700


# Files that must not be trusted


def cut_short(path: Path) -> None:
    os.truncate(path, 100)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def flip_a_bit(path: Path) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[-2] ^= 1
    path.write_bytes(damaged)


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(b"\xff\xfe{" * 5000)


def replace_by_symbolic_link(path: Path) -> None:
    kept = path.rename(path.with_name("elsewhere"))
    path.symlink_to(kept)


def replace_by_dangling_link(path: Path) -> None:
    # A link to nothing is not an absent file: what is there must still be got rid of.
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def give_another_name(path: Path) -> None:
    os.link(path, path.with_name("elsewhere"))


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "content").write_bytes(b"")


def let_the_group_write(path: Path) -> None:
    path.chmod(0o620)


def let_the_world_write(path: Path) -> None:
    path.chmod(0o602)


DAMAGES = [
    cut_short,
    empty,
    lengthen,
    flip_a_bit,
    fill_with_garbage,
    replace_by_symbolic_link,
    give_another_name,
    replace_by_pipe,
    replace_by_directory,
    let_the_group_write,
    let_the_world_write,
]


@posix_only
@pytest.mark.parametrize("suffix", [".cwasm", ".json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_reported_and_built_again(
    directory: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
    suffix: str,
) -> None:
    cache = ModuleCache(directory)
    open_and_close(cache)
    damage(directory / f"{KEY}{suffix}")
    assert open_and_close(cache)[0] == "built"
    assert len(warnings_in(caplog)) == 1
    assert f"{KEY}.cwasm" in warnings_in(caplog)[0] or f"{KEY}.json" in warnings_in(caplog)[0]
    assert open_and_close(cache, build=refuse_to_build)[0] == "cache"
    assert len(warnings_in(caplog)) == 1
    assert [mode_of(directory / name) for name in PUBLISHED] == [0o600] * 3


@posix_only
@pytest.mark.parametrize("suffix", [".cwasm", ".json"])
@pytest.mark.parametrize("damage", [replace_by_pipe, replace_by_directory])
def test_what_is_not_a_regular_file_is_refused_as_such(
    directory: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
    suffix: str,
) -> None:
    cache = ModuleCache(directory)
    open_and_close(cache)
    damage(directory / f"{KEY}{suffix}")
    open_and_close(cache)
    assert f"{KEY}{suffix} is not a regular file" in warnings_in(caplog)[0]


@posix_only
@pytest.mark.parametrize("suffix", [".cwasm", ".json"])
@pytest.mark.parametrize("damage", [Path.unlink, replace_by_dangling_link])
def test_a_missing_file_is_built_again(
    directory: Path, damage: Callable[[Path], None], suffix: str
) -> None:
    cache = ModuleCache(directory)
    open_and_close(cache)
    damage(directory / f"{KEY}{suffix}")
    assert open_and_close(cache)[0] == "built"
    assert open_and_close(cache, build=refuse_to_build)[0] == "cache"


def test_the_target_of_a_planted_link_is_not_written_to(directory: Path, tmp_path: Path) -> None:
    directory.mkdir(mode=0o700)
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    for name in PUBLISHED:
        (directory / name).symlink_to(victim)
    assert open_and_close(ModuleCache(directory))[0] == "built"
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("suffixes", [(".cwasm",), (".json",), (".cwasm", ".json")])
def test_a_module_put_under_another_key_is_reported_and_built_again(
    directory: Path, caplog: pytest.LogCaptureFixture, suffixes: tuple[str, ...]
) -> None:
    cache = ModuleCache(directory)
    open_and_close(cache)
    cache.open(OTHER_KEY, builder_of(b"another module")).close()
    for suffix in suffixes:
        shutil.copy2(directory / f"{OTHER_KEY}{suffix}", directory / f"{KEY}{suffix}")
    assert open_and_close(cache)[0] == "built"
    assert len(warnings_in(caplog)) == 1


@posix_only
@pytest.mark.parametrize("suffix", [".cwasm", ".json"])
def test_a_file_of_another_user_is_reported_and_built_again(
    directory: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
) -> None:
    cache = ModuleCache(directory)
    open_and_close(cache)
    give_away(directory / f"{KEY}{suffix}", monkeypatch)
    assert open_and_close(cache)[0] == "built"
    assert [f"belongs to user {NOBODY}" in warning for warning in warnings_in(caplog)] == [True]
    assert open_and_close(cache, build=refuse_to_build)[0] == "cache"


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the path belong to another user, or seem to where only root could do it."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
        return
    given = path.stat().st_ino

    def owner(info: os.stat_result) -> int:
        return NOBODY if info.st_ino == given else info.st_uid

    monkeypatch.setattr(cache_directory, "_owner", owner)


def test_a_file_too_large_to_be_a_module_is_not_even_read(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ModuleCache(directory)
    open_and_close(cache)
    os.truncate(directory / f"{KEY}.cwasm", 2**40)  # sparse
    assert open_and_close(cache)[0] == "built"
    assert "which is not the size of a module" in warnings_in(caplog)[0]


# Directories that must not be used


def world_writable(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o707)
    return path


def group_writable(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o770)
    return path


def sticky(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o1777)
    return path


def link_to_world_writable(path: Path) -> Path:
    path.symlink_to(world_writable(path.with_name("target")))
    return path


def dangling_link(path: Path) -> Path:
    path.symlink_to(path.with_name("nowhere"))
    return path


def link_to_itself(path: Path) -> Path:
    path.symlink_to(path)
    return path


def plain_file(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def below_a_plain_file(path: Path) -> Path:
    path.write_bytes(b"")
    return path / "cache"


@posix_only
@pytest.mark.parametrize(
    "make",
    [
        world_writable,
        group_writable,
        sticky,
        link_to_world_writable,
        dangling_link,
        link_to_itself,
        plain_file,
        below_a_plain_file,
    ],
)
def test_an_unsafe_directory_is_left_alone_and_a_private_one_used_instead(
    directory: Path,
    temporary: Path,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Path], Path],
) -> None:
    unsafe = make(directory)
    with ModuleCache(unsafe) as cache:
        origin, path = open_and_close(cache)
        assert (origin, path.parent.parent) == ("built", temporary)
        assert mode_of(path.parent) == 0o700
        assert open_and_close(cache, build=refuse_to_build) == ("cache", path)
        assert not unsafe.is_dir() or names_in(unsafe) == []
    assert names_in(temporary) == []
    assert len(warnings_in(caplog)) == 1
    assert str(path.parent) in warnings_in(caplog)[0]


@posix_only
def test_a_directory_of_another_user_is_not_used(
    directory: Path,
    temporary: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory.mkdir(mode=0o700)
    give_away(directory, monkeypatch)
    with ModuleCache(directory) as cache:
        assert open_and_close(cache)[1].parent.parent == temporary
    assert f"{directory} belongs to user {NOBODY}" in warnings_in(caplog)[0]


@posix_only
def test_a_directory_that_becomes_unsafe_is_given_up(directory: Path, temporary: Path) -> None:
    with ModuleCache(directory) as cache:
        assert open_and_close(cache)[1].parent == directory
        directory.chmod(0o777)
        origin, path = open_and_close(cache)
        assert (origin, path.parent.parent) == ("built", temporary)


@posix_only
def test_a_link_to_a_private_directory_is_followed(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    directory.symlink_to(tmp_path / "real")
    assert open_and_close(ModuleCache(directory))[1] == tmp_path / "real" / f"{KEY}.cwasm"


@contextmanager
def ordinary_user(monkeypatch: pytest.MonkeyPatch) -> Generator[Path, None, None]:
    """Yield a directory of a user whom permission bits do stop, while being that user."""
    with tempfile.TemporaryDirectory(dir=tempfile.gettempdir()) as place:
        if os.geteuid() != 0:
            yield Path(place)
            return
    # Below a place that others can reach, which the directories of pytest are not.
    monkeypatch.setattr(tempfile, "tempdir", None)
    with tempfile.TemporaryDirectory() as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        os.chown(place, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield Path(place)
        finally:
            os.seteuid(0)


@posix_only
def test_a_read_only_directory_gives_what_it_has_and_the_rest_is_built_elsewhere(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ordinary_user(monkeypatch) as place:
        directory = place / "cache"
        open_and_close(ModuleCache(directory))
        (directory / ".lock").unlink()
        directory.chmod(0o500)
        with ModuleCache(directory) as cache:
            assert open_and_close(cache, build=refuse_to_build)[1].parent == directory
            assert warnings_in(caplog) == []
            origin, path = open_and_close(cache, key=OTHER_KEY)
            assert origin == "built"
            assert path.parent.name.startswith("nacre-modules-")
            assert len(warnings_in(caplog)) == 1
        assert not path.parent.exists()
        directory.chmod(0o700)


@posix_only
@pytest.mark.parametrize("home", ["read-only", "read-only/below", "missing"])
def test_a_home_that_takes_no_files_leads_to_a_private_directory(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    with ordinary_user(monkeypatch) as place:
        (place / "read-only").mkdir(mode=0o500)
        monkeypatch.setenv("HOME", str(place / home))
        with ModuleCache() as cache:
            assert open_and_close(cache)[1].parent.name.startswith("nacre-modules-")
        assert names_in(place) == ["read-only"]
        assert names_in(place / "read-only") == []
    assert len(warnings_in(caplog)) == 1


def test_a_user_without_any_home_gets_a_private_directory(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with ModuleCache() as cache:
        assert open_and_close(cache)[1].parent.parent == temporary


@posix_only
def test_the_error_says_so_when_there_is_no_place_at_all(
    directory: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world_writable(directory)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))
    with pytest.raises(RuntimeUnavailableError, match=r"written by others.*missing.*NACRE_CACHE"):
        ModuleCache(directory).open(KEY, refuse_to_build)


# Where the directory is


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache/nacre"),
        ("darwin", {}, "home/Library/Caches/nacre"),
        ("linux", {"XDG_CACHE_HOME": "{}/xdg"}, "xdg/nacre"),
        ("linux", {"XDG_CACHE_HOME": "xdg"}, "home/.cache/nacre"),
        ("linux", {"XDG_CACHE_HOME": "", "NACRE_CACHE_DIR": ""}, "home/.cache/nacre"),
        ("linux", {"XDG_CACHE_HOME": "{}/xdg", "NACRE_CACHE_DIR": "{}/own"}, "own"),
        ("linux", {"NACRE_CACHE_DIR": "own"}, "own"),
    ],
)
def test_the_directory_follows_the_environment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    variables: dict[str, str],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    assert open_and_close(ModuleCache())[1].parent == tmp_path / expected


def test_a_given_directory_wins_over_the_environment(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_CACHE_DIR", str(tmp_path / "own"))
    assert open_and_close(ModuleCache(directory))[1].parent == directory


# Builds that fail


def failing_at(call: int, real: Callable[..., object]) -> Callable[..., object]:
    """Return a function that finds the disk full at its n-th call."""
    calls = iter(range(1, 100))

    def fail(*arguments: object, **options: object) -> object:
        if next(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **options)

    return fail


@posix_only
@pytest.mark.parametrize(
    ("function", "call"), [("fsync", 1), ("fsync", 2), ("replace", 1), ("replace", 2), ("mkdir", 1)]
)
def test_a_full_disk_is_an_error_that_names_the_path_and_leaves_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch, function: str, call: int
) -> None:
    directory.mkdir(mode=0o700)
    with monkeypatch.context() as full_disk:
        full_disk.setattr(os, function, failing_at(call, getattr(os, function)))
        with pytest.raises(RuntimeUnavailableError, match=f"{directory}.*No space left"):
            ModuleCache(directory).open(KEY, build)
    assert names_in(directory) == [".lock"]
    assert open_and_close(ModuleCache(directory))[0] == "built"


@pytest.mark.parametrize("call", [1, 2])
def test_a_publication_that_fails_halfway_leaves_nothing_of_the_old_pair_either(
    directory: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    open_and_close(ModuleCache(directory))
    flip_a_bit(directory / f"{KEY}.cwasm")
    monkeypatch.setattr(os, "replace", failing_at(call, os.replace))
    with pytest.raises(RuntimeUnavailableError, match="No space left"):
        ModuleCache(directory).open(KEY, build)
    assert names_in(directory) == [".lock"]


def build_on_a_full_disk(path: Path) -> None:
    path.write_bytes(ARTEFACT[:100])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def build_nothing(path: Path) -> None:
    path.with_suffix(".part").write_bytes(ARTEFACT)


def build_an_empty_file(path: Path) -> None:
    path.write_bytes(b"")


def build_a_link(path: Path) -> None:
    path.symlink_to(sys.executable)


@posix_only
@pytest.mark.parametrize(
    "bad_build", [build_on_a_full_disk, build_nothing, build_an_empty_file, build_a_link]
)
def test_a_build_without_a_whole_artefact_is_an_error_that_names_the_path_and_leaves_nothing(
    directory: Path, bad_build: Callable[[Path], None]
) -> None:
    with pytest.raises(RuntimeUnavailableError, match=str(directory / KEY)):
        ModuleCache(directory).open(KEY, bad_build)
    assert names_in(directory) == [".lock"]


@pytest.mark.parametrize("error", [RuntimeUnavailableError("no compiler"), KeyboardInterrupt()])
def test_what_the_builder_raises_passes_through_and_leaves_nothing(
    directory: Path, error: BaseException
) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(ARTEFACT[:100])
        raise error

    with pytest.raises(type(error)) as raised:
        ModuleCache(directory).open(KEY, fail)
    assert raised.value is error
    assert names_in(directory) == [".lock"]


@posix_only
def test_a_builder_may_replace_the_file_and_ignore_its_permissions(directory: Path) -> None:
    def move_into_place(path: Path) -> None:
        build(path.with_suffix(".part"))
        path.with_suffix(".part").chmod(0o666)
        path.with_suffix(".part").rename(path)

    open_and_close(ModuleCache(directory), build=move_into_place)
    assert mode_of(directory / f"{KEY}.cwasm") == 0o600
    assert names_in(directory) == PUBLISHED


# Several processes

CHILD = """
import sys, time
from pathlib import Path
from nacre.sandbox import module_cache

directory, counter, key = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
artefact = bytes.fromhex(sys.argv[4])
pause = time.sleep

def say(word):
    print(word, flush=True)

def build(path):
    with counter.open("a") as file:
        file.write("built\\n")
    path.write_bytes(artefact[:100])
    say("building")
    sys.stdin.readline()
    path.write_bytes(artefact)

def wait(seconds):
    say("waiting")
    module_cache.time.sleep = pause
    pause(seconds)

module_cache.time.sleep = wait
with module_cache.ModuleCache(directory) as cache, cache.open(key, build) as module:
    say(module.origin)
    say(module.path.read_bytes() == artefact)
"""


class Child:
    """Another process that opens a module, and waits within its build until told to go on."""

    def __init__(self, directory: Path, counter: Path) -> None:
        self.process = python(CHILD, str(directory), str(counter), KEY, ARTEFACT.hex())

    def heard(self) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], SECONDS)[0], "the child says nothing"
        return self.process.stdout.readline().decode().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    def ended(self) -> int:
        return self.process.wait(SECONDS)


def python(program: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, "PYTHONPATH": str(Path(nacre.__file__).parent.parent)},
    )


@contextmanager
def children(directory: Path, counter: Path) -> Generator[Callable[[], Child], None, None]:
    started: list[Child] = []

    def start() -> Child:
        started.append(Child(directory, counter))
        return started[-1]

    try:
        yield start
    finally:
        for child in started:
            child.process.kill()
            child.process.communicate()


@posix_only
def test_two_processes_at_once_build_once(directory: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    with children(directory, counter) as start:
        first = start()
        assert first.heard() == "building"
        second = start()
        assert second.heard() == "waiting"
        first.go_on()
        assert [first.heard(), first.heard(), first.ended()] == ["built", "True", 0]
        assert [second.heard(), second.heard(), second.ended()] == ["cache", "True", 0]
    assert counter.read_text(encoding="ascii") == "built\n"
    assert names_in(directory) == PUBLISHED


@posix_only
def test_a_builder_that_never_ends_holds_nobody_up_for_ever(
    directory: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with children(directory, tmp_path / "counter") as start:
        other = start()
        assert other.heard() == "building"
        monkeypatch.setattr(module_cache, "_LOCK_WAIT_SECONDS", 0.0)
        assert open_and_close(ModuleCache(directory))[0] == "built"
        assert "compiling without waiting" in warnings_in(caplog)[0]
        other.go_on()
        assert [other.heard(), other.heard(), other.ended()] == ["built", "True", 0]
    assert open_and_close(ModuleCache(directory), build=refuse_to_build)[0] == "cache"
    assert names_in(directory) == PUBLISHED


def test_each_of_two_builders_without_a_lock_gets_what_it_built(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_cache, "_LOCK_WAIT_SECONDS", 0.0)
    cache = ModuleCache(directory)
    inner: list[CachedModule] = []

    def build_while_another_builds(path: Path) -> None:
        inner.append(cache.open(KEY, builder_of(b"the other's")))
        build(path)

    with cache.open(KEY, build_while_another_builds) as outer, inner[0]:
        assert (content(outer), content(inner[0])) == (ARTEFACT, b"the other's")
    assert open_and_close(cache, build=refuse_to_build)[0] == "cache"


@posix_only
def test_a_killed_builder_leaves_only_what_the_next_open_sweeps(
    directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with children(directory, tmp_path / "counter") as start:
        child = start()
        assert child.heard() == "building"
        child.process.kill()
        child.ended()
    left = names_in(directory)
    assert [name.startswith(".build-") for name in left] == [True, False]
    assert open_and_close(ModuleCache(directory))[0] == "built"
    assert names_in(directory) == PUBLISHED
    assert warnings_in(caplog) == []


@posix_only
def test_a_hit_sweeps_too_but_spares_builds_that_may_be_alive(directory: Path) -> None:
    cache = ModuleCache(directory)
    seen: list[str] = []

    def build_and_look(path: Path) -> None:
        seen.append(path.parent.name)
        build(path)

    open_and_close(cache, build=build_and_look)
    _, pid, pid_space, _ = seen[0].split("-", 3)
    ended = python("")
    ended.communicate(timeout=SECONDS)
    here_alive = f".build-{pid}-{pid_space}-alive"
    here_dead = f".build-{ended.pid}-{pid_space}-dead"
    elsewhere = f".build-{ended.pid}-{'0' * 16}-dead"
    here_old = f".build-{pid}-{pid_space}-old"
    elsewhere_old = f".build-{ended.pid}-{'0' * 16}-old"
    for name in (here_alive, here_dead, elsewhere, here_old, elsewhere_old):
        (directory / name).mkdir()
        (directory / name / "half").write_bytes(b"")
    for name in (here_old, elsewhere_old):
        age(directory / name, 2 * 60 * 60)
    assert open_and_close(cache, build=refuse_to_build)[0] == "cache"
    assert names_in(directory) == sorted([*PUBLISHED, here_alive, elsewhere])


# Old entries


def test_a_module_unused_for_a_month_goes_and_those_who_have_it_open_keep_it(
    directory: Path,
) -> None:
    cache = ModuleCache(directory)
    with cache.open(OTHER_KEY, build) as held:
        age(directory / f"{OTHER_KEY}.cwasm", 31 * DAY_SECONDS)
        open_and_close(cache)
        assert names_in(directory) == PUBLISHED
        assert content(held) == ARTEFACT


def test_a_module_used_within_the_month_stays_and_so_do_files_of_others(directory: Path) -> None:
    cache = ModuleCache(directory)
    open_and_close(cache, key=OTHER_KEY)
    age(directory / f"{OTHER_KEY}.cwasm", 29 * DAY_SECONDS)
    for name in ("notes.cwasm", "0123.json", "notes.txt"):
        (directory / name).write_bytes(b"")
        age(directory / name, 400 * DAY_SECONDS)
    before = names_in(directory)
    open_and_close(cache)
    assert names_in(directory) == sorted({*before, *PUBLISHED})


def test_use_keeps_a_module_young(directory: Path) -> None:
    cache = ModuleCache(directory)
    open_and_close(cache)
    path = directory / f"{KEY}.cwasm"
    age(path, 31 * DAY_SECONDS)
    assert open_and_close(cache, build=refuse_to_build)[0] == "cache"
    assert time.time() - path.stat().st_mtime < DAY_SECONDS


# Closing


@posix_only
def test_closing_a_module_twice_closes_one_descriptor(directory: Path) -> None:
    module = ModuleCache(directory).open(KEY, build)
    number = module.fd
    module.close()
    other = os.open(directory, os.O_RDONLY)
    os.dup2(other, number)
    module.close()
    assert os.path.sameopenfile(other, number)
    os.close(number)
    os.close(other)
    with pytest.raises(ValueError, match="is closed"):
        _ = module.fd


def test_a_forgotten_module_closes_itself(directory: Path) -> None:
    module = ModuleCache(directory).open(KEY, build)
    number = module.fd
    del module
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


@posix_only
def test_a_closed_cache_opens_nothing_more_but_its_modules_stay_open(
    directory: Path, temporary: Path
) -> None:
    cache = ModuleCache(world_writable(directory))
    with cache.open(KEY, build) as module:
        cache.close()
        cache.close()
        assert names_in(temporary) == []
        assert content(module) == ARTEFACT
    with pytest.raises(ValueError, match="cache is closed"):
        cache.open(KEY, build)


@posix_only
def test_a_private_directory_that_was_cleaned_away_is_made_anew(
    directory: Path, temporary: Path
) -> None:
    with ModuleCache(world_writable(directory)) as cache:
        shutil.rmtree(open_and_close(cache)[1].parent)
        assert open_and_close(cache)[0] == "built"
    assert names_in(temporary) == []


def test_a_cache_directory_that_was_cleaned_away_is_made_anew(directory: Path) -> None:
    cache = ModuleCache(directory)
    open_and_close(cache)
    shutil.rmtree(directory)
    assert open_and_close(cache) == ("built", directory / f"{KEY}.cwasm")


EXIT_WITHOUT_CLOSING = """
import os, sys
from pathlib import Path
from nacre.sandbox.module_cache import ModuleCache

cache = ModuleCache(Path(sys.argv[1]))
module = cache.open("ab", lambda path: path.write_bytes(b"artefact") and None)
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(module.path.exists(), flush=True)
"""


@posix_only
def test_the_private_directory_goes_when_its_process_exits_but_not_when_a_fork_of_it_does(
    directory: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(temporary))
    process = python(EXIT_WITHOUT_CLOSING, str(world_writable(directory)))
    output, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, output.strip()) == (0, b"True")
    assert names_in(temporary) == []


# Windows, as far as it can be seen from here


def test_without_locks_and_owners_modules_are_still_checked_and_replaced(
    directory: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    cache = ModuleCache(directory)
    assert open_and_close(cache)[0] == "built"
    assert open_and_close(cache, build=refuse_to_build)[0] == "cache"
    cut_short(directory / f"{KEY}.cwasm")
    assert open_and_close(cache)[0] == "built"
    assert len(warnings_in(caplog)) == 1


def abandon_fallback(temporary: Path, code: str) -> Path:
    """Return the temporary directory that a killed process used for its modules."""
    program = (
        "import os, pathlib, tempfile\n"
        "from nacre.sandbox.module_cache import ModuleCache\n"
        f"tempfile.tempdir = {str(temporary)!r}\n"
        "cache = ModuleCache()\n"
        "folder = cache._fall_back('for a test')\n"
        "(folder / 'module').touch()\n"
        f"print(folder, flush=True)\n{code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, check=False, timeout=60
    )
    return Path(done.stdout.decode().strip())


def test_the_temporary_directory_of_a_killed_process_is_removed(
    directory: Path, temporary: Path
) -> None:
    left = abandon_fallback(temporary, "os.kill(os.getpid(), 9)")
    assert left.is_dir()
    # Not ours to remove: a live process, a link, and a name that only looks like one.
    live = Path(
        tempfile.mkdtemp(prefix=left.name.replace(left.name.split("-")[2], str(os.getpid())))
    )
    (temporary / "nacre-modules-elsewhere").symlink_to(directory.parent)
    (temporary / "nacre-modules").mkdir()
    with ModuleCache(directory) as cache:
        open_and_close(cache)
    assert names_in(temporary) == sorted([live.name, "nacre-modules", "nacre-modules-elsewhere"])
