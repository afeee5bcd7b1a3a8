"""The MCP server: lists the tools that a model sees and runs the calls it makes."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from nacre import __version__
from nacre.code_mode import DirectResult, Failed, Waiting
from nacre.code_mode.model_surface import EXEC_NAME, WAIT_NAME
from nacre.json_types import decode_json, encode_json
from nacre.mcp_server.client_channel import ClientChannel, ClientRefusedError, request_for
from nacre.mcp_server.served_calls import awaited_approvals
from nacre.mcp_server.sessions import OpenServers, SessionParts, Sessions, share_servers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from mcp.server import ServerRequestContext

    from nacre.code_mode import CodeModeResult, CodeModeRun, Runtime
    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_server.client_channel import ClientQuestion
    from nacre.mcp_server.progress import ProgressFeed
    from nacre.mcp_server.served_calls import ServedCall
    from nacre.mcp_server.sessions import Session
    from nacre.tools import Tool

    _Context = ServerRequestContext[Sessions, Any]


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
"""Flat, since not every client takes a union; and short, since every client sends it twice."""


def code_mode_result(
    result: CodeModeResult, *, awaited: JsonObject | None = None
) -> types.CallToolResult:
    """`awaited` is what a waiting result says besides: see `awaited_approvals`."""
    wire = result.to_json()
    telemetry = wire.pop("telemetry")
    text = encode_json({**wire, **(awaited or {}), "telemetry": telemetry})
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text.decode())],
        # From the text: what is no JSON in a strict sense would end the connection.
        structured_content=decode_json(text),
        is_error=isinstance(result, Failed),
    )


def direct_result(result: DirectResult, *, has_output_schema: bool) -> types.CallToolResult:
    """What a tool returned that the client called by its own name."""
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
    """A value that is an MCP result already, images and all; None for any other value."""
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


logger = logging.getLogger(__name__)

_TITLES: Final = {EXEC_NAME: "Run a program", WAIT_NAME: "Continue a program"}
_INSTRUCTIONS: Final = (
    "exec runs a JavaScript program that finds and calls the tools and MCP servers behind this one;"
    " wait continues a program whose result has status waiting."
)
# A client that does not read must not keep a finished call from ending.
_LAST_PROGRESS_SECONDS: Final = 5.0
_ABORT_SECONDS: Final = 10.0


class CodeModeMcpServer:
    """`exec` and `wait`, and the direct-only tools among `tools`, for any number of clients."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        servers: OpenServers | None = None,
        tools: Sequence[Tool] = (),
        hooks: Sequence[object] = (),
    ) -> None:
        self._parts = SessionParts(
            runtime=runtime,
            servers=servers or share_servers(),
            tools=tools,
            hooks=hooks,
        )
        self.sdk_server: Server[Sessions] = Server(
            "nacre",
            version=__version__,
            title="Nacre",
            instructions=_INSTRUCTIONS,
            lifespan=self._lifespan,
            # No schema of ours asks for headers; without this, every call would list the tools.
            get_tool_input_schema=lambda _name: None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    @asynccontextmanager
    async def _lifespan(self, _server: Server[Sessions]) -> AsyncGenerator[Sessions]:
        async with Sessions(self._parts) as sessions:
            yield sessions

    # Requests.

    async def _list_tools(
        self, context: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        session = await _session_of(context)
        session.note_client(ClientChannel(context).features)
        return types.ListToolsResult(tools=_listed_tools(session.run))

    async def _call_tool(
        self, context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        session = await _session_of(context)
        channel = ClientChannel(context)
        session.note_client(channel.features)
        call = _call_of(session, channel, params)
        is_sent_away = False
        try:
            await _attend(call, channel)
            if channel.takes_questions and not call.has_ended:
                is_sent_away = True
                return _ask_by_result(session, call)
            return self._result_of(session, call)
        finally:
            # The client has cancelled its request, or is gone.
            if not (call.has_ended or is_sent_away):
                with anyio.move_on_after(_ABORT_SECONDS, shield=True):
                    await call.abort()

    def _result_of(self, session: Session, call: ServedCall) -> types.CallToolResult:
        result = call.result
        if result is None:
            raise MCPError(types.INTERNAL_ERROR, f"the call of {call.name} failed; see the log")
        if isinstance(result, DirectResult):
            has_schema = any(
                tool.name == call.name and tool.output_schema is not None
                for tool in _listed_tools(session.run)
            )
            return direct_result(result, has_output_schema=has_schema)
        return code_mode_result(result, awaited=self._describe_approvals(call, result))

    def _describe_approvals(self, call: ServedCall, result: object) -> JsonObject | None:
        requests = call.awaited_approvals() if isinstance(result, Waiting) else []
        if not requests:
            return None
        return awaited_approvals(requests, can_be_asked="form" in call.features)


# Sessions and calls.


async def _session_of(context: _Context) -> Session:
    """The session of the client; on HTTP up to 2025-11-25 it ends with the transport's."""
    # The SDK shows handlers neither the transport's session id nor when a connection ends.
    connection = context.session._connection  # pyright: ignore[reportPrivateUsage]
    sessions = context.lifespan_context
    transport_id = connection.session_id or ""
    try:
        session, is_new = await sessions.get(transport_id)
    except Exception as error:
        logger.exception("a session could not be opened")
        raise MCPError(types.INTERNAL_ERROR, "no session could be opened; see the log") from error
    if is_new and transport_id:
        connection.exit_stack.callback(sessions.close, transport_id)
    return session


def _call_of(
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
    call = session.take_back(ticket, channel.features)
    if call is None:
        problem = "this call is not waiting for answers, or no longer; make it anew"
        raise MCPError(types.INVALID_PARAMS, problem)
    answers = params.input_responses or {}
    for question in call.open_questions:
        given = answers.get(question.id)
        if given is not None:
            question.answer(given.model_dump(mode="json", by_alias=True, exclude_none=True))
    return call


def _ask_by_result(session: Session, call: ServedCall) -> types.InputRequiredResult:
    requests: dict[str, types.InputRequest] = {}
    for question in call.open_questions:
        try:
            requests[question.id] = request_for(question)
        except ClientRefusedError as refusal:
            question.refuse(str(refusal))
    ticket = session.send_away(call)
    return types.InputRequiredResult(input_requests=requests or None, request_state=ticket)


async def _attend(call: ServedCall, channel: ClientChannel) -> None:
    """Return when the call is over, or when the client has to be sent away with its questions."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_send_progress, call.feed, channel)
        if channel.takes_questions:
            await call.wait_until_ended_or_asking()
        else:
            async with anyio.create_task_group() as asking:
                asking.start_soon(_ask_questions, call, channel)
                await call.wait_until_ended()
                asking.cancel_scope.cancel()
        call.feed.close()
        tasks.cancel_scope.deadline = anyio.current_time() + _LAST_PROGRESS_SECONDS


async def _ask_questions(call: ServedCall, channel: ClientChannel) -> None:
    """One after the other: a person is not shown several forms at once."""
    while True:
        question = await call.next_question()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_ask, question, channel)
            await question.wait_until_settled()
            # Settled by somebody else: the client is told to forget it.
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
        # Progress is a courtesy: a client that cannot take it gets its result all the same.
        logger.warning("progress could not be sent", exc_info=True)


# What is listed.


def _listed_tools(run: CodeModeRun) -> list[types.Tool]:
    return [_listed_tool(definition, run) for definition in run.definitions("mcp")]


def _listed_tool(definition: JsonObject, run: CodeModeRun) -> types.Tool:
    name = str(definition["name"])
    is_own = run.is_code_mode and name in _TITLES
    output_schema = OUTPUT_SCHEMA if is_own else definition.get("outputSchema")
    # MCP has no structured results but objects.
    is_object = isinstance(output_schema, dict) and output_schema.get("type") == "object"
    return types.Tool(
        name=name,
        title=_TITLES.get(name) if is_own else None,
        description=str(definition["description"]),
        input_schema=cast("dict[str, Any]", definition["inputSchema"]),
        output_schema=cast("dict[str, Any]", output_schema) if is_object else None,
    )
