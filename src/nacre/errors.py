"""The exception tree of the whole package.

* NacreError
  x ConfigError                    a setting has a value that is not allowed
    + MissingReferenceError        a setting names a variable or a file that does not exist
    + MisplacedValueError          a value is in a place where no setting can be
  x SandboxError
    + RuntimeUnavailableError      the sandbox cannot start on this machine
      - ModuleNotLoadableError     the compiled engine in the cache does not load
    + ImageError                   a file of the sandbox is missing or has the wrong hash
    + SnapshotError                a snapshot was rejected before it was used
    + WorkerProtocolError          a worker sent an invalid message
    + WorkerDiedError              a worker process ended, with the cells in it
      - NodeLostError              a worker was lost with its node
    + HostRequestError             raised by a handler to reject the guest's promise
    + CellStateError               the state of a cell does not allow the operation
  x ToolError                      a tool call failed; carries the reason as plain data
    + UnknownToolError             no tool of this run has this id
    + ToolInputError               the input does not match the tool's schema
    + ToolDeniedError              policy, a hook or a person denied the call
    + ToolFailedError              the tool raised, or its result is not valid
    + ToolAbortedError             the call was aborted
    + ToolServerError              the MCP server of the tool cannot be reached
  x ToolDefinitionError            a tool definition is not valid
  x CatalogError                   tools cannot be in one catalog together
  x HookError                      a hook is not valid, or returned a value it may not
  x NamespaceError                 a namespace is not valid
  x ToolPayloadError               a model request does not have exactly the run's tools
  x ApprovalError                  an approval is not open, or its answer is not valid
  x ProviderError                  a model request failed; carries the provider's message
  x CodexError                     Codex cannot run the turn: missing, too old, or refused
    + AppServerError               the app-server answered a request with an error
    + AppServerTimeoutError        the app-server did not answer a request in time
    + AppServerClosedError         the app-server process has ended
  x RequestRefusedError            raised by a handler of a server request, to answer with an error
  x StorageError                   the database cannot be opened, read or written
    + CellTakenError               another process has taken over a suspended cell
    + LeaseLostError               another gateway serves the session now
  x SessionError                   a session or run does not exist, is busy or has ended
  x MediaError                     a file cannot be part of a reply
  x ReplayError                    a recorded run cannot be replayed
  x PluginError                    a plugin cannot be loaded; it leaves nothing behind
  x AbortedError                   raised by a tool that checks its abort signal

Guests and models never see these exceptions: they see values (`nacre.sandbox.results`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class NacreError(Exception):
    """The base class of all exceptions of this package."""


class ConfigError(NacreError):
    """A setting is not allowed; the message names its path, its value and what is allowed."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"`{self.path}` {self.problem}"


class MissingReferenceError(ConfigError):
    """A setting names a variable or a file that does not exist on this machine."""


class MisplacedValueError(ConfigError):
    """A value is in the place of an object, or under an unknown key.

    It may be a secret, so messages do not show it.
    """

    def __init__(self, path: str, problem: str, *, place: str) -> None:
        super().__init__(path, problem)
        self.place = place
        """The config path of the value."""


class SandboxError(NacreError):
    """An operation of the sandbox failed."""


class RuntimeUnavailableError(SandboxError):
    """The sandbox cannot start on this machine. There is no fallback, by design."""


class ModuleNotLoadableError(RuntimeUnavailableError):
    """The compiled engine in the cache does not load; it has to be compiled again."""


class ImageError(SandboxError):
    """A file of the sandbox is missing, or its hash is wrong."""


class SnapshotError(SandboxError):
    """A snapshot was rejected: wrong image or version, truncated, or tampered with."""


class WorkerProtocolError(SandboxError):
    """A worker sent an invalid message; it must not get another cell."""


class WorkerDiedError(SandboxError):
    """A worker process ended while it was still needed."""


class NodeLostError(WorkerDiedError):
    """A worker was lost with its node, or before it began: its program is not the cause."""


