"""Makes one tool call: reads its input, calls the tool, prints the result."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.cli.output import ExitStatus, Printer, UsageProblem, say
from nacre.cli.terminal_input import ask_at_terminal
from nacre.cli.tools_catalog import named_tool, open_catalog, servers_to_ask
from nacre.errors import ToolError
from nacre.hooks import HookRunner
from nacre.json_types import NotJsonError, decode_json
from nacre.tool_search import Completed, Failed
from nacre.tools import Approvals, CallSite, InputValidators, ToolExecutor
from nacre.tools.nearest_names import NearestNames
from nacre.tools.schema_references import listed, mapped, target_of
from nacre.tools.tool_result import part_text
from nacre.trajectory import TrajectoryRecorder

if TYPE_CHECKING:
    from collections.abc import Sequence

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


# With one of these a schema may take keys that `properties` does not name.
_OTHER_KEYS: Final = (
    "$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties",
)  # fmt: skip
_MAX_SCHEMA_STEPS: Final = 16
_MAX_SHOWN_KEYS: Final = 20


def refuse_unknown_key(tool: Tool, key: str) -> None:
    """Most servers ignore a key that they do not know: who mistypes one would never learn."""
    schema = mapped(tool.parameters)
    properties = mapped(schema.get("properties"))
    is_open = schema.get("additionalProperties", False) is not False
    if key in properties or is_open or any(schema.get(it) is not None for it in _OTHER_KEYS):
        return
    near = NearestNames(properties).nearest(key, 1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    known = ", ".join(list(properties)[:_MAX_SHOWN_KEYS]) or "nothing"
    more = ", …" if len(properties) > _MAX_SHOWN_KEYS else ""
    raise UsageProblem(f"{tool.id} takes no {key!r}{meant} It takes: {known}{more}")


def value_for(tool: Tool, key: str, text: str) -> JsonValue:
    """A number, a list and the like where the schema takes one, else the text itself."""
    schema = mapped(mapped(tool.parameters).get("properties")).get(key)
    types = _types_of(schema, tool.parameters)
    if types == {"string"}:
        return text
    try:
        value = decode_json(text.encode())
    except NotJsonError:
        # If it may not be a text, the check of the input says so.
        return text
    is_taken = not types or not types.isdisjoint(_types_of_value(value))
    return text if not is_taken and "string" in types else value


def _types_of(schema: object, root: object) -> set[str]:
    """The types that a schema names, as far as a short look goes; none where it leaves it open."""
    types: set[str] = set()
    todo = [schema]
    for _ in range(_MAX_SCHEMA_STEPS):
        if not todo:
            break
        part = mapped(todo.pop())
        named = part.get("type")
        types.update(str(it) for it in ([named] if isinstance(named, str) else listed(named)))
        for choice in (*listed(part.get("enum")), *([part["const"]] if "const" in part else [])):
            types.update(_types_of_value(choice))
        todo += [*listed(part.get("anyOf")), *listed(part.get("oneOf")), *listed(part.get("allOf"))]
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
# Far above any real input; keeps a wrong file, or one without an end, from filling the memory.
_MAX_INPUT_BYTES: Final = 16 << 20
_MAX_SHOWN: Final = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonInput:
    """The input as it is to be sent."""

    members: JsonObject


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsInput:
    """Texts by key; what they are depends on the tool."""

    pairs: dict[str, str]


ToolInput: TypeAlias = JsonInput | PairsInput


def read_tool_input(arguments: Sequence[str]) -> ToolInput:
    """What the arguments say before a tool is looked for; raises UsageProblem."""
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
    """What the tool is called with; raises UsageProblem for a key that it does not take."""
    if isinstance(given, JsonInput):
        return given.members
    for key in given.pairs:
        refuse_unknown_key(tool, key)
    return {key: value_for(tool, key, text) for key, text in given.pairs.items()}


def _json_input(data: bytes, name: str) -> JsonInput:
    try:
        value = decode_json(data.removeprefix(b"\xef\xbb\xbf"))
    except NotJsonError as error:
        raise UsageProblem(f"{name} {error.problem}") from None
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        raise UsageProblem(f"{name} is {kind}; a tool takes one object, such as '{{\"key\": 1}}'")
    return JsonInput(members=value)


def _pairs_input(arguments: Sequence[str]) -> PairsInput:
    pairs: dict[str, str] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not key:
            shown = argument if len(argument) <= _MAX_SHOWN else f"{argument[:_MAX_SHOWN]}…"
            raise UsageProblem(
                f"{shown!r} is no input; write one JSON object, key=value pairs, "
                "or - to read JSON from standard input"
            )
        if key in pairs:
            raise UsageProblem(f"{key!r} is given twice; write a list as {key}='[1, 2]'")
        pairs[key] = text
    return PairsInput(pairs=pairs)


def _refuse_broken_text(argument: str) -> None:
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        # Python keeps bytes of an argument that it cannot decode as halves of surrogate pairs.
        raise UsageProblem(
            f"the input is not UTF-8 (character {error.start + 1}); "
            "write the character in JSON as an escape, such as \\u00e9"
        ) from None


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        raise UsageProblem("there is no standard input to read; give the input as arguments")
    try:
        content = sys.stdin.buffer.read(_MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise UsageProblem(f"cannot read standard input: {error.strerror or error}") from None
    if len(content) > _MAX_INPUT_BYTES:
        raise UsageProblem(f"standard input has more than {_MAX_INPUT_BYTES} bytes")
    if not content.strip():
        raise UsageProblem("standard input is empty; write {} for a call without any input")
    return content
