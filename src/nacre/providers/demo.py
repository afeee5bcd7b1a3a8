"""The built-in demonstration model: fixed rules and no network, so that Nacre runs without a key.

It recognizes a few requests, calls the tools that it is given, and reports the results.
"""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio.lowlevel

from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.messages import (
    AssistantMessage,
    SentPayload,
    TextPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
)
from nacre.providers.base import Answered, TextDelta, ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message, ToolSpec
    from nacre.providers.base import ModelEvent, ModelRequest

DEMO_NOTE: Final = (
    "(I am Nacre's built-in demonstration model, not a real one. For a real one, set "
    "`agents.defaults.model` in the configuration, such as `openai/gpt-6`, and give its "
    "provider a key, such as OPENAI_API_KEY.)"
)
_GREETING: Final = """\
Hello. I understand only a few kinds of request. Try:
- What tools are there?
- Find a tool for reading files
- What is 12 * (3 + 4)?
- List the files
- Read README.md
- Wait a little (a program that yields and is continued)
- A JavaScript program in a ``` fence: I run just that"""
_NEEDS_CODE_MODE: Final = "That takes code mode; set `tools.codeMode.enabled: true` to enable it."
_MODEL_ID: Final = "demo/demo"
_CHARACTERS_PER_TOKEN: Final = 4
_MAX_PROMPT_CHARACTERS: Final = 2_000
_MAX_SHOWN_CHARACTERS: Final = 2_000
_MAX_WAITS: Final = 5

_WORD = re.compile(r"\s*\S+\s*|\s+")
_FENCE = re.compile(r"```(?:js|javascript|mjs|(ts|typescript))?[ \t]*\n(.*?\S.*?)```", re.DOTALL)
_SEARCH = re.compile(
    r"(?i)\b(?:search(?: for)?|find (?:me )?(?:an? )?tools? (?:for|to))\s+(\S[^\n]*)"
)
_ARITHMETIC = re.compile(r"[\d.()+\-*/%^ ]{3,}")
_HAS_OPERATION = re.compile(r"[\d)] ?[-+*/%^]+ ?[-(]*\.?\d")
_IS_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_LIST_FILES = re.compile(r"(?i)\b(?:list|what)\b[^\n]*\bfiles?\b(?:[^\n]*\bin ([\w./-]+))?")
_READ_FILE = re.compile(r"(?i)\b(?:read|open) (?:the )?(?:file )?[`\"']?([\w./-]+)")
_LIST_TOOLS = re.compile(r"(?i)\b(?:tools?|can you do)\b")
_WAIT = re.compile(r"(?i)\b(?:slow|wait)\b")

_LIST_TOOLS_PROGRAM: Final = """\
const owners = new Map();
for (const { id, name } of ALL_TOOLS) {
  const owner = id.split(":")[1];
  owners.set(owner, [...(owners.get(owner) ?? []), name]);
}
const lines = [...owners].map(([owner, names]) => `- ${owner}: ${names.join(", ")}`);
return [`There are ${ALL_TOOLS.length} tools:`, ...lines].join("\\n");"""
_SEARCH_PROGRAM: Final = """\
const hits = await API.search(QUERY, { limit: 5 });
const lines = hits.map(({ id, description }) => `- ${id}: ${description}`);
return lines.join("\\n") || "The search found no tool.";"""
_WAIT_PROGRAM: Final = """\
text("The first half is done.");
await yield_control("half of it is done");
return "The second half is done as well, in the same program.";"""

# A call of a tool by name and arguments, or an answer.
_Step: TypeAlias = "tuple[str, JsonObject] | str"


class DemoProvider:
    """Answers without a key; equal requests have equal answers."""

    model_id = _MODEL_ID
    context_tokens = 128_000

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        events = _events(request)
        try:
            yield events
        finally:
            await events.aclose()


