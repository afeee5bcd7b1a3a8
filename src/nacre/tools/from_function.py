"""The `tool` decorator: a typed function becomes a tool."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, cast, overload

from nacre.errors import ToolDefinitionError
from nacre.foreign_calls import call_in_thread
from nacre.tools.definition import CORE_OWNER, Tool
from nacre.tools.function_signature import read_signature
from nacre.tools.input_checks.problems import InputProblem, input_refused, shown_path, shown_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel, ValidationError

    from nacre.json_types import JsonObject
    from nacre.tools.definition import CatalogMode, ToolCall, ToolSource
    from nacre.tools.function_signature import FunctionSignature


@overload
def tool(function: Callable[..., object], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    owner: str = CORE_OWNER,
    source: ToolSource = "openclaw",
    catalog_mode: CatalogMode = "catalog",
    output_schema: JsonObject | None = None,
) -> Callable[[Callable[..., object]], Tool]: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    owner: str = CORE_OWNER,
    source: ToolSource = "openclaw",
    catalog_mode: CatalogMode = "catalog",
    output_schema: JsonObject | None = None,
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Make a tool of a function whose parameters are annotated.

    The schema comes from the annotations (anything that pydantic can describe), the descriptions
    from the docstring. A parameter of type `ToolCall` is given the call and is not shown to the
    model. `inspect.unwrap(tool.execute)` is the function itself.

    A function that is not async runs in a thread. A thread cannot be stopped: when the call is
    aborted, nobody waits for it any more, but it goes on; one that takes long should ask for the
    `ToolCall` and look at `call.abort`.

    Raises ToolDefinitionError that names the function and the parameter at fault.
    """

    def make(function: Callable[..., object]) -> Tool:
        tool_name = name or _name_of(function)
        signature = read_signature(function, tool_name)
        execute = _FunctionExecute(function, signature, tool_name, f"{source}:{owner}:{tool_name}")
        return Tool(
            name=tool_name,
            label=label,
            description=signature.description if description is None else description,
            parameters=signature.parameters,
            output_schema=signature.output_schema if output_schema is None else output_schema,
            owner=owner,
            source=source,
            catalog_mode=catalog_mode,
            execute=execute,
        )

    return make if function is None else make(function)


class _FunctionExecute:
    """Checks and converts the input, then calls the function."""

    def __init__(
        self,
        function: Callable[..., object],
        signature: FunctionSignature,
        tool_name: str,
        tool_id: str,
    ) -> None:
        self.__wrapped__ = function
        self._signature = signature
        self._tool_name = tool_name
        self._tool_id = tool_id
        self._is_async = _is_async(function)

    async def __call__(self, given: dict[str, Any], call: ToolCall) -> object:
        positional, named = self._signature.call_with(self._values(given), call)
        bound = functools.partial(self.__wrapped__, *positional, **named)
        if self._is_async:
            return await cast("Any", bound())
        returned = await call_in_thread(bound)
        # A plain function may hand on what an async one gave it.
        return await returned if inspect.isawaitable(returned) else returned

    def _values(self, given: dict[str, Any]) -> BaseModel:
        from pydantic import ValidationError

        try:
            return self._signature.model.model_validate(given)
        except ValidationError as error:
            raise input_refused(
                _problems_in(error), tool_name=self._tool_name, tool_id=self._tool_id, given=given
            ) from error


def _problems_in(error: ValidationError) -> list[InputProblem]:
    return [
        InputProblem(
            path=shown_path(found["loc"]),
            text=f"{found['msg']}; given: {shown_value(found['input'], steps=found['loc'])}",
        )
        for found in error.errors(include_url=False, include_context=False)
    ]


def _is_async(function: Callable[..., object]) -> bool:
    call = cast("object", getattr(function, "__call__", None))  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _name_of(function: Callable[..., object]) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise ToolDefinitionError(f"{function!r} has no name of its own; give it: @tool(name=...)")
    return name
