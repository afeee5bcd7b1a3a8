"""Validates a config document against its model: every problem by path, and the JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from nacre.config.agents import default_workspace
from nacre.config.document import Document, McpServerSection
from nacre.config.gateway import default_storage_url
from nacre.config.sections import ALLOWED, HIDDEN, TAKES_NULL
from nacre.config.setting_paths import (
    describe_kind,
    format_value,
    member_path,
    reject_misplaced,
    unknown_key,
)
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pydantic_core import ErrorDetails

    from nacre.config.setting_paths import Key
    from nacre.json_types import JsonObject

_T = TypeVar("_T")
_Node = dict[str, Any]
"""A part of a JSON Schema."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
# Each pass removes something. More passes would mean a bug in the model.
_MAX_PASSES: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One setting that a document may have."""

    path: str
    """`<name>` and `[]` stand for the members of maps and lists."""
    default: object
    allowed: str


def validate_document(document: Mapping[str, object]) -> tuple[Document, list[ConfigError]]:
    """The document, with defaults instead of invalid values, and all problems."""
    return _validate(document, Document.model_validate, path="", keys=())


def validate_servers(
    servers: object, path: str
) -> tuple[dict[str, McpServerSection], list[ConfigError]]:
    """The same for MCP servers by name, which are at `path` in a file."""
    return _validate(
        servers, _servers_adapter().validate_python, path=path, keys=("mcp", "servers")
    )


@cache
def _servers_adapter() -> TypeAdapter[dict[str, McpServerSection]]:
    return TypeAdapter(dict[str, McpServerSection])


def _validate(
    value: object, validate: Callable[..., _T], *, path: str, keys: tuple[str, ...]
) -> tuple[_T, list[ConfigError]]:
    """`keys` is the place of such a value in a document, by which its schema is found."""
    problems: list[ConfigError] = []
    try:
        rest = _copy(value)
        for _ in range(_MAX_PASSES):
            try:
                return validate(rest, by_alias=True, by_name=False), problems
            except ValidationError as error:
                node = _find_node(_schema(), keys) or {}
                for detail in error.errors(include_url=False):
                    problems.append(_describe(detail, path, node))
                    rest = _without(rest, detail["loc"], node)
    except RecursionError:
        problems.append(ConfigError(path, "is nested too deep to be a configuration"))
    return validate({}, by_alias=True, by_name=False), problems


def _copy(value: object) -> object:
    """Copy to plain objects and lists, which can be changed."""
    if isinstance(value, Mapping):
        return {str(k): _copy(v) for k, v in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in cast("Sequence[object]", value)]
    return value


def _without(value: Any, keys: Sequence[Key], node: _Node) -> Any:
    """Remove the value at these keys. No item of a list moves to another index: in a list of
    objects an empty one takes its place, and a list of texts is removed as a whole."""
    parents: list[tuple[Any, Key]] = []
    here = value
    for key in keys:
        if not isinstance(here, (dict, list)):
            # A short form, such as a boolean instead of an object.
            break
        if key not in (here if isinstance(here, dict) else range(len(cast("list[object]", here)))):
            return value
        holder = cast("Any", here)
        parents.append((holder, key))
        here = holder[key]
    while parents:
        parent, key = parents.pop()
        if isinstance(parent, dict):
            del parent[key]
            return value
        if _holds_objects(_find_node(node, [key for _, key in parents]) or {}):
            parent[key] = {}
            return value
    return {}


# Problems in words


def _describe(error: ErrorDetails, path: str, node: _Node) -> ConfigError:
    *before, last = error["loc"] or ("",)
    if error["type"] == "extra_forbidden":
        parent = _find_node(node, before) or {}
        known = [key for branch in _branches(parent) for key in branch.get("properties", ())]
        return unknown_key(_join(path, before), last, known)
    where, value = _join(path, error["loc"]), error["input"]
    found = _find_node(node, error["loc"]) or {}
    if error["type"] == "problem":
        return ConfigError(where, f"is {format_value(value)}; {error['msg']}")
    words = format_allowed(found)
    if error["type"] == "string_unicode" and found.get("type") == "object":
        return ConfigError(where, "has a key with half a character; write whole ones")
    if _holds_objects(found):
        return reject_misplaced(where, value, words)
    # The members of an object or list in the place of one value may be secrets.
    is_hidden = found.get(HIDDEN) or (type(value) in (dict, list) and len(value) > 0)
    shown = describe_kind(value) if is_hidden else format_value(value)
    return ConfigError(where, f"is {shown}; allowed: {words}")


def _join(path: str, keys: Sequence[Key]) -> str:
    for key in keys:
        path = f"{path}[{key}]" if isinstance(key, int) else member_path(path, str(key))
    return path


def _holds_objects(node: _Node) -> bool:
    """Whether only an object or a list of objects can be there. Anything else may be a secret."""
    branches = _branches(node)
    return any(it.get("type") == "object" for it in branches) or any(
        _holds_objects(_resolve(it["items"])) for it in branches if "items" in it
    )


def format_allowed(node: _Node) -> str:
    """The allowed values of a setting, in words."""
    if ALLOWED in node:
        return str(node[ALLOWED])
    branches = [it for it in _branches(node) if it.get("type") != "null"]
    words = [_format_type(branch) for branch in branches]
    # So that the text is "true, false and an object", with one "and".
    if len(words) > 1:
        words = [word.replace("true and false", "true, false") for word in words]
    return " and ".join(words) or "another value"


def _format_type(node: _Node) -> str:
    if ALLOWED in node:
        return str(node[ALLOWED])
    if "const" in node:
        return f"only {format_value(node['const'])}"
    if "enum" in node:
        return ", ".join(map(format_value, node["enum"]))
    match node.get("type"):
        case "boolean":
            return "true and false"
        case "integer" | "number" as kind:
            numbers = "whole numbers" if kind == "integer" else "numbers"
            least, most = node.get("minimum"), node.get("maximum")
            return numbers if least is None else f"{numbers} from {least} to {most}"
        case "array":
            return f"a list of {_format_items(_resolve(node.get('items', {})))}"
        case "object":
            return "an object"
        case _:
            return "text"


def _format_items(node: _Node) -> str:
    words = format_allowed(node)
    return {"text": "texts", "a path": "paths", "an object": "objects"}.get(words, words)


# The schema


def config_schema() -> JsonObject:
    """The JSON Schema of a document, for editors."""
    schema = cast("_Node", _copy(_schema()))
    sections = {name: _publish_section(node) for name, node in schema.pop("$defs").items()}
    return {
        "$schema": _DIALECT,
        "title": "The configuration of Nacre",
        **_publish_section(schema),
        "$defs": dict(sorted(sections.items())),
    }


@cache
def _schema() -> _Node:
    """With the keywords of our own, and without null, which any setting may be."""
    return Document.model_json_schema()


def _publish_section(section: _Node) -> _Node:
    """An object of the document: each of its members may be null, which counts as missing."""
    takes_null = section.pop(TAKES_NULL, True)
    members = {
        key: _allow_null(_publish(node)) if takes_null else _publish(node)
        for key, node in section["properties"].items()
    }
    about = {key: section[key] for key in ("type", "required") if key in section}
    others = section.get("additionalProperties", False)
    return {
        **about,
        "properties": members,
        "additionalProperties": _allow_null(_publish(others)) if others else others,
    }


def _publish(node: Any) -> Any:
    """The schema of one setting, without the keywords of our own."""
    if isinstance(node, list):
        return [_publish(item) for item in cast("list[object]", node)]
    if not isinstance(node, dict):
        return node
    known = cast("_Node", node)
    dropped = [ALLOWED, HIDDEN, "title", *(["default"] if "$ref" in known else [])]
    found: _Node = {
        # A default is a value, not a schema.
        key: value if key in ("default", "enum") else _publish(value)
        for key, value in known.items()
        if key not in dropped
    }
    others = known.get("additionalProperties")
    if isinstance(others, dict) and "$ref" in others:
        found["additionalProperties"] = _allow_null(found["additionalProperties"])
    if ALLOWED in known and "description" in known:
        found["description"] = f"{known['description']} Allowed: {known[ALLOWED]}."
    return found


def _allow_null(node: Any) -> Any:
    null = {"type": "null"}
    if not isinstance(node, dict):
        return node
    known = cast("_Node", node)
    if "anyOf" in known:
        is_there = null in known["anyOf"]
        return known if is_there else {**known, "anyOf": [*known["anyOf"], null]}
    about = {key: known[key] for key in ("description", "default", "writeOnly") if key in known}
    rest = {key: value for key, value in known.items() if key not in about}
    return {**about, "anyOf": [rest, null]}


def find_setting(keys: Sequence[Key]) -> _Node | None:
    """The schema of the setting at these keys; None if a document cannot have it."""
    return _find_node(_schema(), keys)


def _find_node(node: _Node, keys: Sequence[Key]) -> _Node | None:
    here: _Node | None = node
    for key in keys:
        here = _step(here, key)
        if here is None:
            return None
    return here


def _step(node: _Node, key: Key) -> _Node | None:
    for branch in _branches(node):
        if isinstance(key, int):
            if "items" in branch:
                return _resolve(branch["items"])
            continue
        if key in branch.get("properties", {}):
            return _resolve(branch["properties"][key])
        if isinstance(branch.get("additionalProperties"), dict):
            return _resolve(branch["additionalProperties"])
    return None


def _branches(node: _Node) -> list[_Node]:
    """The ways in which a value can be written."""
    if "anyOf" in node:
        return [_resolve(branch) for branch in node["anyOf"]]
    return [_resolve(node)]


def _resolve(node: _Node) -> _Node:
    if "$ref" not in node:
        return node
    target = _schema()["$defs"][str(node["$ref"]).rpartition("/")[2]]
    return {**target, **{key: value for key, value in node.items() if key != "$ref"}}


def list_settings(environment: Mapping[str, str]) -> dict[str, Setting]:
    """Every setting that a document may have, by path."""
    settings = {setting.path: setting for setting in _walk(_schema(), "")}
    # These depend on the user's directories.
    defaults = {
        "agents.defaults.workspace": str(default_workspace(environment)),
        "storage.url": default_storage_url(environment),
    }
    return {
        **settings,
        **{path: replace(settings[path], default=it) for path, it in defaults.items()},
    }


def _walk(node: _Node, path: str) -> Iterator[Setting]:
    inner: list[tuple[_Node, str]] = []
    is_section = "anyOf" not in node and ALLOWED not in node
    for branch in _branches(node):
        members = branch.get("properties", {})
        inner += [(member, f"{path}.{key}" if path else key) for key, member in members.items()]
        more = branch.get("additionalProperties")
        if isinstance(more, dict) and "$ref" in more:
            inner.append((cast("_Node", more), f"{path}.<name>"))
        if "items" in branch and _holds_objects(branch):
            inner.append((branch["items"], f"{path}[]"))
            is_section = False
    if not inner or not is_section:
        yield Setting(path=path, default=node.get("default"), allowed=format_allowed(node))
    for member, place in inner:
        yield from _walk(_resolve(member), place)
