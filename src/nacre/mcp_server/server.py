"""The MCP server: lists the tools that a model sees, and runs its calls until a signal arrives."""

from __future__ import annotations

import logging
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from nacre import __version__
from nacre.code_mode import DirectResult, Failed, Runtime, Waiting
from nacre.code_mode.model_surface import EXEC_NAME, WAIT_NAME
from nacre.json_types import decode_json, encode_json
from nacre.mcp_client import McpConnections
from nacre.mcp_client.process import kill_all_groups
from nacre.mcp_server.client_channel import ClientChannel, ClientRefusedError, request_for
from nacre.mcp_server.served_calls import approvals_to_json
from nacre.mcp_server.sessions import OpenServers, SessionOptions, Sessions, share_servers
from nacre.stop_signals import forces_exit, stop_signals

if TYPE_CHECKING:
    import signal
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from mcp.server import ServerRequestContext

    from nacre.code_mode import CodeModeResult, CodeModeRun, ConfigInput
    from nacre.config import McpServerConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_client.upstream import UpstreamRequests
    from nacre.mcp_server.client_channel import ClientQuestion
    from nacre.mcp_server.served_calls import ProgressFeed, ServedCall
    from nacre.mcp_server.sessions import Session
    from nacre.tools import Tool, ToolServer

    _Context = ServerRequestContext[Sessions, Any]

logger = logging.getLogger(__name__)


OUTPUT_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "status": {"enum": ["completed", "waiting", "failed"]},
        "value": {},
        "runId": {"type": "string"},
        "error": {"type": "string"},
    },
    "required": ["status"],
}
"""Without a union, which some clients do not support, and short, as clients send it twice."""

TELEMETRY_KEY: Final = "nacre/telemetry"
"""The member of a result's `_meta` with the telemetry of the run."""


def code_mode_result(
    result: CodeModeResult, *, awaited: JsonObject | None = None
) -> types.CallToolResult:
    """Convert a result. `awaited` is added to a waiting result: see `approvals_to_json`."""
    text = encode_json({**result.for_model(), **(awaited or {})})
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text=text.decode()),
            *(
                types.ImageContent(type="image", mime_type=image.media_type, data=image.data)
                for image in result.images
            ),
        ],
        # Decoded from the text, because a value that is not strict JSON ends the connection.
        structured_content=decode_json(text),
        is_error=isinstance(result, Failed),
        # Clients do not show this to the model.
        _meta={TELEMETRY_KEY: result.telemetry_json()},
    )


def direct_result(result: DirectResult, *, has_output_schema: bool) -> types.CallToolResult:
    """Convert the result of a tool that the client called directly."""
    if result.is_error:
        return _text_result(result.error, is_error=True)
    native = _native_result(result.value)
    if native is not None:
        return native
    value = result.to_json()["value"]
    text = value if isinstance(value, str) else encode_json(value).decode()
    shown = _text_result(text)
    if has_output_schema:
        shown.structured_content = decode_json(encode_json(value))
    return shown


def _native_result(value: object) -> types.CallToolResult | None:
    """Return the value if it is already an MCP result, otherwise None."""
    if not isinstance(value, dict) or "content" not in value:
        return None
    try:
        sound = decode_json(encode_json(cast("dict[str, JsonValue]", value)))
        return types.CallToolResult.model_validate(sound, by_name=False)
    except (ValidationError, ValueError):
        return None


def _text_result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    sound = text.encode(errors="replace").decode()
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=sound)], is_error=is_error
    )


_TITLES: Final = {EXEC_NAME: "Run a program", WAIT_NAME: "Continue a program"}
_INSTRUCTIONS: Final = (
    "exec runs a JavaScript program that finds and calls the tools and MCP servers behind this one;"
    " wait continues a program whose result has status waiting."
)
# A client that does not read must not delay the end of a call.
_LAST_PROGRESS_SECONDS: Final = 5.0
_ABORT_SECONDS: Final = 10.0


