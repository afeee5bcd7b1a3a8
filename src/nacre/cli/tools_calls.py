"""Makes one tool call: reads the input, calls the tool, and prints the result."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.cli.output import ExitStatus, Printer, UsageError, say
from nacre.cli.terminal_input import ask_at_terminal
from nacre.cli.tools_catalog import find_tool, open_catalog, select_servers
from nacre.errors import ToolError
from nacre.hooks import HookRunner
from nacre.json_types import NotJsonError, decode_json
from nacre.tools import (
    Approvals,
    CallSite,
    DirectResult,
    InputValidators,
    NearestNames,
    ToolExecutor,
    as_dict,
    as_list,
    part_text,
    target_of,
)
from nacre.trajectory import TrajectoryRecorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.tools_catalog import ConfiguredTools, OpenCatalog
    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import AbortSignal
    from nacre.tools import Tool


# An object with other keys is data, and is printed as it is.
_MCP_RESULT_KEYS: Final = frozenset({"content", "structuredContent", "isError", "_meta"})


def outcome_of(tool: Tool, value: object) -> DirectResult:
    """The result of the call. An MCP result may be an error."""
    match value:
        case {"isError": True} if tool.source == "mcp":
            result = cast("JsonObject", value)
            error = _content_text(result) or f"{tool.name} reported an error without a message"
            details: JsonObject = {"toolId": tool.id, "result": result}
            return DirectResult(error=error, code="tool_failed", details=details)
        case _:
            return DirectResult(value=value)


def write_outcome(outcome: DirectResult, *, is_json: bool) -> ExitStatus:
    """Print the result, and return the exit status."""
    printer = Printer()
    if is_json:
        printer.write_json(outcome.to_json(), is_indented=printer.is_terminal)
    elif not outcome.is_error:
        _write_value(printer, cast("JsonValue", outcome.value))
    elif outcome.code != "aborted":
        # `nacre` itself reports the abort.
        say(f"failed: {outcome.error}\n  code {outcome.code}")
    return printer.problem or (ExitStatus.FAILED if outcome.is_error else ExitStatus.COMPLETED)


def _write_value(printer: Printer, value: JsonValue) -> None:
    match value:
        case None:
            # As for a program without a return value.
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
    """Print the text of a result, and its data unless the text says the same."""
    text, data = _content_text(result), result.get("structuredContent")
    meanings = _meanings(text)
    is_repeated = data is None or (
        # Servers wrap a value that is not an object in this way.
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
    """The text, and the value if the text is JSON."""
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
    """Call the tool. Raises UsageError for input with unknown keys."""
    names = select_servers(configured, id_or_name)
    site = CallSite(call_id=_CALL_ID, abort=abort)
    try:
        async with open_catalog(
            configured, names, timeout_seconds=timeout_seconds, abort=abort
        ) as catalog:
            tool = find_tool(catalog, id_or_name).tool
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


# With one of these, a schema may allow keys that `properties` does not list.
_OTHER_KEYS: Final = (
    "$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties",
)  # fmt: skip
_MAX_SCHEMA_STEPS: Final = 16
_MAX_SHOWN_KEYS: Final = 20


def check_key(tool: Tool, key: str) -> None:
    """Raise UsageError for an unknown key, which most servers would silently ignore."""
    schema = as_dict(tool.parameters)
    properties = as_dict(schema.get("properties"))
    is_open = schema.get("additionalProperties", False) is not False
    if key in properties or is_open or any(schema.get(it) is not None for it in _OTHER_KEYS):
        return
    near = NearestNames(properties).nearest(key, 1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    known = ", ".join(list(properties)[:_MAX_SHOWN_KEYS]) or "none"
    more = ", …" if len(properties) > _MAX_SHOWN_KEYS else ""
    raise UsageError(f"{tool.id} has no parameter {key!r}{meant} Parameters: {known}{more}")


def parse_value(tool: Tool, key: str, text: str) -> JsonValue:
    """Parse the text as JSON if the schema expects something else than text."""
    schema = as_dict(as_dict(tool.parameters).get("properties")).get(key)
    types = _types_of(schema, tool.parameters)
    if types == {"string"}:
        return text
    try:
        value = decode_json(text.encode())
    except NotJsonError:
        # The input validation reports text that is not allowed.
        return text
    is_taken = not types or not types.isdisjoint(_types_of_value(value))
    return text if not is_taken and "string" in types else value


def _types_of(schema: object, root: object) -> set[str]:
    """The types that a schema allows, found with a limited search; empty if any type is allowed."""
    types: set[str] = set()
    todo = [schema]
    for _ in range(_MAX_SCHEMA_STEPS):
        if not todo:
            break
        part = as_dict(todo.pop())
        named = part.get("type")
        types.update(str(it) for it in ([named] if isinstance(named, str) else as_list(named)))
        for choice in (*as_list(part.get("enum")), *([part["const"]] if "const" in part else [])):
            types.update(_types_of_value(choice))
        todo += [
            *as_list(part.get("anyOf")),
            *as_list(part.get("oneOf")),
            *as_list(part.get("allOf")),
        ]
        reference = part.get("$ref")
        if isinstance(reference, str):
            todo.append(target_of(root, reference))
    return types


def _types_of_value(value: object) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number", "integer"} if value.is_integer() else {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case _:
            return {"object"}


_STANDARD_INPUT: Final = "-"
# Far more than any real input; limits the memory that a wrong file takes.
_MAX_INPUT_BYTES: Final = 16 << 20
_MAX_SHOWN: Final = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonInput:
    """Input given as JSON."""

    members: JsonObject


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsInput:
    """Input given as key=value pairs. The tool's schema decides how values are parsed."""

    pairs: dict[str, str]


