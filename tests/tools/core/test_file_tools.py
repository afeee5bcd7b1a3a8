"""The file tools: read, write, edit, list and search."""

import os
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path

import anyio
import pytest

from nacre.config.sections import FsToolsConfig
from nacre.tools.core.file_tools import read_lines
from nacre.tools.core.workspace import Workspace
from tests.tools.core.file_calls import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    return Files(tmp_path)


async def test_a_file_is_read_by_lines(files: Files) -> None:
    assert await files.call("read", path="notes.txt") == {
        "path": "notes.txt",
        "text": "one\ntwo\nthree\n",
        "firstLine": 1,
        "lines": 3,
        "fileBytes": 14,
    }
    assert await files.call("read", path="notes.txt", firstLine=2, lines=1) == {
        "path": "notes.txt",
        "text": "two\n",
        "firstLine": 2,
        "lines": 1,
        "fileBytes": 14,
        "nextLine": 3,
    }


async def test_a_large_file_is_read_in_whole_lines_within_the_bound(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("0123456789\n" * 1000, encoding="utf-8")
    files = Files(tmp_path, FsToolsConfig(max_read_bytes=1024))
    first = await files.call("read", path="long.txt")
    assert (first["lines"], len(first["text"]), first["nextLine"]) == (93, 1023, 94)
    rest = await files.call("read", path="long.txt", firstLine=first["nextLine"])
    assert rest["firstLine"] == 94


async def test_a_line_that_is_too_long_is_cut(tmp_path: Path) -> None:
    (tmp_path / "line.txt").write_text("x" * 5000, encoding="utf-8")
    found = await Files(tmp_path, FsToolsConfig(max_read_bytes=1024)).call("read", path="line.txt")
    assert (len(found["text"]), found["nextLine"], found["fileBytes"]) == (1024, 2, 5000)


async def test_a_file_of_ten_gigabytes_costs_no_more_than_a_small_one(files: Files) -> None:
    sparse = files.root / "sparse.txt"
    with sparse.open("wb") as file:
        file.write(b"first\n" + b"x" * 10_000)
        file.truncate(10 * 1024**3)
    found = await files.call("read", path="sparse.txt", lines=1)
    assert (found["text"], found["fileBytes"]) == ("first\n", 10 * 1024**3)
    assert "is more than 67108864 bytes from the start; use search" in await files.problem(
        "read", path="sparse.txt", firstLine=3
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"\x7fELF\0\0", "data.bin is a binary file of 6 bytes, not text")],
)
async def test_what_is_no_text_is_named(files: Files, content: bytes, problem: str) -> None:
    (files.root / "data.bin").write_bytes(content)
    assert await files.problem("read", path="data.bin") == problem


async def test_text_in_another_encoding_is_shown_with_a_note(files: Files) -> None:
    (files.root / "latin.txt").write_bytes("déjà".encode("latin-1"))
    found = await files.call("read", path="latin.txt")
    assert found["text"] == "d\ufffdj\ufffd"
    assert "not valid UTF-8" in found["note"]


async def test_lines_beyond_the_end_are_said_to_be_missing(files: Files) -> None:
    problem = await files.problem("read", path="notes.txt", firstLine=9)
    assert problem == "notes.txt has fewer than 9 lines"


def test_a_line_far_behind_many_empty_ones_is_found_by_pieces(files: Files) -> None:
    (files.root / "empty.txt").write_bytes(b"\n" * 1_000_000 + b"here\nthere\n")
    reads: list[None] = []

    def is_over() -> bool:
        reads.append(None)
        return False

    with Workspace(files.root).locate("empty.txt") as place:
        found = read_lines(
            place, first_line=1_000_001, max_lines=1, max_bytes=100, is_cancelled=is_over
        )
    assert (found.text, found.is_truncated, len(reads) < 1_000) == ("here\n", True, True)


async def test_a_file_is_written_with_its_folders(files: Files) -> None:
    result = await files.call("write", path="a/b/c.txt", content="hello ☃")
    assert result == {"path": "a/b/c.txt", "bytes": 9, "created": True}
    assert (files.root / "a/b/c.txt").read_text(encoding="utf-8") == "hello ☃"
    again = await files.call("write", path="a/b/c.txt", content="bye")
    assert again == {"path": "a/b/c.txt", "bytes": 3, "created": False}


async def test_a_file_that_is_replaced_keeps_its_mode_and_leaves_nothing_beside_it(
    files: Files,
) -> None:
    script = files.root / "run.sh"
    script.write_text("old", encoding="utf-8")
    script.chmod(0o6750)
    await files.call("write", path="run.sh", content="new")
    assert script.stat().st_mode & 0o7777 == 0o750
    assert sorted(os.listdir(files.root)) == ["notes.txt", "run.sh"]


async def test_a_workspace_that_is_missing_is_made(tmp_path: Path) -> None:
    assert (await Files(tmp_path / "deep" / "new").call("list"))["entries"] == []


async def test_a_workspace_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    problem = await Files(tmp_path / "file" / "new").problem("list")
    assert problem == "a part of the workspace is not a folder"


