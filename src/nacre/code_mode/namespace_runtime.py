"""A namespace as one run sees it: what its programs are given, and the tool behind a call."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from nacre.code_mode.namespace_scope import MAX_SCOPE_DEPTH, PATH_SEPARATOR
from nacre.errors import ToolInputError, UnknownToolError
from nacre.json_types import JsonObject, JsonValue, NotJsonError, decode_json, encode_json

if TYPE_CHECKING:
    from nacre.code_mode.namespace_scope import NamespaceTool, Path, SerialisedScope
    from nacre.code_mode.namespaces import Namespace

logger = logging.getLogger(__name__)

_MAX_SHOWN_CHARACTERS: Final = 80
_MAX_SHOWN_FUNCTIONS: Final = 20
_MAX_MAPPER_MESSAGE: Final = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedCall:
    """The exact tool that a function of a namespace stands for, and its input."""

    tool_id: str
    input: JsonObject


class NamespaceRuntime:
    """A namespace as one run sees it."""

    def __init__(
        self,
        namespace: Namespace,
        scope: SerialisedScope,
        *,
        plugin_id: str,
        tool_ids: Mapping[str, str],
    ) -> None:
        self.namespace = namespace
        self.plugin_id = plugin_id
        self.descriptor = scope.descriptor
        self._functions = scope.functions
        self._tool_ids = tool_ids

    def resolve(self, path: object, args: object) -> ResolvedCall:
        """The call behind a function. A program may send anything as `path` and `args`.

        Raises UnknownToolError for a path that is no function of the scope, and ToolInputError for
        arguments that do not make an input.
        """
        segments = _segments(path)
        function = self._functions.get(segments)
        name = PATH_SEPARATOR.join((self.namespace.global_name, *segments))
        if function is None:
            raise self._unknown(name[:_MAX_SHOWN_CHARACTERS])
        tool_id = self._tool_ids[function.tool_name]
        if not isinstance(args, list):
            raise ToolInputError(f"{name}: its arguments are not a list", tool_id=tool_id)
        arguments = cast("list[JsonValue]", args)
        mapped = _map_arguments(function, arguments, name=name, tool_id=tool_id)
        return ResolvedCall(tool_id=tool_id, input=_to_input(mapped, name=name, tool_id=tool_id))

    def _unknown(self, name: str) -> UnknownToolError:
        global_name = self.namespace.global_name
        functions = list(self._functions)[:_MAX_SHOWN_FUNCTIONS]
        known = ", ".join(PATH_SEPARATOR.join((global_name, *found)) for found in functions)
        return UnknownToolError(
            f"{name!r} is not a function of the namespace {global_name}; it has: {known or 'none'}",
            tool_id=name,
        )


def _segments(path: object) -> Path:
    """Empty, which no function has, for what is not a list of texts."""
    if not isinstance(path, list) or len(cast("list[object]", path)) > MAX_SCOPE_DEPTH:
        return ()
    segments = cast("list[object]", path)
    texts = tuple(segment for segment in segments if isinstance(segment, str))
    return texts if len(texts) == len(segments) else ()


def _map_arguments(
    function: NamespaceTool, arguments: list[JsonValue], *, name: str, tool_id: str
) -> object:
    if function.input_mapper is None:
        return arguments[0] if arguments else None
    try:
        return function.input_mapper(arguments)
    except Exception as error:
        # Wrong arguments as a rule, so it is the program's to hear; a bug of the plugin as well,
        # perhaps, so the traceback is kept.
        logger.info("the input mapper of %s failed", name, exc_info=True)
        problem = f"{type(error).__name__}: {error}"[:_MAX_MAPPER_MESSAGE]
        message = f"{name} cannot use its {len(arguments)} argument(s): {problem}"
        raise ToolInputError(message, tool_id=tool_id) from error


def _to_input(mapped: object, *, name: str, tool_id: str) -> JsonObject:
    if mapped is None:
        return {}
    if not isinstance(mapped, Mapping):
        kind = type(mapped).__name__
        raise ToolInputError(f"{name} takes an object; this is a {kind}", tool_id=tool_id)
    try:
        # A copy in plain JSON: a mapper may hand out an object that it keeps.
        return cast("JsonObject", decode_json(encode_json(dict(cast("JsonObject", mapped)))))
    except NotJsonError as error:
        raise ToolInputError(f"{name}: the input {error}", tool_id=tool_id) from error
