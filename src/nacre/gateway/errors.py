"""Error responses: one format for the JSON API, and OpenAI's format under `/v1`."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, cast, get_args

from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Match

from nacre.config import nearest_key
from nacre.errors import (
    ApprovalError,
    ConfigError,
    MissingReferenceError,
    NacreError,
    ProviderError,
    RuntimeUnavailableError,
    SessionError,
    StorageError,
    ToolDefinitionError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fastapi import FastAPI, Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import Scope

    from nacre.json_types import JsonObject

logger = logging.getLogger(__name__)


UNKNOWN: Final = "extra_forbidden"
"""Pydantic's type for unknown members."""


def describe_unknown(route: BaseRoute | None, location: Sequence[int | str]) -> str:
    """Describe an unknown member of a request, with similar names."""
    *path, member = location
    known = _known_members(route, path)
    if not known:
        return "is unknown"
    near = nearest_key(str(member), known)
    hint = f"did you mean `{near}`?" if near else f"known: {', '.join(known)}"
    return f"is unknown; {hint}"


def _known_members(route: BaseRoute | None, path: Sequence[int | str]) -> list[str]:
    field = getattr(route, "body_field", None)
    if field is None or path[:1] != ["body"]:
        return []
    found = _models_in(field.field_info.annotation)
    for step in path[1:]:
        if isinstance(step, str):
            found = [inner for model in found for inner in _models_at(model, step)]
    return [name for model in found for name in _fields(model)]


def _models_at(model: type[BaseModel], name: str) -> Iterable[type[BaseModel]]:
    return _models_in(_fields(model).get(name))


def _fields(model: type[BaseModel]) -> Mapping[str, object]:
    """The types of the model's members, by their names on the wire."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _models_in(annotation: object) -> list[type[BaseModel]]:
    """All models inside a type, such as the items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


OPENAI_PREFIX: Final = "/v1"
RETRY_SECONDS: Final = 1

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_MAX_PROBLEMS: Final = 5
_MAX_SHOWN: Final = 120
_MAX_SHOWN_ID: Final = 80

_CODES_BY_STATUS: Final[Mapping[int, str]] = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    409: "conflict",
    413: "body_too_large",
    415: "unsupported_media_type",
    421: "wrong_host",
    422: "invalid_request",
    429: "too_many",
    502: "provider_failed",
    503: "unavailable",
}
_SESSION_STATUSES: Final[Mapping[str, int]] = {
    "not_found": 404,
    "busy": 429,
    "ended": 409,
    "too_many": 429,
    "invalid": 400,
}


def quote_id(text: str) -> str:
    """Quote an id or a name from a request, for a message; a long one is cut."""
    return repr(text[:_MAX_SHOWN_ID])


class ApiError(HTTPException):
    """An error response. `code` is for programs, `message` is for people, and `path` names the
    invalid member of the request."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        path: str = "",
        retry_after_seconds: float | None = None,
    ) -> None:
        # Not for 413: a client that still sends its body would get a reset instead of the response.
        # The server discards the rest, and closes the connection if it takes too long.
        headers = {"connection": "close"} if status == 408 else {}
        if retry_after_seconds is not None:
            headers["retry-after"] = str(max(1, math.ceil(retry_after_seconds)))
        super().__init__(status, message, headers)
        self.message = message
        self.code = code or _CODES_BY_STATUS.get(status, "failed")
        self.path = path

    def __str__(self) -> str:
        return self.message


def convert_error(error: NacreError) -> ApiError:
    """Convert an error of the system to an error response."""
    match error:
        case SessionError():
            status = _SESSION_STATUSES[error.code]
            retry = RETRY_SECONDS if status == 429 else None
            return ApiError(status, error.message, code=error.code, retry_after_seconds=retry)
        case ProviderError():
            return ApiError(
                429 if error.status == 429 else 502,
                error.message,
                code="provider_failed",
                retry_after_seconds=error.retry_after_seconds,
            )
        case MissingReferenceError():
            return ApiError(400, str(error), code="missing_secret")
        case ConfigError():
            return ApiError(500, str(error), code="config_invalid")
        case ToolDefinitionError():
            return ApiError(400, str(error), code="invalid_tool")
        case ApprovalError():
            return ApiError(409, str(error))
        case StorageError():
            return ApiError(
                503, str(error), code="storage_failed", retry_after_seconds=RETRY_SECONDS
            )
        case RuntimeUnavailableError():
            return ApiError(503, str(error), code="runtime_unavailable")
        case _:
            return ApiError(500, str(error), code="failed")


def error_response(scope: Scope, error: ApiError) -> Response:
    """Create the response in the format of the path's API."""
    is_openai = _is_under(scope["path"], OPENAI_PREFIX)
    content = openai_format(error) if is_openai else _json_format(error)
    return JSONResponse({"error": content}, error.status_code, headers=error.headers)