class CodeModeMcpServer:
    """Serves `exec`, `wait` and the direct-only tools among `tools` to any number of clients."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        servers: OpenServers | None = None,
        tools: Sequence[Tool] = (),
        hooks: Sequence[object] = (),
        is_sandboxed: bool = False,
    ) -> None:
        self._session_options = SessionOptions(
            runtime=runtime,
            servers=servers or share_servers(),
            tools=tools,
            hooks=hooks,
            is_sandboxed=is_sandboxed,
        )
        self.sdk_server: Server[Sessions] = Server(
            "nacre",
            version=__version__,
            title="Nacre",
            instructions=_INSTRUCTIONS,
            lifespan=self._lifespan,
            # No input schema uses headers. Without this, the SDK lists the tools for every call.
            get_tool_input_schema=lambda _name: None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    @asynccontextmanager
    async def _lifespan(self, _server: Server[Sessions]) -> AsyncGenerator[Sessions]:
        async with Sessions(self._session_options) as sessions:
            yield sessions

    # Requests.

    async def _list_tools(
        self, context: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        session = await _get_session(context)
        session.set_client_features(ClientChannel(context).features)
        return types.ListToolsResult(tools=_build_tools(session.run))

    async def _call_tool(
        self, context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        session = await _get_session(context)
        channel = ClientChannel(context)
        session.set_client_features(channel.features)
        call = _start_or_resume_call(session, channel, params)
        is_suspended = False
        try:
            await _serve_call(call, channel)
            if channel.takes_questions and not call.has_ended:
                is_suspended = True
                return _ask_in_result(session, call)
            return self._build_result(session, call)
        finally:
            # The client has cancelled its request or has disconnected.
            if not (call.has_ended or is_suspended):
                with anyio.move_on_after(_ABORT_SECONDS, shield=True):
                    await call.abort()

    def _build_result(self, session: Session, call: ServedCall) -> types.CallToolResult:
        result = call.result
        if result is None:
            raise MCPError(types.INTERNAL_ERROR, f"the call of {call.name} failed; see the log")
        if isinstance(result, DirectResult):
            has_schema = any(
                tool.name == call.name and tool.output_schema is not None
                for tool in _build_tools(session.run)
            )
            return direct_result(result, has_output_schema=has_schema)
        return code_mode_result(result, awaited=self._describe_approvals(call, result))

    def _describe_approvals(self, call: ServedCall, result: object) -> JsonObject | None:
        requests = call.pending_approvals() if isinstance(result, Waiting) else []
        if not requests:
            return None
        return approvals_to_json(requests, can_ask="form" in call.features)


# Sessions and calls.


async def _get_session(context: _Context) -> Session:
    """Return the session of the client. On HTTP up to 2025-11-25, the transport ends it."""
    # The SDK does not expose the transport's session id or the end of a connection.
    connection = context.session._connection  # pyright: ignore[reportPrivateUsage]
    sessions = context.lifespan_context
    transport_id = connection.session_id or ""
    try:
        session, is_new = await sessions.get(transport_id)
    except Exception as error:
        logger.exception("a session could not be opened")
        raise MCPError(types.INTERNAL_ERROR, "cannot open a session; see the log") from error
    if is_new and transport_id:
        connection.exit_stack.callback(sessions.close, transport_id)
    return session


def _start_or_resume_call(
    session: Session, channel: ClientChannel, params: types.CallToolRequestParams
) -> ServedCall:
    if params.request_state is not None:
        return _call_with_answers(session, channel, params, params.request_state)
    if params.name not in session.run.visible_names:
        known = ", ".join(session.run.visible_names)
        problem = f"there is no tool {params.name[:80]!r}; there are: {known}"
        raise MCPError(types.INVALID_PARAMS, problem)
    arguments = cast("JsonObject", params.arguments or {})
    return session.start_call(params.name, arguments, channel.features)


def _call_with_answers(
    session: Session, channel: ClientChannel, params: types.CallToolRequestParams, ticket: str
) -> ServedCall:
    call = session.resume_call(ticket, channel.features)
    if call is None:
        problem = "this call does not wait for answers any more; call the tool again"
        raise MCPError(types.INVALID_PARAMS, problem)
    answers = params.input_responses or {}
    for question in call.open_questions:
        given = answers.get(question.id)
        if given is not None:
            question.answer(given.model_dump(mode="json", by_alias=True, exclude_none=True))
    return call


def _ask_in_result(session: Session, call: ServedCall) -> types.InputRequiredResult:
    requests: dict[str, types.InputRequest] = {}
    for question in call.open_questions:
        try:
            requests[question.id] = request_for(question)
        except ClientRefusedError as refusal:
            question.refuse(str(refusal))
    ticket = session.suspend_call(call)
    return types.InputRequiredResult(input_requests=requests or None, request_state=ticket)


async def _serve_call(call: ServedCall, channel: ClientChannel) -> None:
    """Send progress and questions until the call ends, or until the result has to be questions."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_send_progress, call.feed, channel)
        if channel.takes_questions:
            await call.wait_until_ended_or_question()
        else:
            async with anyio.create_task_group() as asking:
                asking.start_soon(_ask_questions, call, channel)
                await call.wait_until_ended()
                asking.cancel_scope.cancel()
        call.feed.close()
        tasks.cancel_scope.deadline = anyio.current_time() + _LAST_PROGRESS_SECONDS