async def _events(request: ModelRequest) -> AsyncGenerator[ModelEvent]:
    sent = _measure_payload(request)
    if request.check is not None:
        request.check(sent)
    step = _next_step(request)
    if isinstance(step, tuple):
        name, arguments = step
        call = ToolCallPart(
            call_id=f"call_demo_{len(request.messages)}",
            name=name,
            arguments=encode_json(arguments).decode(),
        )
        await anyio.lowlevel.checkpoint()
        yield ToolCallDelta(call_id=call.call_id, name=call.name, arguments=call.arguments)
        yield _make_answer(call, sent, written=call.arguments)
        return
    said = (each.text for each in request.messages if isinstance(each, AssistantMessage))
    text = step if any(DEMO_NOTE in each for each in said) else f"{step}\n\n{DEMO_NOTE}"
    for word in _WORD.findall(text):
        # The client may disconnect between two words.
        await anyio.lowlevel.checkpoint()
        yield TextDelta(text=word)
    yield _make_answer(TextPart(text=text), sent, written=text)


def _next_step(request: ModelRequest) -> _Step:
    """Decide by the last prompt and the results of the calls since then."""
    prompt, results = "", list[ToolMessage]()
    for message in request.messages:
        if isinstance(message, UserMessage):
            prompt, results = message.text, []
        elif isinstance(message, ToolMessage):
            results.append(message)
    return _report(results) if results else _first_step(prompt, request.tools)


def _first_step(prompt: str, tools: Sequence[ToolSpec]) -> _Step:
    if fence := _FENCE.search(prompt):
        return _run(fence[2], tools, language="typescript" if fence[1] else "")
    # The patterns below must not be given a long text.
    prompt = prompt[:_MAX_PROMPT_CHARACTERS]
    if search := _SEARCH.search(prompt):
        return _search(search[1].strip(" ?.!\"'`"), tools)
    if expression := _find_arithmetic(prompt):
        return _run(f"return {expression};", tools)
    if listing := _LIST_FILES.search(prompt):
        return _call("list", listing[1], tools)
    if reading := _READ_FILE.search(prompt):
        return _call("read", reading[1], tools)
    if _LIST_TOOLS.search(prompt):
        return _list_tools(tools)
    if _WAIT.search(prompt):
        return _run(_WAIT_PROGRAM, tools) if _has_code_mode(tools) else _NEEDS_CODE_MODE
    return _GREETING


def _find_arithmetic(prompt: str) -> str:
    for found in _ARITHMETIC.findall(prompt):
        # Without the punctuation of the sentence around it.
        expression: str = found.rstrip("(+-*/%^. ").lstrip(")*/%^. ")
        is_balanced = expression.count("(") == expression.count(")")
        if is_balanced and _HAS_OPERATION.search(expression) and not _IS_DATE.search(expression):
            return expression.replace("^", "**")
    return ""


def _has_code_mode(tools: Sequence[ToolSpec]) -> bool:
    # A shell may be called `exec` too, but it takes no `code`.
    accepted = (tool.parameters.get("properties") for tool in tools if tool.name == "exec")
    return any(isinstance(each, dict) and "code" in each for each in accepted)


def _run(code: str, tools: Sequence[ToolSpec], *, language: str = "") -> _Step:
    if _has_code_mode(tools):
        return "exec", {"code": code, **({"language": language} if language else {})}
    if any(tool.name == "tool_search_code" for tool in tools):
        return "tool_search_code", {"code": code}
    return _NEEDS_CODE_MODE


def _call(name: str, path: str | None, tools: Sequence[ToolSpec]) -> _Step:
    """Call a file tool: by its name if it is there, or by its id through the catalog."""
    given: JsonObject = {"path": (path or "").rstrip(".") or "."}
    names = {tool.name for tool in tools}
    tool_id = f"openclaw:core:{name}"
    if name in names:
        return name, given
    if "tool_call" in names:
        return "tool_call", {"id": tool_id, "args": given}
    api = "tools" if _has_code_mode(tools) else "openclaw.tools"
    step = _run(f"return await {api}.call({json.dumps(tool_id)}, {json.dumps(given)});", tools)
    return f"This agent has no tool `{name}`." if isinstance(step, str) else step


