"""MCP elicitations that are approvals of tool calls: which can be answered, and how."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue

_KIND: Final = "mcp_tool_call"
_APPROVE_FIELD: Final = re.compile(
    r"(is_?)?(approve|approved|approval|allow|allowed|accept|accepted|confirm|confirmed|consent"
    r"|decision|permit|permitted|proceed|ok|yes)",
    re.IGNORECASE,
)
_PERSIST_FIELD: Final = re.compile(
    r"persist|persistence|remember|scope|duration|always(_allow)?", re.IGNORECASE
)
# The narrowest meaning first: an answer never allows more than this call.
_APPROVE_OPTIONS: Final = (
    re.compile(r"(allow|approve|accept)[ _-]?once|once", re.IGNORECASE),
    re.compile(r"allow|approve|approved|accept|confirm|proceed|yes|ok", re.IGNORECASE),
)
_NO_PERSIST_OPTION: Final = re.compile(
    r"once|none|never|no|turn|call|this[ _-]?(call|time|turn)|just[ _-]?once", re.IGNORECASE
)


def is_tool_approval(params: JsonObject) -> bool:
    """Whether Codex asks for the approval of an MCP tool call, with a form."""
    meta = params.get("_meta")
    kind = meta.get("codex_approval_kind") if isinstance(meta, dict) else None
    return kind == _KIND and params.get("mode") == "form"


def can_answer(params: JsonObject) -> bool:
    """Whether the form has an answer that means yes, and only for this call."""
    return _find_content(params) is not None


def accept_elicitation(params: JsonObject) -> JsonObject:
    """The result that allows this call once; Nacre remembers what is always allowed."""
    content = _find_content(params)
    if content is None:
        return {"action": "decline"}
    return {"action": "accept", "content": content or None}


def _find_content(params: JsonObject) -> JsonObject | None:
    """The filled form; None if it cannot be filled."""
    schema = params.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(properties, dict):
        return None
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    content: JsonObject = {}
    has_approval = not properties
    for name, field in properties.items():
        value = _find_value(name, field)
        if value is not None:
            content[name] = value
            has_approval |= _APPROVE_FIELD.fullmatch(name) is not None
        elif name in needed or _APPROVE_FIELD.fullmatch(name):
            return None
    return content if has_approval else None


def _find_value(name: str, field: JsonValue) -> JsonValue:
    """The answer in a field; None if it has none."""
    if not isinstance(field, dict):
        return None
    is_boolean = field.get("type") == "boolean"
    if _PERSIST_FIELD.fullmatch(name):
        return False if is_boolean else _find_option(field, (_NO_PERSIST_OPTION,))
    if _APPROVE_FIELD.fullmatch(name):
        return True if is_boolean else _find_option(field, _APPROVE_OPTIONS)
    return None


def _find_option(field: JsonObject, wanted: tuple[re.Pattern[str], ...]) -> JsonValue:
    options = _list_options(field)
    for pattern in wanted:
        for value, title in options:
            if pattern.fullmatch(value) or pattern.fullmatch(title):
                return value
    return None


def _list_options(field: JsonObject) -> list[tuple[str, str]]:
    """The values of an enumeration with their titles, in the three ways to write them."""
    values, names, one_of = field.get("enum"), field.get("enumNames"), field.get("oneOf")
    if isinstance(one_of, list):
        return [
            (str(each.get("const")), str(each.get("title")))
            for each in one_of
            if isinstance(each, dict)
        ]
    if not isinstance(values, list):
        return []
    titles = names if isinstance(names, list) and len(names) == len(values) else values
    return [(str(value), str(title)) for value, title in zip(values, titles, strict=True)]
