"""Inputs that go through an editor."""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nacre.cli.agent_approvals import EditError, edit_input

if TYPE_CHECKING:
    from nacre.json_types import JsonObject


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files for the editor are made."""
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def use_editor(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """An editor that does this with `file`, the path that it is given."""
    script = folder / "editor.py"
    script.write_text(f"import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\n{code}\n")
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")


async def test_an_input_that_nobody_changes_comes_back_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_editor(monkeypatch, folder, "")
    given: JsonObject = {"text": "a\u202e\u2028\n", "n": [1, None, True], "é": {}}
    assert await edit_input(given) == given


async def test_nothing_is_left_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_editor(monkeypatch, folder, "")
    await edit_input({"password": "x"})
    assert names_in(folder) == ["editor.py"]


async def test_the_file_is_for_its_owner_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "file.write_text('{\"mode\": %d}' % (file.stat().st_mode & 0o777))"
    use_editor(monkeypatch, folder, code)
    assert await edit_input({}) == {"mode": 0o600}


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("file.write_text('{')", "is no JSON"),
        ("file.write_text('[1]')", "no object"),
        ("file.unlink()", "cannot be read"),
        ("sys.exit(3)", "ended with status 3"),
    ],
)
async def test_what_is_no_input_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, problem: str
) -> None:
    use_editor(monkeypatch, folder, code)
    with pytest.raises(EditError, match=problem):
        await edit_input({"a": 1})
    assert names_in(folder) == ["editor.py"]


@pytest.mark.parametrize("command", ["no-such-editor", "'unfinished"])
async def test_an_editor_that_cannot_be_started_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("EDITOR", command)
    with pytest.raises(EditError, match=f"{command}.* cannot be started"):
        await edit_input({})
    assert names_in(folder) == []
