"""The support bundle: one private file with what somebody needs to find a problem.

It has the configuration without secrets, versions, and the recorded events of recent runs, which
have no secrets either. It stays on this machine.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import time
import zipfile
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Final

import anyio.to_thread

import nacre
from nacre.errors import StorageError
from nacre.json_types import encode_json
from nacre.private_files import replace_private
from nacre.telemetry import remove_secrets
from nacre.telemetry.config_redaction import HIDDEN, find_secrets, redact_secrets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from nacre.config import McpServerConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.storage import Store

_MAX_SESSIONS: Final = 10
_MAX_RUNS: Final = 20
_MAX_RUN_BYTES: Final = 2 << 20
_MAX_FILE_BYTES: Final = 4 << 20
_MAX_BUNDLE_BYTES: Final = 24 << 20
_MAX_NOTE_CHARACTERS: Final = 2_048
_PAGE_EVENTS: Final = 500
# Shorter values are words such as `true` and `debug`, which are everywhere.
_MIN_SECRET_CHARACTERS: Final = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class SupportBundle:
    """A bundle that was written."""

    path: Path
    size_bytes: int
    files: tuple[str, ...]
    problems: tuple[str, ...]
    """What is missing in the bundle, and why."""

    def to_json(self) -> JsonObject:
        return {
            "path": str(self.path),
            "sizeBytes": self.size_bytes,
            "files": [*self.files],
            "problems": [*self.problems],
        }


@dataclass(kw_only=True, slots=True)
class BundleContent:
    """The files of a bundle, up to a limit."""

    note: str = ""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    problems: list[str] = field(default_factory=list[str])
    _total_bytes: int = 0
    _secrets: set[str] = field(default_factory=set[str])
    """Hidden in all files, whatever they look like."""

    def add_json(self, name: str, value: JsonValue) -> None:
        self.add(name, encode_json(value))

    def add_text(self, name: str, text: str) -> None:
        """Add a text without its secrets."""
        self.add(name, remove_secrets(text).encode())

    def add_config(self, document: Mapping[str, object], misplaced: Collection[str] = ()) -> None:
        """Add the configuration. Values at `misplaced` paths are hidden whatever they are."""
        self.add_json("config.json", redact_secrets(document, misplaced=misplaced))
        self._secrets.update(find_secrets(document, misplaced=misplaced))

    def hide_values_of(self, servers: Iterable[McpServerConfig]) -> None:
        """Hide the environment and the headers of MCP servers in all files, such as in what a
        server has logged."""
        for server in servers:
            self._secrets.update((*server.looked_up, *server.env.values()))
            for header in server.headers.values():
                # Others may have the token without `Bearer`.
                self._secrets.update((header, header.rpartition(" ")[2]))

    def add(self, name: str, data: bytes) -> bool:
        """Add a file; the end of a long one is kept. False if the bundle is full."""
        if len(data) > _MAX_FILE_BYTES:
            self.problems.append(f"{name}: only the last {_MAX_FILE_BYTES} of {len(data)} bytes")
            data = data[-_MAX_FILE_BYTES:]
        if self._total_bytes + len(data) > _MAX_BUNDLE_BYTES:
            self.problems.append(f"{name}: left out, because the bundle is full")
            return False
        self._total_bytes += len(data)
        self.files[name] = data
        return True

    async def add_trajectories(self, store: Store, *, session_id: str | None = None) -> None:
        """Add the events of the latest runs, of one session or of all."""
        try:
            for run_id in await _list_runs(store, session_id):
                if not self.add(f"trajectories/{run_id}.jsonl", await _read_run(store, run_id)):
                    break
        except StorageError as error:
            self.problems.append(f"trajectories: {error}")

    async def write(self, folder: Path) -> SupportBundle:
        """Write the bundle into this folder, which is created and private."""
        return await anyio.to_thread.run_sync(partial(self._write, folder))

    def _write(self, folder: Path) -> SupportBundle:
        # The random part keeps two bundles of one second apart.
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        path = folder / f"nacre-diagnostics-{now}-{os.urandom(3).hex()}.zip"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = {name: self._hide_secrets(data) for name, data in self.files.items()}
        manifest: JsonObject = {
            "createdAt": now,
            "note": remove_secrets(self.note[:_MAX_NOTE_CHARACTERS]),
            "versions": _list_versions(),
            "files": {name: len(data) for name, data in files.items()},
            "problems": [*self.problems],
        }
        files = {"manifest.json": self._hide_secrets(encode_json(manifest)), **files}
        with (
            replace_private(path) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, data in files.items():
                archive.writestr(name, data)
        return SupportBundle(
            path=path,
            size_bytes=path.stat().st_size,
            files=tuple(files),
            problems=tuple(self.problems),
        )

    def _hide_secrets(self, data: bytes) -> bytes:
        """Replace the secrets, also where they are part of a JSON text."""
        known = [it for it in self._secrets if len(it) >= _MIN_SECRET_CHARACTERS]
        forms = {form for it in known for form in (it.encode(), encode_json(it)[1:-1])}
        if not forms:
            return data
        # The longest first: one may be the beginning of another.
        longest_first = sorted(forms, key=len, reverse=True)
        return re.sub(b"|".join(map(re.escape, longest_first)), HIDDEN.encode(), data)


async def _list_runs(store: Store, session_id: str | None) -> list[str]:
    """The newest runs first."""
    if session_id is None:
        sessions = [session.id for session in await store.sessions(limit=_MAX_SESSIONS)]
    else:
        sessions = [session_id]
    found = [turn for each in sessions for turn in await store.turns(each, limit=_MAX_RUNS)]
    found.sort(key=lambda turn: turn.started, reverse=True)
    return [turn.run_id for turn in found[:_MAX_RUNS]]


async def _read_run(store: Store, run_id: str) -> bytes:
    """The first events of a run, one on each line."""
    lines: list[bytes] = []
    total, after = 0, -1
    while page := await store.events(run_id=run_id, after=after, limit=_PAGE_EVENTS):
        after = page[-1].number
        for stored in page:
            line = encode_json(stored.event) + b"\n"
            total += len(line)
            if total > _MAX_RUN_BYTES:
                return b"".join(lines)
            lines.append(line)
        if len(page) < _PAGE_EVENTS:
            break
    return b"".join(lines)


def _list_versions() -> JsonObject:
    return {
        "nacre": nacre.__version__,
        "python": sys.version,
        "platform": platform.platform(),
        "packages": dict(sorted(_list_packages())),
    }


def _list_packages() -> Iterator[tuple[str, JsonValue]]:
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            yield name, distribution.version
