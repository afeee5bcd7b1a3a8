"""The keys that seal snapshots. Processes with the same keys can restore each other's snapshots.

A ring is text with one key per line: `<id> <base64 of 32 bytes>`. The first key seals new
snapshots. The others only open older ones, so keys can be replaced while cells wait.
"""

from __future__ import annotations

import base64
import binascii
import os
import subprocess
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Final

from nacre.errors import ConfigError, SnapshotError
from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern
from nacre.private_files import read_private

if TYPE_CHECKING:
    from pathlib import Path

    from nacre.config import SnapshotKeysConfig

KEY_BYTES: Final = 32
_PATH: Final = "sandbox.snapshotKeys"
_ID = lazy_pattern(r"[A-Za-z0-9._-]{1,64}")
_ID_BYTES: Final = 4
_COMMAND_SECONDS: Final = 30.0
_FORMAT: Final = "each line has an id and 32 bytes as base64, such as `k1 <base64>`"


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotKey:
    """A key and its id, which is part of each snapshot that it seals."""

    id: str
    secret: bytes = field(repr=False)

    def to_line(self) -> str:
        return f"{self.id} {base64.b64encode(self.secret).decode()}"


class KeyRing:
    """The keys of a process, the one for new snapshots first."""

    def __init__(self, *keys: SnapshotKey) -> None:
        if not keys:
            raise ConfigError(_PATH, f"has no key; {_FORMAT}")
        self._keys = {key.id: key for key in keys}
        if len(self._keys) < len(keys):
            raise ConfigError(_PATH, "has two keys with one id; give each key an id of its own")
        self.current = keys[0]

    def find(self, key_id: str) -> SnapshotKey:
        """Return the key with this id. Raises SnapshotError if there is none."""
        key = self._keys.get(key_id)
        if key is None:
            raise SnapshotError(
                f"the snapshot was made with another key ({key_id[:64]!r}), which this process "
                f"does not have; add it to `{_PATH}`, or run the program again"
            )
        return key


def new_key() -> SnapshotKey:
    """Return a random key with a random id."""
    return SnapshotKey(id=f"k{os.urandom(_ID_BYTES).hex()}", secret=os.urandom(KEY_BYTES))


def parse_key_ring(text: str, *, source: str) -> KeyRing:
    """Parse the lines of a ring. Raises ConfigError, without any part of a key."""
    keys: list[SnapshotKey] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        problem = f"{source} has an invalid line {number}; {_FORMAT}"
        if len(words) != 2 or not _ID.fullmatch(words[0]):
            raise ConfigError(_PATH, problem)
        try:
            secret = base64.b64decode(words[1], validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(_PATH, problem) from None
        if len(secret) != KEY_BYTES:
            raise ConfigError(_PATH, problem)
        keys.append(SnapshotKey(id=words[0], secret=secret))
    if not keys:
        raise ConfigError(_PATH, f"{source} has no key; {_FORMAT}")
    return KeyRing(*keys)


def load_key_ring(config: SnapshotKeysConfig) -> KeyRing:
    """Load the keys that a configuration names. A missing file is created. Blocks.

    Raises ConfigError.
    """
    if config.env:
        text = os.environ.get(config.env)
        if not text:
            raise ConfigError(f"{_PATH}.env", f"names the variable {config.env}, which is not set")
        return parse_key_ring(text, source=f"the variable {config.env}")
    if config.command:
        return parse_key_ring(_run_command(config.command), source="the output of the command")
    return parse_key_ring(_read_or_create(config.file), source=f"the file {config.file}")


def _run_command(command: tuple[str, ...]) -> str:
    path = f"{_PATH}.command"
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or f"it took more than {_COMMAND_SECONDS:g} s"
        raise ConfigError(path, f"{command[0]!r} cannot be run: {reason}") from None
    if done.returncode:
        raise ConfigError(path, f"{command[0]!r} ended with the exit code {done.returncode}")
    return done.stdout.decode(errors="replace")


def _read_or_create(file: Path) -> str:
    try:
        if not file.exists():
            _create(file)
        content = read_private(file)
    except OSError as error:
        raise ConfigError(
            f"{_PATH}.file", f"{file} cannot be read or created: {error.strerror}"
        ) from error
    if content is None:
        raise ConfigError(
            f"{_PATH}.file",
            f"{file} belongs to another user, or other users can access it; `chmod 600` it",
        )
    return content.decode(errors="replace")


def _create(file: Path) -> None:
    """Write a file with a new key, unless another process has just done so."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    import tempfile

    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(f"{new_key().to_line()}\n")
            stream.flush()
            os.fsync(stream.fileno())
        # Unlike a rename, a link never replaces the file of another process.
        with suppress(FileExistsError):
            os.link(name, file)
    finally:
        os.unlink(name)
