"""What the demonstration model does with a result: goes on waiting, or tells what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.providers.demo_intents import Calculate, ListTools, SearchTools
from nacre.providers.demo_moves import Move

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import ToolMessage
    from nacre.providers.demo_intents import Intent
    from nacre.providers.demo_moves import Surface

_MOST_WAITS: Final = 5
_MAX_SHOWN_CHARACTERS: Final = 2_000


def next_move(intent: Intent, results: Sequence[ToolMessage], surface: Surface) -> Move | str:
    """`results` are those of the turn, in order; at least one."""
    last = results[-1]
    result = _object_in(last.content)
    status = result.get("status")
    if surface == "direct" or status is None:
        # Of a tool that was called by its own name: its value itself, or what went wrong.
        problem = "The call failed" if last.is_error else "This came back"
        return f"{problem}:\n{_clipped(last.content)}"
    if status == "waiting":
        return _waited(result, len(results))
    said = _output_of(results)
    if status == "failed":
        return f"{said}That failed: {_shown(result.get('error'))}"
    return f"{said}{_told(intent, result.get('value'))}"


def _waited(result: JsonObject, waits: int) -> Move | str:
    if waits > _MOST_WAITS:
        return "The program still waits, and so long I do not."
    return Move(name="wait", arguments={"runId": result.get("runId")})


def _output_of(results: Sequence[ToolMessage]) -> str:
    """What the program wrote on the way, in all its results."""
    outputs = [_object_in(message.content).get("output") for message in results]
    items = [item for output in outputs if isinstance(output, list) for item in output]
    lines = [
        _shown(item.get("text", item.get("value"))) for item in items if isinstance(item, dict)
    ]
    written = "\n".join(lines)
    return f"The program wrote:\n{_clipped(written)}\n" if lines else ""


def _told(intent: Intent, value: JsonValue) -> str:
    match intent, value:
        case ListTools(), {"count": count, "owners": list(owners), "servers": list(servers)}:
            return _told_tools(count, owners, servers)
        case SearchTools(query=query), {"hits": list(hits), "top": top}:
            return _told_hits(query, hits, top)
        case SearchTools(query=query), list(hits):
            return _told_hits(query, hits, None)
        case Calculate(expression=expression), _:
            return f"{expression} = {_shown(value)}, computed by a program in the sandbox."
        case _, None:
            return "The program returned nothing."
        case _:
            return f"It returned:\n{_shown(value)}"


def _told_tools(count: JsonValue, owners: Sequence[JsonValue], servers: Sequence[JsonValue]) -> str:
    lines = [f"A program in the sandbox counted {count} tools:"]
    for entry in owners:
        match entry:
            case [owner, int(of_owner), list(names)]:
                more = f" and {of_owner - len(names)} more" if of_owner > len(names) else ""
                lines.append(f"- {owner}: {', '.join(map(str, names))}{more}")
            case _:
                pass
    if servers:
        lines.append(f"MCP servers: {', '.join(map(str, servers))}")
    return _clipped("\n".join(lines))


def _told_hits(query: str, hits: Sequence[JsonValue], top: JsonValue) -> str:
    if not hits:
        return f"The search found no tool for {query!r}."
    lines = [f"For {query!r} the search found, best first:"]
    lines += [
        f"- {hit.get('id')}: {_shown(hit.get('description'))}"
        for hit in hits
        if isinstance(hit, dict)
    ]
    if isinstance(top, dict):
        lines.append(f"The first one takes: {_shown(top.get('parameters'))}")
    return _clipped("\n".join(lines))


def _object_in(text: str) -> JsonObject:
    """Empty for what is no JSON object, or was cut off on the way."""
    try:
        value = decode_json(text.encode(errors="replace"))
    except NotJsonError:
        return {}
    return value if isinstance(value, dict) else {}


def _shown(value: JsonValue) -> str:
    return _clipped(value if isinstance(value, str) else encode_json(value).decode())


def _clipped(text: str) -> str:
    if len(text) <= _MAX_SHOWN_CHARACTERS:
        return text
    left = len(text) - _MAX_SHOWN_CHARACTERS
    return f"{text[:_MAX_SHOWN_CHARACTERS]} … ({left} more characters)"
