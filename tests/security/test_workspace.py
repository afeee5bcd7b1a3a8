"""Attacks on the workspace: by path, by link, by special file, and by racing."""

import os
import shutil
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from nacre.tools.core.workspace import FileProblem
from tests.tools.core.file_calls import Files

OUTSIDE = "is outside of the workspace"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret", encoding="utf-8")
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "inner.txt").write_text("inner", encoding="utf-8")
    return Files(root)


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "folder/../../secret.txt",
        "folder/../../root/../secret.txt",
        "/etc/passwd",
        "//etc/passwd",
        "./../secret.txt",
    ],
)
@pytest.mark.parametrize("name", ["read", "list", "search"])
async def test_no_path_leads_out(files: Files, path: str, name: str) -> None:
    assert OUTSIDE in await files.problem(name, path=path, query="secret")


async def test_a_root_that_only_begins_alike_is_another_folder(files: Files) -> None:
    twin = files.root.with_name("root2")
    twin.mkdir()
    (twin / "x.txt").write_text("secret", encoding="utf-8")
    assert OUTSIDE in await files.problem("read", path=str(twin / "x.txt"))


async def test_the_root_by_its_own_full_path_is_the_root(files: Files) -> None:
    path = str(files.root / "folder" / "inner.txt")
    assert (await files.call("read", path=path))["text"] == "inner"


@pytest.mark.parametrize("path", ["", "a\0b", "~", "~/x", "x" * 5000, "\ud800", "\udcff"])
async def test_paths_that_are_none_are_refused(files: Files, path: str) -> None:
    assert await files.problem("read", path=path)


@pytest.mark.parametrize("target", ["../secret.txt", "folder/../../secret.txt", "{outside}"])
async def test_a_link_does_not_lead_out(files: Files, target: str) -> None:
    link = files.root / "link"
    link.symlink_to(target.replace("{outside}", str(files.root.parent / "secret.txt")))
    for name, more in (("read", {}), ("write", {"content": "x"}), ("list", {})):
        assert OUTSIDE in await files.problem(name, path="link", **more)
    assert (files.root.parent / "secret.txt").read_text(encoding="utf-8") == "secret"


async def test_a_folder_that_is_a_link_does_not_lead_out(files: Files) -> None:
    (files.root / "way").symlink_to(files.root.parent / "outside")
    assert OUTSIDE in await files.problem("read", path="way/secret.txt")
    assert OUTSIDE in await files.problem("write", path="way/new.txt", content="x")
    assert os.listdir(files.root.parent / "outside") == ["secret.txt"]


async def test_a_link_inside_is_followed_and_stays_a_link(files: Files) -> None:
    link = files.root / "short"
    link.symlink_to("folder/inner.txt")
    assert (await files.call("read", path="short"))["path"] == "folder/inner.txt"
    await files.call("write", path="short", content="changed")
    assert link.is_symlink()
    assert (files.root / "folder" / "inner.txt").read_text(encoding="utf-8") == "changed"


async def test_links_in_a_circle_end(files: Files) -> None:
    (files.root / "a").symlink_to("b")
    (files.root / "b").symlink_to("a")
    assert "leads through more than 40 links" in await files.problem("read", path="a")


async def test_a_search_does_not_follow_links(files: Files) -> None:
    (files.root / "way").symlink_to(files.root.parent / "outside")
    (files.root / "file").symlink_to(files.root.parent / "secret.txt")
    assert (await files.call("search", query="secret"))["matches"] == []


async def test_a_named_pipe_keeps_nobody_waiting(files: Files) -> None:
    os.mkfifo(files.root / "pipe")
    assert "is a named pipe, not a file" in await files.problem("read", path="pipe")
    assert "is a named pipe" in await files.problem("write", path="pipe", content="x")
    assert (await files.call("search", query="x"))["filesSkipped"] == 1


async def test_a_device_is_no_file(files: Files) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    try:
        os.mknod(files.root / "zero", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this machine lets nobody make devices")
    assert "is a device, not a file" in await files.problem("read", path="zero")


async def test_a_deep_tree_is_walked(files: Files) -> None:
    path = "/".join(["d"] * 100)
    await files.call("write", path=f"{path}/deep.txt", content="needle")
    found = await files.call("search", query="needle")
    assert [match["path"] for match in found["matches"]] == [f"{path}/deep.txt"]
    assert "incomplete" not in found


async def test_a_path_through_too_many_folders_opens_few_of_them(files: Files) -> None:
    problem = await files.problem("write", path="d/" * 2_000 + "x", content="x")
    assert "goes through more than 100 folders" in problem


async def test_a_tree_that_is_too_deep_does_not_keep_the_rest_from_being_searched(
    files: Files,
) -> None:
    make_deep_tree(files.root / "a", depth=300)
    (files.root / "z.txt").write_text("needle", encoding="utf-8")
    found = await files.call("search", query="needle")
    assert [match["path"] for match in found["matches"]] == ["z.txt"]
    assert "1 folders are not readable or are nested in more than 100 others" in found["incomplete"]


def make_deep_tree(place: Path, *, depth: int) -> None:
    """Folders in folders."""
    place.mkdir()
    here = os.open(place, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


async def test_a_folder_that_becomes_a_pipe_keeps_no_search_waiting(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = os.open

    def swap_and_open(
        path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if path == "folder" and (files.root / "folder").is_dir():
            shutil.rmtree(files.root / "folder")
            os.mkfifo(files.root / "folder")
        return really_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap_and_open)
    found = await files.call("search", query="inner")
    assert (found["matches"], bool(found["incomplete"])) == ([], True)


@contextmanager
def swapping(place: Path, target: Path) -> Generator[None]:
    """A thread that turns a folder into a link to elsewhere and back, as fast as it can."""
    is_over = threading.Event()
    aside = place.with_name("aside")

    def swap() -> None:
        while not is_over.is_set():
            place.rename(aside)
            # The tool makes a folder that it misses, which is then in the way.
            with suppress(FileExistsError):
                place.symlink_to(target)
                place.unlink()
            while aside.exists():
                shutil.rmtree(place, ignore_errors=True)
                with suppress(OSError):
                    aside.rename(place)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


async def test_a_folder_swapped_for_a_link_in_a_race_never_leads_out(files: Files) -> None:
    outside = files.root.parent / "outside"
    written = read = 0
    with swapping(files.root / "folder", outside):
        for number in range(400):
            try:
                await files.call("write", path=f"folder/{number}.txt", content="mine")
                written += 1
            except FileProblem:
                pass
            try:
                found = await files.call("read", path="folder/secret.txt")
            except FileProblem:
                continue
            read += found["text"] == "secret"
    assert os.listdir(outside) == ["secret.txt"]
    assert (outside / "secret.txt").read_text(encoding="utf-8") == "secret"
    assert read == 0
    assert written > 0
