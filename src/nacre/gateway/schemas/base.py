"""How every schema is written: camelCase on the wire, and no unknown members in requests."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

JsonMap = dict[str, JsonValue]
OpaqueJson = Annotated[Any, Field(json_schema_extra={"description": "Any JSON value."})]
"""Values of tools and programs: JSON already, passed on as they are."""
OpaqueMap = dict[str, OpaqueJson]


class Answer(BaseModel):
    """A part of what the gateway answers."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )


class Asked(BaseModel):
    """A part of what callers send."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
    )
