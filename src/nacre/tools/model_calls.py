"""Direct calls of a model: their arguments, their call site, and the error for an unknown tool."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from nacre.errors import NacreError
from nacre.json_types import NotJsonError, decode_json
from nacre.tools.executor import CallSite

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import AbortSignal

_CALL_ID_BYTES: Final = 8


class NotArguments(NacreError):
    """The arguments of a call are not an object; the message is for the model."""


def arguments_from(arguments: object) -> JsonObject:
    """Parse the arguments of a call, an object or JSON text; raises NotArguments."""
    if arguments is None:
        return {}
    if isinstance(arguments, str):
        try:
            arguments = decode_json(arguments.encode(errors="replace"))
        except NotJsonError as error:
            raise NotArguments(f"the arguments are not JSON: {error}") from error
    if not isinstance(arguments, Mapping):
        raise NotArguments(
            f"the arguments are a {type(arguments).__name__}; they have to be an object"
        )
    return dict(cast("Mapping[str, JsonValue]", arguments))


def site_of_model_call(call_id: str, abort: AbortSignal) -> CallSite:
    """The site of a direct call; a call without an id gets a new one."""
    own_id = call_id or f"call_{os.urandom(_CALL_ID_BYTES).hex()}"
    return CallSite(call_id=own_id, abort=abort)


def no_such_tool(name: str, visible_names: Iterable[str]) -> str:
    """The message for a model that called an unknown tool."""
    visible = ", ".join(visible_names) or "none"
    return f"there is no tool {name!r} that the model may call; there are: {visible}"