class HostRequestError(SandboxError):
    """Raised by a host-request handler to reject the guest's promise with plain data.

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
    """The state of a cell does not allow the operation, such as a resume after its end."""


ToolErrorCode = Literal[
    "unknown_tool",
    "invalid_tool_input",
    "denied_by_policy",
    "blocked_by_hook",
    "approval_denied",
    "approval_expired",
    "tool_failed",
    "outcome_unknown",
    "invalid_tool_result",
    "result_too_large",
    "server_unavailable",
    "aborted",
]
"""The values of `error.code` that a program sees when a tool call fails."""


class ToolError(NacreError):
    """A tool call failed. The caller gets the reason as plain data, never as an object.

    `details` has to be JSON: its members become properties of the program's error.
    """

    name = "ToolError"

    def __init__(
        self,
        message: str,
        *,
        code: ToolErrorCode,
        tool_id: str,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code: ToolErrorCode = code
        self.tool_id = tool_id
        self.details: Mapping[str, object] = {} if details is None else details


class UnknownToolError(ToolError):
    """No tool of this run has this id; `nearest` lists similar ids."""

    name = "UnknownToolError"

    def __init__(self, message: str, *, tool_id: str, nearest: Sequence[str] = ()) -> None:
        super().__init__(
            message, code="unknown_tool", tool_id=tool_id, details={"nearest": list(nearest)}
        )


class ToolInputError(ToolError):
    """The input does not match the tool's schema; the message lists each problem by path."""

    name = "ToolInputError"

    def __init__(self, message: str, *, tool_id: str) -> None:
        super().__init__(message, code="invalid_tool_input", tool_id=tool_id)


class ToolDeniedError(ToolError):
    """The call was denied; `code` says whether by policy, by a hook or by a person."""

    name = "ToolDeniedError"


class ToolFailedError(ToolError):
    """The tool ran and failed."""

    name = "ToolFailedError"


class ToolAbortedError(ToolError):
    """The call was aborted; effects of the tool up to then remain."""

    name = "AbortError"

    def __init__(self, message: str, *, tool_id: str) -> None:
        super().__init__(message, code="aborted", tool_id=tool_id)


class ToolServerError(ToolError):
    """The MCP server of the tool does not start, does not respond or has ended."""

    name = "ToolServerError"

    def __init__(self, message: str, *, server: str) -> None:
        super().__init__(
            message,
            code="server_unavailable",
            tool_id=f"mcp:{server}:*",
            details={"server": server},
        )
        self.server = server


class ToolDefinitionError(NacreError):
    """A tool definition is not valid; the message says what is missing or wrong."""


class CatalogError(NacreError):
    """Two tools have the same id, or a tool is not valid; the message names the owners."""


class HookError(NacreError):
    """An entry of `hooks` is not a hook, or a hook returned a value it may not return."""


class NamespaceError(NacreError):
    """A namespace breaks a rule of the registry; the message names the namespace and the rule."""


class ToolPayloadError(NacreError):
    """A request to a model was about to show other tools than the run's; it was not sent."""


class ApprovalError(NacreError):
    """An approval is not open, or the answer to it is not valid."""


class ProviderError(NacreError):
    """A model request failed. `status` is the HTTP status, or 0 if there was no response.

    `is_context_overflow`: the request exceeds the context window; a shorter one may work.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        is_retryable: bool = False,
        retry_after_seconds: float | None = None,
        is_context_overflow: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.is_retryable = is_retryable
        self.retry_after_seconds = retry_after_seconds
        self.is_context_overflow = is_context_overflow


class CodexError(NacreError):
    """Codex cannot run a turn; the message says why and what to do."""


class AppServerError(CodexError):
    """The app-server answered a request with an error."""

    def __init__(self, method: str, *, code: int, message: str) -> None:
        super().__init__(method, code, message)
        self.method = method
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"Codex refused {self.method}: {self.message} ({self.code})"


class AppServerTimeoutError(CodexError):
    """The app-server did not answer a request in time."""


class AppServerClosedError(CodexError):
    """The app-server process has ended; the message has its status and its last output."""


class RequestRefusedError(NacreError):
    """Raised by a handler of a request of the app-server, to answer it with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class StorageError(NacreError):
    """The database cannot be opened, read or written; the message says which and why."""

    def __init__(self, message: str, *, is_uncertain: bool = False) -> None:
        super().__init__(message)
        self.is_uncertain = is_uncertain
        """Whether the write may have succeeded: the response to a commit was lost."""


class CellTakenError(StorageError):
    """Another process has taken over a suspended cell; this one must not write to it."""


class LeaseLostError(StorageError):
    """Another gateway serves the session now; this one must not write to it any more."""


SessionErrorCode = Literal["not_found", "busy", "ended", "too_many", "invalid"]


class SessionError(NacreError):
    """An operation on a session or a run is not possible; `code` says why."""

    def __init__(self, message: str, *, code: SessionErrorCode) -> None:
        super().__init__(message)
        self.message = message
        self.code: SessionErrorCode = code


class MediaError(NacreError):
    """A file cannot be part of a reply: it is empty, too large, or there are too many."""


class ReplayError(NacreError):
    """A recorded run cannot be replayed; the message says what its record lacks."""


class PluginError(NacreError):
    """A plugin cannot be loaded or unloaded; the message names it and what to do."""


class AbortedError(NacreError):
    """The run was aborted; raised by `AbortSignal.raise_if_aborted`."""