async def _ask_questions(call: ServedCall, channel: ClientChannel) -> None:
    """Ask questions one at a time, so that a person sees one form at a time."""
    while True:
        question = await call.next_question()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_ask, question, channel)
            await question.wait_until_settled()
            # If it was settled elsewhere, the request to the client is cancelled.
            tasks.cancel_scope.cancel()


async def _ask(question: ClientQuestion, channel: ClientChannel) -> None:
    try:
        question.answer(await channel.ask(question))
    except ClientRefusedError as refusal:
        question.refuse(str(refusal))


async def _send_progress(feed: ProgressFeed, channel: ClientChannel) -> None:
    try:
        await feed.send_all(channel.report_progress)
    except Exception:
        # The client gets its result even if progress fails.
        logger.warning("progress could not be sent", exc_info=True)


def _build_tools(run: CodeModeRun) -> list[types.Tool]:
    return [_build_tool(definition, run) for definition in run.definitions("mcp")]


def _build_tool(definition: JsonObject, run: CodeModeRun) -> types.Tool:
    name = str(definition["name"])
    is_own = run.is_code_mode and name in _TITLES
    output_schema = OUTPUT_SCHEMA if is_own else definition.get("outputSchema")
    # In MCP, structured results are always objects.
    is_object = isinstance(output_schema, dict) and output_schema.get("type") == "object"
    return types.Tool(
        name=name,
        title=_TITLES.get(name) if is_own else None,
        description=str(definition["description"]),
        input_schema=cast("dict[str, Any]", definition["inputSchema"]),
        output_schema=cast("dict[str, Any]", output_schema) if is_object else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    """The servers, tools and settings of `nacre mcp`."""

    servers: Sequence[McpServerConfig] = ()
    tools: Sequence[Tool] = ()
    config: ConfigInput = None
    """The settings of code mode, or a whole config document."""
    workers: int = 0
    hooks: Sequence[object] = ()
    is_sandboxed: bool = False
    """Whether `tools.sandbox.tools` of the document applies."""


@asynccontextmanager
async def open_server(options: ServeOptions) -> AsyncGenerator[CodeModeMcpServer]:
    """Open the server. It does not start any upstream server.

    Raises CatalogError for conflicting tools, and ConfigError.
    """
    enabled = [config for config in options.servers if not config.is_disabled]

    @asynccontextmanager
    async def servers(
        session_id: str, client: UpstreamRequests
    ) -> AsyncGenerator[Sequence[ToolServer]]:
        # Each session has its own connections, so that requests of a server reach its client.
        async with McpConnections(enabled, upstream=client) as connections:
            yield connections.servers(session_id)

    async with Runtime(options.config, workers=options.workers) as runtime:
        # Report invalid tools at the start, not to the first client.
        runtime.run(tools=options.tools, mcp=())
        yield CodeModeMcpServer(
            runtime,
            servers=servers,
            tools=options.tools,
            hooks=options.hooks,
            is_sandboxed=options.is_sandboxed,
        )


async def run_until_signal(serve: Callable[[], Awaitable[None]]) -> int:
    """Serve until the end or a signal. Returns the exit status of the process."""
    stopped_by: signal.Signals | None = None
    failure: Exception | None = None
    with anyio.open_signal_receiver(*stop_signals()) as signals:
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()

            async def stop_at_signal() -> None:
                nonlocal stopped_by
                async for number in signals:
                    if stopped_by is not None and forces_exit(number):
                        # The second signal ends the process at once. Servers have their own
                        # process groups and would survive it.
                        kill_all_groups()
                        os._exit(128 + number)
                    stopped_by = stopped_by or number
                    scope.cancel()

            tasks.start_soon(stop_at_signal)
            with scope:
                try:
                    await serve()
                except Exception as error:
                    # Raised below, so that no exception group wraps it.
                    failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return 0 if stopped_by is None else 128 + stopped_by