def _search(query: str, tools: Sequence[ToolSpec]) -> _Step:
    if any(tool.name == "tool_search" for tool in tools):
        return "tool_search", {"query": query, "limit": 5}
    api = "tools" if _has_code_mode(tools) else "openclaw.tools"
    return _run(_SEARCH_PROGRAM.replace("API", api).replace("QUERY", json.dumps(query)), tools)


def _list_tools(tools: Sequence[ToolSpec]) -> _Step:
    if _has_code_mode(tools):
        return _run(_LIST_TOOLS_PROGRAM, tools)
    lines = [f"- {tool.name}: {tool.description.strip().split(chr(10))[0]}" for tool in tools]
    return _truncate("\n".join([f"This agent has {len(tools)} tools:", *lines]))


def _report(results: Sequence[ToolMessage]) -> _Step:
    """Continue a program that waits, or report the result of the last call."""
    result, last = _decode_object(results[-1].content), results[-1]
    outputs = [_decode_object(each.content).get("output") for each in results]
    items = [item for output in outputs if isinstance(output, list) for item in output]
    lines = [
        _format(each.get("text", each.get("value"))) for each in items if isinstance(each, dict)
    ]
    written = _truncate("\n".join(["The program wrote:", *lines])) + "\n" if lines else ""
    match result.get("status"):
        case "waiting" if len(results) <= _MAX_WAITS:
            return "wait", {"runId": result.get("runId")}
        case "waiting":
            return f"{written}The program is still waiting; I stop here."
        case "failed":
            return f"{written}That failed: {_format(result.get('error'))}"
        case "completed":
            return f"{written}It returned:\n{_format(result.get('value'))}"
        case _:
            # The result of a tool that was called by its own name.
            return f"{'It failed' if last.is_error else 'It returned'}:\n{_truncate(last.content)}"


def _decode_object(text: str) -> JsonObject:
    """Empty for anything but a JSON object."""
    try:
        value = decode_json(text.encode(errors="replace"))
    except NotJsonError:
        return {}
    return value if isinstance(value, dict) else {}


def _format(value: JsonValue) -> str:
    return _truncate(value if isinstance(value, str) else encode_json(value).decode())


def _truncate(text: str) -> str:
    if len(text) <= _MAX_SHOWN_CHARACTERS:
        return text
    return f"{text[:_MAX_SHOWN_CHARACTERS]} … ({len(text) - _MAX_SHOWN_CHARACTERS} more characters)"


def _make_answer(part: TextPart | ToolCallPart, sent: SentPayload, *, written: str) -> Answered:
    usage = Usage(
        input_tokens=sent.payload_bytes // _CHARACTERS_PER_TOKEN + 1,
        output_tokens=len(written) // _CHARACTERS_PER_TOKEN + 1,
    )
    reason = "tool_calls" if isinstance(part, ToolCallPart) else "stop"
    message = AssistantMessage(parts=(part,), model=_MODEL_ID, usage=usage, finish_reason=reason)
    return Answered(message=message)


def _measure_payload(request: ModelRequest) -> SentPayload:
    """Measure the request as if it were sent, for the same checks as with a real model."""
    tools: list[JsonValue] = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in request.tools
    ]
    tool_bytes = len(encode_json(tools))
    texts = [request.instructions, *(text for each in request.messages for text in _texts(each))]
    return SentPayload(
        tool_names=tuple(tool.name for tool in request.tools),
        tool_bytes=tool_bytes,
        payload_bytes=tool_bytes + sum(len(text.encode(errors="replace")) for text in texts),
    )


def _texts(message: Message) -> list[str]:
    if isinstance(message, ToolMessage):
        return [message.content]
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    return [message.text, *(call.arguments for call in calls)]