def add_error_handlers(app: FastAPI) -> None:
    """Convert all errors to responses of one format, without tracebacks."""
    app.add_exception_handler(StarletteHTTPException, _handle_http)
    app.add_exception_handler(RequestValidationError, _handle_invalid)
    app.add_exception_handler(NacreError, _handle_nacre)
    app.add_exception_handler(Exception, _handle_unexpected)


async def _handle_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    if isinstance(error, ApiError):
        return error_response(request.scope, error)
    response = error_response(request.scope, _convert_http_error(request, error))
    if error.status_code == 405:
        response.headers["allow"] = _allowed_methods(request)
    return response


def _allowed_methods(request: Request) -> str:
    """The methods of all routes with this path; the framework knows only the first route."""
    routes: Sequence[BaseRoute] = request.app.routes
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    return ", ".join(
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in routes)
    )


def _convert_http_error(request: Request, error: StarletteHTTPException) -> ApiError:
    shown = request.url.path[:_MAX_SHOWN]
    match error.status_code:
        case 404:
            return ApiError(404, f"there is nothing at {shown}; see /openapi.json")
        case 405:
            return ApiError(405, f"{shown} does not support {request.method}")
        case _:
            return ApiError(error.status_code, str(error.detail))


async def _handle_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(request.scope, _invalid_request_error(request, error.errors()))


def _invalid_request_error(request: Request, problems: Sequence[Mapping[str, object]]) -> ApiError:
    first = problems[0]
    if first.get("loc") == ("body",) and not _is_json(request.headers.get("content-type", "")):
        return ApiError(415, "the body must be JSON; send it with content-type: application/json")
    route: BaseRoute | None = request.scope.get("route")
    texts = [f"{_path(it)}: {_describe_problem(it, route)}" for it in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        texts.append(f"and {len(problems) - _MAX_PROBLEMS} more problems")
    return ApiError(422, "; ".join(texts), path=_path(first))


def _describe_problem(problem: Mapping[str, object], route: BaseRoute | None) -> str:
    if problem.get("type") == UNKNOWN:
        return describe_unknown(route, _location(problem))
    return str(problem.get("msg"))


def _location(problem: Mapping[str, object]) -> tuple[int | str, ...]:
    return cast("tuple[int | str, ...]", problem.get("loc", ()))


def _path(problem: Mapping[str, object]) -> str:
    """The path of the invalid member, such as `body.results[0].callId` or `query.limit`."""
    path = ""
    for step in _location(problem):
        path += f"[{step}]" if isinstance(step, int) else f".{step[:_MAX_SHOWN]}"
    return path.removeprefix(".")


async def _handle_nacre(request: Request, error: Exception) -> Response:
    assert isinstance(error, NacreError)
    response = convert_error(error)
    if response.status_code >= 500:
        logger.error("%s %s failed: %s", request.method, request.url.path, error)
    return error_response(request.scope, response)


async def _handle_unexpected(request: Request, error: Exception) -> Response:
    # Starlette raises the error again after this response, so the log has the traceback.
    response = ApiError(500, "the gateway failed; see its log", code="failed")
    return error_response(request.scope, response)


def _json_format(error: ApiError) -> JsonObject:
    content: JsonObject = {"code": error.code, "message": error.message}
    return {**content, "path": error.path} if error.path else content


def openai_format(error: ApiError) -> JsonObject:
    return {
        "message": error.message,
        "type": _openai_type(error.status_code),
        "param": error.path.removeprefix("body.") or None,
        "code": error.code,
    }


def _openai_type(status: int) -> str:
    match status:
        case 401 | 403:
            return "authentication_error"
        case 429:
            return "rate_limit_error"
        case _ if status >= 500:
            return "server_error"
        case _:
            return "invalid_request_error"


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _is_under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")
