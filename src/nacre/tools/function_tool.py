"""The `tool` decorator: turns a typed function into a tool."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast, get_type_hints, overload

from nacre.errors import ToolDefinitionError
from nacre.foreign_calls import call_in_thread
from nacre.lazy_dataclasses import dataclass
from nacre.tools.definition import CORE_OWNER, Tool, ToolCall, ToolResult
from nacre.tools.input_checks.problems import (
    InputProblem,
    build_input_error,
    format_path,
    format_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from docstring_parser import Docstring
    from pydantic import BaseModel, ValidationError
    from pydantic_core.core_schema import ModelSchema

    from nacre.json_types import JsonObject
    from nacre.tools.definition import CatalogMode, ToolSource


_REFUSED_KINDS: Final = {
    inspect.Parameter.VAR_POSITIONAL: "`*{}` cannot be described to a model; name every parameter",
    inspect.Parameter.VAR_KEYWORD: "`**{}` cannot be described to a model; name every parameter",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionSignature:
    """The schema of a function for the model, and how to call it with validated input."""

    description: str
    parameters: JsonObject
    output_schema: JsonObject | None
    model: type[BaseModel]
    arguments: tuple[Argument, ...]

    def call_with(
        self, values: BaseModel, call: ToolCall
    ) -> tuple[list[object], dict[str, object]]:
        """The positional and the keyword arguments of one call."""
        positional: list[object] = []
        named: dict[str, object] = {}
        for argument in self.arguments:
            value = call if argument.field is None else getattr(values, argument.field)
            if argument.is_positional:
                positional.append(value)
            else:
                named[argument.name] = value
        return positional, named


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """A parameter of the function."""

    name: str
    field: str | None
    """The field of the model with its value; None for the parameter of type `ToolCall`."""
    is_positional: bool


def read_signature(function: Callable[..., object], name: str) -> FunctionSignature:
    """Inspect a function; raises ToolDefinitionError with its name and the invalid parameter."""
    parameters = _parameters(function, name)
    hints = _type_hints(function, name)
    documentation = _documentation(function)
    described = {item.arg_name: item.description for item in documentation.params}
    arguments = tuple(
        Argument(
            name=parameter.name,
            # Not the parameter's name, because fields cannot be named `schema` or `_x`.
            field=None if hints[parameter.name] is ToolCall else f"argument_{index}",
            is_positional=parameter.kind is inspect.Parameter.POSITIONAL_ONLY,
        )
        for index, parameter in enumerate(parameters)
    )
    fields = {
        argument.field: _field(hints[argument.name], parameter, described.get(argument.name), name)
        for argument, parameter in zip(arguments, parameters, strict=True)
        if argument.field is not None
    }
    model = _model(fields, arguments, name)
    return FunctionSignature(
        description=_description(documentation),
        parameters=_schema_of(model, "validation"),
        output_schema=_output_schema(hints.get("return"), name),
        model=model,
        arguments=arguments,
    )


def _type_hints(function: Callable[..., object], name: str) -> Mapping[str, Any]:
    described: Callable[..., object] = function
    while isinstance(described, functools.partial):
        described = cast("functools.partial[object]", described).func
    if not inspect.isroutine(described):
        described = type(described).__call__
    try:
        return get_type_hints(described, include_extras=True)
    except NameError as error:
        problem = f"the annotation {error.name!r} is not defined at run time; import or define it "
        raise _definition_error(
            name, f"{problem}outside of `if TYPE_CHECKING` and of functions"
        ) from error
    except Exception as error:
        raise _definition_error(name, f"an annotation cannot be read: {error}") from error


def _parameters(function: Callable[..., object], name: str) -> list[inspect.Parameter]:
    if inspect.isclass(function):
        raise _definition_error(name, "it is a class")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _definition_error(
            name, "it is a generator; return the result, and report progress with `call.update`"
        )
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        refusal = _REFUSED_KINDS.get(parameter.kind)
        if refusal is not None:
            raise _definition_error(name, refusal.format(parameter.name))
        if parameter.annotation is inspect.Parameter.empty:
            raise _definition_error(
                name, f"the parameter {parameter.name!r} has no type annotation"
            )
    return parameters


def _field(
    annotation: object, parameter: inspect.Parameter, documented: str | None, name: str
) -> tuple[object, object]:
    """The annotation and the default of a field, with the description from the docstring."""
    from pydantic import Field
    from pydantic.fields import FieldInfo

    is_required = parameter.default is inspect.Parameter.empty
    default: Any = ... if is_required else parameter.default
    try:
        given = FieldInfo.from_annotated_attribute(cast("Any", annotation), default)
    except Exception as error:
        raise _parameter_error(name, parameter.name, error) from error
    extra: dict[str, Any] = {"alias": given.alias or parameter.name}
    if documented and given.description is None:
        extra["description"] = documented
    return Annotated[cast("Any", annotation), Field(**extra)], default


def _model(
    fields: Mapping[str, tuple[object, object]], arguments: tuple[Argument, ...], name: str
) -> type[BaseModel]:
    try:
        return _model_of(fields)
    except Exception as error:
        # Build a model for each field, to find the invalid parameter.
        for argument in arguments:
            try:
                _model_of({key: field for key, field in fields.items() if key == argument.field})
            except Exception as reason:
                raise _parameter_error(name, argument.name, reason) from error
        raise _definition_error(name, _first_line(error)) from error


def _model_of(fields: Mapping[str, tuple[object, object]]) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model

    config = ConfigDict(extra="forbid")
    model = create_model("Input", __config__=config, **cast("dict[str, Any]", fields))
    # Some types can be validated but have no JSON schema.
    _schema_of(model, "validation")
    return model


def _schema_of(described: object, mode: Literal["validation", "serialization"]) -> JsonObject:
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        """Without titles, which repeat the names, and without warnings about defaults."""

        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

        def field_title_should_be_set(self, schema: object) -> bool:
            return False

        def model_schema(self, schema: ModelSchema) -> dict[str, Any]:
            described = super().model_schema(schema)
            is_object = described.get("type") == "object" and "properties" in described
            if mode == "validation" and is_object and _has_only_known_keys(schema["cls"]):
                described.setdefault("additionalProperties", False)
            return described

    adapter = TypeAdapter[Any](cast("Any", described))
    schema = adapter.json_schema(mode=mode, schema_generator=Generator)
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return schema


def _has_only_known_keys(model: type[BaseModel]) -> bool:
    """Whether the schema names all keys that a model reads. A model may say what happens to other
    keys, read them under other names, or change its input before it is validated."""
    config = model.model_config
    if "extra" in config or config.get("populate_by_name") or config.get("validate_by_name"):
        return False
    if any(
        decorator.info.mode != "after"
        for decorator in model.__pydantic_decorators__.model_validators.values()
    ):
        return False
    aliases = (field.validation_alias for field in model.model_fields.values())
    return all(alias is None or isinstance(alias, str) for alias in aliases)


def _output_schema(annotation: object, name: str) -> JsonObject | None:
    if not _has_output_schema(annotation):
        return None
    try:
        return _schema_of(annotation, "serialization")
    except Exception as error:
        problem = f"its return type has no schema: {_first_line(error)}; pass `output_schema`"
        raise _definition_error(name, problem) from error


def _has_output_schema(annotation: object) -> bool:
    from pydantic import BaseModel
    from typing_extensions import is_typeddict

    if not isinstance(annotation, type) or annotation is ToolResult:
        return False
    kind = cast("type[object]", annotation)
    if is_typeddict(kind):
        # Before Python 3.12, pydantic supports only the TypedDict of typing_extensions.
        return sys.version_info >= (3, 12) or not typing.is_typeddict(kind)
    return is_dataclass(kind) or issubclass(kind, BaseModel)


def _documentation(function: Callable[..., object]) -> Docstring:
    import docstring_parser

    text = inspect.getdoc(function) or ""
    try:
        return docstring_parser.parse(text)
    except docstring_parser.ParseError:
        plain = docstring_parser.Docstring()
        plain.short_description = text
        return plain


def _description(documentation: Docstring) -> str:
    parts = [documentation.description or ""]
    if documentation.returns is not None and documentation.returns.description:
        parts.append(f"Returns: {documentation.returns.description}")
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _parameter_error(name: str, parameter: str, error: Exception) -> ToolDefinitionError:
    return _definition_error(
        name, f"the parameter {parameter!r} cannot be described: {_first_line(error)}"
    )


def _definition_error(name: str, problem: str) -> ToolDefinitionError:
    return ToolDefinitionError(f"function {name!r} cannot be a tool: {problem}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


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
    is_idempotent: bool = False,
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
    is_idempotent: bool = False,
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Turn a function with type annotations into a tool.

    The schema comes from the annotations, which may be anything that pydantic supports. The
    descriptions come from the docstring. A parameter of type `ToolCall` receives the call and is
    not part of the schema. `inspect.unwrap(tool.execute)` returns the function.

    A synchronous function runs in a thread. Threads cannot be cancelled: after an abort, the
    function continues to run and its result is ignored. A function that takes long should have a
    `ToolCall` parameter and check `call.abort`.

    Raises ToolDefinitionError with the name of the function and the invalid parameter.
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
            is_idempotent=is_idempotent,
            execute=execute,
        )

    return make if function is None else make(function)


class _FunctionExecute:
    """Validates and converts the input, then calls the function."""

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
        # A synchronous function may return the awaitable of an async one.
        return await returned if inspect.isawaitable(returned) else returned

    def _values(self, given: dict[str, Any]) -> BaseModel:
        from pydantic import ValidationError

        try:
            return self._signature.model.model_validate(given)
        except ValidationError as error:
            raise build_input_error(
                _problems_in(error), tool_name=self._tool_name, tool_id=self._tool_id, given=given
            ) from error


def _problems_in(error: ValidationError) -> list[InputProblem]:
    return [
        InputProblem(
            path=format_path(found["loc"]),
            text=f"{found['msg']}; given: {format_value(found['input'], steps=found['loc'])}",
        )
        for found in error.errors(include_url=False, include_context=False)
    ]


def _is_async(function: Callable[..., object]) -> bool:
    call = cast("object", getattr(function, "__call__", None))  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _name_of(function: Callable[..., object]) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise ToolDefinitionError(f"{function!r} has no name; pass one: @tool(name=...)")
    return name
