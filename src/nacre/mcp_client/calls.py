"""Calls of a server's tools and operations: input in, the native result out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from nacre.errors import ToolFailedError
from nacre.json_types import NotJsonError
from nacre.mcp_client.peer_errors import RpcError
from nacre.mcp_client.results import limit_result_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.config.mcp_entry import McpServerConfig
    from nacre.json_types import JsonObject
    from nacre.tools.definition import Execute, ToolCall

# A server that reports without end must not fill the record of a run.
_MAX_UPDATES: Final = 200
_MAX_MESSAGE_CHARACTERS: Final = 2_000


class Ask(Protocol):
    """Asks the server of a connection, which is started for it. Raises RpcError for an error that
    the server answers with, small and without secrets, ToolServerError when there is no answer,
    NotJsonError for params."""

    async def __call__(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> JsonObject: ...


def execute_with(
    ask: Ask,
    config: McpServerConfig,
    *,
    tool_id: str,
    method: str,
    params_from: Callable[[JsonObject], JsonObject],
) -> Execute:
    """What a tool does when it is called."""

    async def execute(given: dict[str, Any], call: ToolCall) -> JsonObject:
        try:
            params = params_from(given)
            result = await ask(method, params, on_progress=_forward_progress(call))
            return await limit_result_size(result, max_bytes=config.max_result_bytes)
        except RpcError as error:
            raise _tool_error(error, tool_id) from error
        except NotJsonError as error:
            problem = f"the input cannot be sent: {error}"
            raise ToolFailedError(problem, code="tool_failed", tool_id=tool_id) from error

    return execute


def _forward_progress(call: ToolCall) -> Callable[[JsonObject], None]:
    left = _MAX_UPDATES

    def update(progress: JsonObject) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            return
        message = progress.get("message")
        if isinstance(message, str):
            progress["message"] = message[:_MAX_MESSAGE_CHARACTERS]
        if left == 0:
            progress["message"] = f"more than {_MAX_UPDATES} reports; no others are kept"
        call.update(progress)

    return update


def _tool_error(error: RpcError, tool_id: str) -> ToolFailedError:
    details: dict[str, object] = {"rpcCode": error.code}
    if error.data is not None:
        details["data"] = error.data
    message = error.message or f"the server answered with error {error.code} and no message"
    return ToolFailedError(message, code="tool_failed", tool_id=tool_id, details=details)
