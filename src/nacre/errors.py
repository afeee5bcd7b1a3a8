"""The exception tree of the whole package.

* NacreError
  x ConfigError                    a setting has a value that is not allowed
    + MissingReferenceError        a setting names a variable or a file that is not here
    + MisplacedValueError          something stands where no setting of its kind can
  x SandboxError
    + RuntimeUnavailableError      the sandbox cannot be started here
      - ModuleNotLoadableError     the compiled engine in the cache is not for this machine
    + ImageError                   a file of the sandbox is missing or not the one that was built
    + SnapshotError                a snapshot was refused before any of it was used
    + WorkerProtocolError          a worker sent what no sound worker sends
    + WorkerDiedError              a worker is gone, and the cells in it with it
    + HostRequestError             a handler's answer to the guest: its promise is rejected
    + CellStateError               the caller asked a cell for what its state does not allow
  x ToolError                      a tool call has no result; says why as plain data
    + UnknownToolError             no tool of this run has the id
    + ToolInputError               the input does not fit the tool's schema
    + ToolDeniedError              policy, a hook or a person refused the call
    + ToolFailedError              the tool raised, or its result cannot be passed on
    + ToolAbortedError             the call was aborted before it had a result
    + ToolServerError              the MCP server of the tool cannot be reached
  x ToolDefinitionError            a tool is not defined as one can be
  x CatalogError                   tools that cannot be in one catalog together
  x HookError                      a hook is not one, or returned what no hook may return
  x NamespaceError                 a namespace that cannot be registered or shown to a program
  x CodeModePayloadError           a model request that does not hold exactly code mode's tools
  x ToolPayloadError               a model request that does not hold exactly the run's tools
  x ApprovalError                  an answer to a question that is not open, or one that is none
  x ProviderError                  a model gave no answer; says what the provider said
  x StorageError                   sessions cannot be read or written
  x SessionError                   a session or run that is not there, or is busy, or has ended
  x PluginError                    a plugin that cannot be loaded; nothing of it stays behind
  x AbortedError                   raised by a tool that looks at its abort signal

What a guest or a model may see is never one of these but a value (`nacre.sandbox.results`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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


class MissingReferenceError(ConfigError):
    """A setting names a variable or a file that is not here; elsewhere it may be right."""


class MisplacedValueError(ConfigError):
    """A value stands where an object has to, or under a key that is none. Nobody knows what it was
    meant for, so it may be a secret."""

    def __init__(self, path: str, problem: str, *, place: str) -> None:
        super().__init__(path, problem)
        self.place = place
        """Where the value stands."""


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


ToolErrorCode = Literal[
    "unknown_tool",
    "invalid_tool_input",
    "denied_by_policy",
    "blocked_by_hook",
    "approval_denied",
    "approval_expired",
    "tool_failed",
    "invalid_tool_result",
    "server_unavailable",
    "aborted",
]
"""What a program can tell from `error.code` when a tool call was rejected."""


class ToolError(NacreError):
    """A tool call that has no result. Whoever called gets this as plain data, never as an object.

    `details` has to be JSON: it becomes further properties of the program's error.
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
    """No tool that this run may use has the id; `nearest` are ids that it may use."""

    name = "UnknownToolError"

    def __init__(self, message: str, *, tool_id: str, nearest: Sequence[str] = ()) -> None:
        super().__init__(
            message, code="unknown_tool", tool_id=tool_id, details={"nearest": list(nearest)}
        )


class ToolInputError(ToolError):
    """The input does not fit the tool's schema; the message names every problem by its path."""

    name = "ToolInputError"

    def __init__(self, message: str, *, tool_id: str) -> None:
        super().__init__(message, code="invalid_tool_input", tool_id=tool_id)


class ToolDeniedError(ToolError):
    """A refusal, not a fault: `code` says whether policy, a hook or a person refused."""

    name = "ToolDeniedError"


class ToolFailedError(ToolError):
    """The tool ran and failed."""

    name = "ToolFailedError"


class ToolAbortedError(ToolError):
    """The call was aborted; what the tool did until then is done."""

    name = "AbortError"

    def __init__(self, message: str, *, tool_id: str) -> None:
        super().__init__(message, code="aborted", tool_id=tool_id)


class ToolServerError(ToolError):
    """The server that has the tool does not start, does not answer or is gone; says which."""

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
    """A tool cannot be built from this; the message says what is missing or wrong."""


class CatalogError(NacreError):
    """Two tools with the same id, or one that no catalog can hold; names the owners."""


class HookError(NacreError):
    """Something in `hooks` is not a hook, or a hook returned what it may not return."""


class NamespaceError(NacreError):
    """A namespace breaks a rule of the registry; the message names the namespace and the rule."""


class CodeModePayloadError(NacreError):
    """A request to a model was about to show other tools than code mode's; it was not sent."""


class ToolPayloadError(NacreError):
    """A request to a model was about to show other tools than the run's; it was not sent."""


class ApprovalError(NacreError):
    """An answer to a question that is not open, or an answer that is none."""


class ProviderError(NacreError):
    """A model gave no answer. `status` is the HTTP status where there was one, else 0.

    `is_context_overflow`: the request holds more than the model can read; a shorter one may work.
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


class StorageError(NacreError):
    """The database cannot be opened, read or written; the message says which and why."""

    def __init__(self, message: str, *, is_uncertain: bool = False) -> None:
        super().__init__(message)
        self.is_uncertain = is_uncertain
        """Whether what was written may be there after all: the answer to a commit was lost."""


SessionErrorCode = Literal["not_found", "busy", "ended", "too_many", "invalid"]


class SessionError(NacreError):
    """What was asked of a session or a run cannot be done; `code` says of which kind that is."""

    def __init__(self, message: str, *, code: SessionErrorCode) -> None:
        super().__init__(message)
        self.message = message
        self.code: SessionErrorCode = code


class PluginError(NacreError):
    """A plugin cannot be loaded or unloaded; the message names it and what to do."""


class AbortedError(NacreError):
    """The run was aborted, noticed by a tool that asked."""