async def test_a_folder_is_not_overwritten(files: Files) -> None:
    (files.root / "folder").mkdir()
    problem = await files.problem("write", path="folder", content="x")
    assert problem == "folder is a folder, not a file"


async def test_exact_text_is_replaced(files: Files) -> None:
    result = await files.call("edit", path="notes.txt", oldText="two\n", newText="2\n2.5\n")
    assert result == {"path": "notes.txt", "replacements": 1, "line": 2}
    assert (files.root / "notes.txt").read_text(encoding="utf-8") == "one\n2\n2.5\nthree\n"


async def test_line_ends_of_windows_stay(files: Files) -> None:
    (files.root / "dos.txt").write_bytes(b"a\r\nb\r\nc\r\n")
    await files.call("edit", path="dos.txt", oldText="a\nb", newText="x\ny")
    assert (files.root / "dos.txt").read_bytes() == b"x\r\ny\r\nc\r\n"


async def test_text_that_is_there_twice_is_replaced_only_if_all_are_meant(files: Files) -> None:
    (files.root / "twice.txt").write_text("x = 1\nx = 1\n", encoding="utf-8")
    problem = await files.problem("edit", path="twice.txt", oldText="x = 1", newText="x = 2")
    assert "occurs 2 times in twice.txt; add surrounding lines" in problem
    result = await files.call(
        "edit", path="twice.txt", oldText="x = 1", newText="x = 2", replaceAll=True
    )
    assert result["replacements"] == 2


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("threee", "3", "oldText does not occur in notes.txt; the most similar line is 3: three"),
        ("zzz", "3", "oldText does not occur in notes.txt; read the file first"),
        ("", "3", "oldText is empty; write the file instead"),
        ("one", "one", "are the same"),
    ],
)
async def test_an_edit_that_cannot_be_made_changes_nothing_and_says_why(
    files: Files, old: str, new: str, problem: str
) -> None:
    assert problem in await files.problem("edit", path="notes.txt", oldText=old, newText=new)
    assert (files.root / "notes.txt").read_text(encoding="utf-8") == "one\ntwo\nthree\n"


async def test_edits_of_one_file_at_once_are_all_made(files: Files) -> None:
    names = [f"name{number:02}" for number in range(20)]
    (files.root / "many.txt").write_text("\n".join(names), encoding="utf-8")
    async with anyio.create_task_group() as tasks:
        for name in names:
            edit = partial(files.call, "edit", path="many.txt", oldText=name, newText=name.upper())
            tasks.start_soon(edit)
    text = (files.root / "many.txt").read_text(encoding="utf-8")
    assert text == "\n".join(names).upper()


async def test_an_edit_does_not_undo_what_another_program_wrote_meanwhile(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, really_sync = files.root / "notes.txt", os.fsync

    def write_and_sync(file: int) -> None:
        really_sync(file)
        notes.write_text("one\ntwo\nthree\nfour\n", encoding="utf-8")

    monkeypatch.setattr(os, "fsync", write_and_sync)
    problem = await files.problem("edit", path="notes.txt", oldText="two", newText="2")
    assert problem == "notes.txt was changed in the meantime; read it again"
    assert notes.read_text(encoding="utf-8").endswith("four\n")
    assert os.listdir(files.root) == ["notes.txt"]


async def test_an_edit_does_not_fill_the_memory(files: Files) -> None:
    (files.root / "many.txt").write_text("a" * 1_000_000, encoding="utf-8")
    problem = await files.problem(
        "edit", path="many.txt", oldText="a", newText="b" * 100_000, replaceAll=True
    )
    assert problem.startswith("many.txt would have 100000000000 characters")


async def test_the_nearest_line_is_looked_for_within_bounds(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparisons: list[None] = []
    really_compare = SequenceMatcher[str].ratio

    def counted(matcher: SequenceMatcher[str]) -> float:
        comparisons.append(None)
        return really_compare(matcher)

    monkeypatch.setattr(SequenceMatcher, "ratio", counted)
    lines = [f"{'ab' * 100}{number:013b}" for number in range(5_000)]
    (files.root / "alike.txt").write_text("\n".join(lines), encoding="utf-8")
    problem = await files.problem("edit", path="alike.txt", oldText="ba" * 80 + "z", newText="c")
    assert "the most similar line is" in problem
    assert len(comparisons) <= 21


async def test_a_new_file_is_as_private_as_the_user_wants_files_to_be(files: Files) -> None:
    before = os.umask(0o077)
    try:
        await files.call("write", path="new.txt", content="x")
    finally:
        os.umask(before)
    assert (files.root / "new.txt").stat().st_mode & 0o777 == 0o600


async def test_a_folder_is_listed_by_name_and_page_by_page(files: Files) -> None:
    (files.root / "sub").mkdir()
    (files.root / "link").symlink_to("notes.txt")
    assert await files.call("list") == {
        "path": ".",
        "entries": [
            {"name": "link", "type": "link"},
            {"name": "notes.txt", "type": "file", "bytes": 14},
            {"name": "sub", "type": "folder"},
        ],
        "total": 3,
    }
    page = await files.call("list", limit=1)
    assert (page["after"], page["total"]) == ("link", 3)
    page = await files.call("list", limit=2, after=page["after"])
    assert [entry["name"] for entry in page["entries"]] == ["notes.txt", "sub"]
    assert "after" not in page


async def test_no_name_is_lost_between_two_pages_that_is_no_text(files: Files) -> None:
    for name in (b"\xff1", b"\xff2", "\uffff".encode()):
        os.close(os.open(os.path.join(os.fsencode(files.root), name), os.O_CREAT))
    names: list[str] = []
    page = await files.call("list", limit=1)
    while "after" in page:
        names += [entry["name"] for entry in page["entries"]]
        page = await files.call("list", limit=1, after=page["after"])
    names += [entry["name"] for entry in page["entries"]]
    assert sorted(names) == ["\\xff1", "\\xff2", "notes.txt", "\uffff"]


async def test_lines_are_found_in_all_files_of_a_folder(files: Files) -> None:
    (files.root / "src").mkdir()
    (files.root / "src" / "main.py").write_text("def two():\n    return 2\n", encoding="utf-8")
    (files.root / ".git").mkdir()
    (files.root / ".git" / "HEAD").write_text("two", encoding="utf-8")
    (files.root / "blob").write_bytes(b"two\0")
    assert await files.call("search", query="two") == {
        "matches": [
            {"path": "notes.txt", "line": 2, "text": "two"},
            {"path": "src/main.py", "line": 1, "text": "def two():"},
        ],
        "filesSearched": 2,
        "filesSkipped": 1,
    }


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({"query": "TWO"}, []),
        ({"query": "TWO", "ignoreCase": True}, [2]),
        ({"query": "^t", "isRegex": True}, [2, 3]),
        ({"query": "o", "glob": "*.md"}, []),
        ({"query": "o", "path": "notes.txt"}, [1, 2]),
    ],
)
async def test_what_fits_depends_on_the_query(
    files: Files, given: dict[str, object], lines: list[int]
) -> None:
    found = await files.call("search", **given)
    assert [match["line"] for match in found["matches"]] == lines


