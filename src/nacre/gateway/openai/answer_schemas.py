"""What the OpenAPI document says of the answers under `/v1`."""

from typing import Any, Final

from pydantic import BaseModel


class OpenAiError(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAiErrorResponse(BaseModel):
    """An error as clients of OpenAI know it."""

    error: OpenAiError


ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": OpenAiErrorResponse, "description": description}
    for status, description in (
        (400, "What was asked for cannot be done; `param` names the member."),
        (401, "The token is missing or wrong."),
        (403, "Pages of this origin may not call the gateway."),
        (404, "There is no such model or response."),
        (408, "The body did not come to its end."),
        (409, "It is not there yet."),
        (413, "The body is too large."),
        (421, "The gateway is not known by this Host."),
        (429, "Too much is going on; try again after `Retry-After`."),
        (500, "The run failed, or has used up what it may use."),
        (502, "The model's provider failed."),
        (503, "The provider is busy, or the run was aborted."),
    )
}
_EVENT: Final = {
    "type": "object",
    "required": ["data"],
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
}
ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The answer; with `stream`, as server-sent events.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"schema": _EVENT},
        },
    },
    **ERRORS,
}
