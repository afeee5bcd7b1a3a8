"""Base classes of all schemas, and the error response."""

from typing import Annotated, Any, Final

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


class ErrorDetail(Answer):
    """What went wrong."""

    code: str
    """For programs."""
    message: str
    """For people: what happened, which value, what to do."""
    path: str | None = None
    """The part of the request that is wrong, such as `body.results[0].callId`."""


class ErrorResponse(Answer):
    """Every answer that is no success."""

    error: ErrorDetail


_DESCRIPTIONS: Final = {
    400: "What was asked for cannot be.",
    401: "The token is missing or wrong.",
    403: "A page of a foreign origin.",
    404: "There is no such thing.",
    408: "The body did not come to its end.",
    409: "Too late: it is over already.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "Not the host of this gateway.",
    422: "A member of the request is wrong; `path` says which.",
    429: "Too much at once; `Retry-After` says when to try again.",
    500: "The gateway failed.",
    503: "Not now: the gateway or its database is not available.",
}
_ALWAYS: Final = (400, 401, 403, 408, 413, 421, 422, 500, 503)


def error_answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses=`: those that any request may get, and these."""
    return {
        status: {"model": ErrorResponse, "description": _DESCRIPTIONS[status]}
        for status in sorted({*_ALWAYS, *statuses})
    }