async def test_more_matches_than_were_asked_for_are_said_to_be_there(files: Files) -> None:
    found = await files.call("search", query="o", limit=1)
    assert (len(found["matches"]), found["incomplete"]) == (1, "there are more than 1 matches")


@pytest.mark.parametrize("query", ["(a|aa)+$", "(a+)+$", "(a*)*c", "(?:a?){100}c"])
async def test_an_expression_that_was_made_to_go_back_for_ever_takes_no_longer(
    files: Files, query: str
) -> None:
    (files.root / "evil.txt").write_text("a" * 4_000 + "b", encoding="utf-8")
    found = await files.call("search", query=query, isRegex=True, path="evil.txt")
    assert found == {"matches": [], "filesSearched": 1, "filesSkipped": 0}


@pytest.mark.parametrize(
    "query",
    [
        # A hundred million repetitions in few characters.
        "(?:(?:(?:(?:a?){100}){100}){100}){100}",
        r"\p{L}" * 150,
        "(?:" * 300 + "a" + ")" * 300,
        "a" * 2_000,
        r"(a)\1",
        "\ud800",
        "a(?=b)",
        "(",
    ],
)
async def test_an_expression_that_is_too_large_or_none_is_refused(files: Files, query: str) -> None:
    assert "query" in await files.problem("search", query=query, isRegex=True)


async def test_lines_that_are_too_long_for_an_expression_are_said_to_be_left_out(
    files: Files,
) -> None:
    (files.root / "long.txt").write_text("x" * 400_000 + "abc\n", encoding="utf-8")
    found = await files.call("search", query="[a]bc", isRegex=True, path="long.txt")
    assert (found["matches"], "such as line 1 of long.txt" in found["incomplete"]) == ([], True)


async def test_an_empty_query_and_one_without_end_are_refused(files: Files) -> None:
    assert "query is empty" in await files.problem("search", query="")
    assert "1000 characters" in await files.problem("search", query="x" * 1_001)
    assert "1000 characters" in await files.problem("search", query="x", glob="*" * 1_001)


async def test_a_search_that_nobody_wants_any_more_ends(files: Files) -> None:
    (files.root / "folders" / "without" / "files").mkdir(parents=True)
    files.abort.abort("stop")
    for path in (".", "folders"):
        found = await files.call("search", query="two", path=path)
        assert (found["matches"], bool(found["incomplete"])) == ([], True)


@pytest.mark.parametrize(
    ("ask", "asked"),
    [
        ("never", []),
        ("writes", ["edit", "write"]),
        ("always", ["edit", "list", "read", "search", "write"]),
    ],
)
def test_a_person_is_asked_as_configured(tmp_path: Path, ask: str, asked: list[str]) -> None:
    config = FsToolsConfig(ask=ask)  # pyright: ignore[reportArgumentType]
    tools = Files(tmp_path, config).tools
    assert sorted(name for name, tool in tools.items() if tool.needs_approval) == asked


def test_switched_off_there_are_none(tmp_path: Path) -> None:
    assert Files(tmp_path, FsToolsConfig(is_enabled=False)).tools == {}
