"""The input of a call in the person's own editor."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from nacre.errors import NacreError
from nacre.json_types import NotJsonError, decode_json

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

_DEFAULT_EDITOR: Final = "vi"


class EditError(NacreError):
    """What came back from the editor is no input, or nothing came back."""


async def edit_input(given: JsonObject) -> JsonObject:
    """What the person made of the input; raises EditError."""
    path = await anyio.to_thread.run_sync(_write_file, given)
    try:
        await _edit(path)
        content = await anyio.to_thread.run_sync(path.read_bytes)
    except OSError as error:
        raise EditError(f"the edited input cannot be read: {error}") from None
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_remove, path)
    return _input_from(content)


async def _edit(path: Path) -> None:
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or _DEFAULT_EDITOR
    try:
        words = [*shlex.split(command), str(path)]
        # With this process's own terminal.
        async with await anyio.open_process(words, stdin=None, stdout=None, stderr=None) as editor:
            status = await editor.wait()
    except (OSError, ValueError) as error:
        problem = f"the editor {command!r} cannot be started: {error}"
        raise EditError(f"{problem}; set EDITOR to another one") from None
    if status != 0:
        raise EditError(f"the editor {command!r} ended with status {status}; nothing was changed")


def _write_file(given: JsonObject) -> Path:
    handle, name = tempfile.mkstemp(prefix="nacre-input-", suffix=".json")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(given, ensure_ascii=False, indent=2))
        file.write("\n")
    return Path(name)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _input_from(content: bytes) -> JsonObject:
    try:
        value = decode_json(content)
    except NotJsonError as error:
        raise EditError(f"the edited input is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise EditError("the edited input is JSON, but no object; it has to be one")
    return value