ToolInput: TypeAlias = JsonInput | PairsInput


def read_tool_input(arguments: Sequence[str]) -> ToolInput:
    """Parse the arguments without knowing the tool. Raises UsageError."""
    for argument in arguments:
        _refuse_broken_text(argument)
    match arguments:
        case [text] if text == _STANDARD_INPUT:
            return _json_input(_read_standard_input(), "standard input")
        case [text] if text.lstrip().startswith(("{", "[")):
            return _json_input(text.encode(), "the input")
        case _:
            return _pairs_input(arguments)


def input_for(tool: Tool, given: ToolInput) -> JsonObject:
    """The input for the tool. Raises UsageError for an unknown key."""
    if isinstance(given, JsonInput):
        return given.members
    for key in given.pairs:
        check_key(tool, key)
    return {key: parse_value(tool, key, text) for key, text in given.pairs.items()}


def _json_input(data: bytes, name: str) -> JsonInput:
    try:
        value = decode_json(data.removeprefix(b"\xef\xbb\xbf"))
    except NotJsonError as error:
        raise UsageError(f"{name} {error.problem}") from None
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        raise UsageError(f"{name} is {kind}; write one object, such as '{{\"key\": 1}}'")
    return JsonInput(members=value)


def _pairs_input(arguments: Sequence[str]) -> PairsInput:
    pairs: dict[str, str] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not key:
            shown = argument if len(argument) <= _MAX_SHOWN else f"{argument[:_MAX_SHOWN]}…"
            raise UsageError(
                f"{shown!r} is not a valid input; write a JSON object, key=value pairs, "
                "or - to read JSON from standard input"
            )
        if key in pairs:
            raise UsageError(f"{key!r} is given twice; write a list as {key}='[1, 2]'")
        pairs[key] = text
    return PairsInput(pairs=pairs)


def _refuse_broken_text(argument: str) -> None:
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        # Python turns bytes that it cannot decode into surrogates.
        raise UsageError(
            f"the input is not UTF-8 (character {error.start + 1}); "
            "write the character in JSON as an escape, such as \\u00e9"
        ) from None


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        raise UsageError("there is no standard input to read; give the input as arguments")
    try:
        content = sys.stdin.buffer.read(_MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read standard input: {error.strerror or error}") from None
    if len(content) > _MAX_INPUT_BYTES:
        raise UsageError(f"standard input has more than {_MAX_INPUT_BYTES} bytes")
    if not content.strip():
        raise UsageError("standard input is empty; write {} for a call without input")
    return content
