"""`key=value` pairs against a tool's schema: which keys there are, and what a text means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.cli.output import UsageProblem
from nacre.json_types import NotJsonError, decode_json
from nacre.tools.nearest_names import NearestNames
from nacre.tools.schema_references import listed, mapped, target_of

if TYPE_CHECKING:
    from nacre.json_types import JsonValue
    from nacre.tools import Tool

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
