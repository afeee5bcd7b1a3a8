"""Makes one tool call and prints its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from nacre.cli.output import ExitStatus, Printer, say
from nacre.cli.terminal_input import ask_at_terminal
from nacre.cli.tool_input import input_for
from nacre.cli.tools_catalog import named_tool, open_catalog, servers_to_ask
from nacre.errors import ToolError
from nacre.hooks import HookRunner
from nacre.json_types import NotJsonError, decode_json
from nacre.tools import Approvals, CallSite, DirectResult, InputValidators, ToolExecutor, part_text
from nacre.trajectory import TrajectoryRecorder

if TYPE_CHECKING:
    from nacre.cli.tool_input import ToolInput
    from nacre.cli.tools_catalog import ConfiguredTools, OpenCatalog
    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import AbortSignal
    from nacre.tools import Tool


# What has others is data, and shown as it is.
_MCP_RESULT_KEYS: Final = frozenset({"content", "structuredContent", "isError", "_meta"})


def outcome_of(tool: Tool, value: object) -> DirectResult:
    """The result of MCP says itself whether it is an error."""
    match value:
        case {"isError": True} if tool.source == "mcp":
            result = cast("JsonObject", value)
            error = _content_text(result) or f"{tool.name} reported an error without a message"
            details: JsonObject = {"toolId": tool.id, "result": result}
            return DirectResult(error=error, code="tool_failed", details=details)
        case _:
            return DirectResult(value=value)


def write_outcome(outcome: DirectResult, *, is_json: bool) -> ExitStatus:
    """Print it; the exit status says which of the two it is."""
    printer = Printer()
    if is_json:
        printer.write_json(outcome.to_json(), is_indented=printer.is_terminal)
    elif not outcome.is_error:
        _write_value(printer, cast("JsonValue", outcome.value))
    elif outcome.code != "aborted":
        # Of an abort the command line says so itself.
        say(f"failed: {outcome.error}\n  code {outcome.code}")
    return printer.problem or (ExitStatus.FAILED if outcome.is_error else ExitStatus.COMPLETED)


def _write_value(printer: Printer, value: JsonValue) -> None:
    match value:
        case None:
            # As with a program that returns nothing.
            pass
        case str():
            printer.write(_end_line(value))
        case {"content": list(parts)} if value.keys() <= _MCP_RESULT_KEYS and all(
            isinstance(part, dict) for part in parts
        ):
            _write_mcp_result(printer, value)
        case _:
            printer.write_json(value, is_indented=True)


def _write_mcp_result(printer: Printer, result: JsonObject) -> None:
    """The words of a result, and its data unless that says the same."""
    text, data = _content_text(result), result.get("structuredContent")
    meanings = _meanings(text)
    is_repeated = data is None or (
        # How servers put a value that is no object.
        isinstance(data, dict) and len(data) == 1 and next(iter(data.values())) in meanings
    )
    if text and (is_repeated or data not in meanings):
        printer.write(_end_line(text))
    if not is_repeated:
        printer.write_json(data, is_indented=True)


def _content_text(result: JsonObject) -> str:
    content = result.get("content")
    parts = content if isinstance(content, list) else []
    return "\n".join(part_text(part) for part in parts if isinstance(part, dict))


def _meanings(text: str) -> list[JsonValue]:
    """The text itself, and the value that it is the JSON of."""
    try:
        return [text, decode_json(text.encode(errors="replace"))]
    except NotJsonError:
        return [text]


def _end_line(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


_CALL_ID: Final = "call_1"


async def call_tool(
    configured: ConfiguredTools,
    id_or_name: str,
    given: ToolInput,
    *,
    timeout_seconds: float,
    abort: AbortSignal,
) -> DirectResult:
    """What comes of the call. Raises UsageProblem for input that the tool does not take."""
    names = servers_to_ask(configured, id_or_name)
    site = CallSite(call_id=_CALL_ID, abort=abort)
    try:
        async with open_catalog(
            configured, names, timeout_seconds=timeout_seconds, abort=abort
        ) as catalog:
            tool = named_tool(catalog, id_or_name).tool
            executor = _executor(catalog)
            value = await executor.call_directly(tool, input_for(tool, given), site=site)
            return outcome_of(tool, value)
    except ToolError as error:
        return DirectResult.from_error(error)


def _executor(catalog: OpenCatalog) -> ToolExecutor:
    configured = catalog.configured
    return ToolExecutor(
        context=configured.context,
        policy=configured.policy,
        hooks=HookRunner(catalog.hooks),
        approvals=Approvals(ask_at_terminal),
        recorder=TrajectoryRecorder(configured.context),
        validators=InputValidators(),
    )
