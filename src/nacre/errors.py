"""The exception tree of the whole package.

* NacreError
  x ConfigError                    a setting has a value that is not allowed
  x SandboxError
    + RuntimeUnavailableError      the sandbox cannot be started here
      - ModuleNotLoadableError     the compiled engine in the cache is not for this machine
    + ImageError                   a file of the sandbox is missing or not the one that was built
    + SnapshotError                a snapshot was refused before any of it was used
    + WorkerProtocolError          a worker sent what no sound worker sends
    + WorkerDiedError              a worker is gone, and the cells in it with it
    + HostRequestError             a handler's answer to the guest: its promise is rejected
    + CellStateError               the caller asked a cell for what its state does not allow

What a guest or a model may see is never one of these but a value (`nacre.sandbox.results`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class NacreError(Exception):
    """Anything that this package raises on purpose."""


class ConfigError(NacreError):
    """A setting is not allowed; the message names its path, its value and what is allowed."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"`{self.path}` {self.problem}"


class SandboxError(NacreError):
    """The sandbox could not do what it was asked to do."""


class RuntimeUnavailableError(SandboxError):
    """The sandbox cannot be started on this machine; there is no fallback, by design."""


class ModuleNotLoadableError(RuntimeUnavailableError):
    """The compiled engine in the cache does not load here; it has to be compiled again."""


class ImageError(SandboxError):
    """A file that the sandbox is made of is missing, or its hash is not the expected one."""


class SnapshotError(SandboxError):
    """A snapshot was refused: from another image or version, cut short, or tampered with."""


class WorkerProtocolError(SandboxError):
    """A worker sent something invalid; it is not to be trusted with another cell."""


class WorkerDiedError(SandboxError):
    """A worker process ended while it was still needed."""


class HostRequestError(SandboxError):
    """Raised by a host-request handler: the guest's promise is rejected with this, as plain data.

    `data` has to be JSON; its members become properties of the guest's error.
    """

    def __init__(
        self,
        message: str,
        *,
        name: str = "Error",
        code: str | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.name = name
        self.code = code
        self.data: Mapping[str, object] = {} if data is None else data


class CellStateError(SandboxError):
    """A cell was misused: resumed after its end, or while it is already being resumed."""
