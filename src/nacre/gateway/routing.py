"""What all routes share: the gateway's state, JSON bodies, base models and error responses."""

import hashlib
import logging
import math
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, cast

import anyio
from fastapi import Depends, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError, core_schema
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nacre.agent import Heartbeats, new_run_id
from nacre.errors import ConfigError, NacreError, StorageError
from nacre.gateway.auth import Credential, SignIn
from nacre.gateway.errors import ApiError, error_response
from nacre.gateway.events import EventHub
from nacre.json_types import NotJsonError, TooLargeError, encode_json
from nacre.large_json import decode_off_loop

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue

    from nacre.bootstrap import System
    from nacre.config import ConfigFile
    from nacre.gateway.metrics import Metrics
    from nacre.json_types import JsonObject
    from nacre.storage import Store

logger = logging.getLogger(__name__)

BEARER: Final = Security(HTTPBearer(auto_error=False, description="The token of the gateway."))
"""The dependency of every route that needs the token. For the OpenAPI document only:
`AuthMiddleware` checks the token."""


class Readiness:
    """Whether the database can be used. Anybody may ask, so it is checked once a second at most."""

    max_age_seconds = 1.0

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._lock = anyio.Lock()
        self._checked_at = -math.inf
        self._problem = ""

    async def is_ready(self) -> bool:
        async with self._lock:
            if anyio.current_time() - self._checked_at >= self.max_age_seconds:
                problem = await self._check()
                if problem and problem != self._problem:
                    logger.warning("the gateway is not ready: %s", problem)
                self._problem = problem
                self._checked_at = anyio.current_time()
        return not self._problem

    async def _check(self) -> str:
        try:
            await self._store.check()
        except StorageError as error:
            return str(error)
        return ""


MAX_BODY_PARTS: Final = 50_000
"""The values in a body. Each is validated on the event loop."""


class GatewayState:
    """The system that the gateway serves, and the state of the gateway itself."""

    def __init__(
        self,
        system: "System",
        *,
        metrics: "Metrics",
        generated_token: str = "",
        config_file: "ConfigFile | None" = None,
    ) -> None:
        """`generated_token` applies if the configuration has no token. Raises ConfigError."""
        self.system = system
        self.metrics = metrics
        self.config_file = config_file
        """The file of the configuration, for the routes that show and change it."""
        self.started = time.monotonic()
        self.readiness = Readiness(system.store)
        self.events = EventHub(system.agents, system.store)
        """What `/api/events` sends."""
        self.idempotency_keys = IdempotencyKeys(system.store)
        self.heartbeats = Heartbeats(system.agents, system.store)
        """The gateway process runs it."""
        self.replays = anyio.Lock()
        """Held while recorded programs are replayed."""
        self.is_closing = False
        """Whether the gateway shuts down: running turns end, and new ones are rejected."""
        self.generated_token = generated_token
        self.sign_in = SignIn(system.store, self._credentials)
        if system.config.gateway.auth_mode == "token" and not self.token:
            raise ConfigError("gateway.auth.token", "is not set, and none was generated")

    @property
    def token(self) -> str:
        return self.system.config.gateway.token or self.generated_token

    def _credentials(self) -> list[Credential]:
        named = self.system.config.gateway.named_tokens
        return [
            Credential(token=self.token, scopes=frozenset(("admin",))),
            *(Credential(token=it.token, scopes=it.scopes) for it in named),
        ]


async def _get_state(request: Request) -> GatewayState:
    # Async, because FastAPI would run a plain function in a thread.
    return cast("GatewayState", request.app.state.gateway)


State = Annotated[GatewayState, Depends(_get_state)]


class JsonRoute(APIRoute):
    """A route that decodes its body as strict JSON: no NaN, no lone surrogates, limited depth."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_JsonRequest(request.scope, request.receive))

        return handle


class _JsonRequest(Request):
    async def json(self) -> Any:
        try:
            return await decode_off_loop(await self.body(), max_parts=MAX_BODY_PARTS)
        except TooLargeError as error:
            raise ApiError(413, f"the body {error.problem}; send less at a time") from None
        except NotJsonError as error:
            raise ApiError(400, f"the body {error.problem}", path="body") from None


JsonMap = dict[str, JsonValue]
OpaqueJson = Annotated[Any, Field(json_schema_extra={"description": "Any JSON value."})]
"""A value of a tool or program. It is JSON already and is not validated."""
OpaqueMap = dict[str, OpaqueJson]


class ResponseModel(BaseModel):
    """Base of all models in responses. Names are in camelCase on the wire."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )


class RequestModel(BaseModel):
    """Base of all models in requests. Names are in camelCase on the wire."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
    )


class ErrorDetail(ResponseModel):
    """Describes an error."""

    code: str
    """A code for programs."""
    message: str
    """A message for people: what failed, which value, and how to fix it."""
    path: str | None = None
    """The invalid part of the request, such as `body.results[0].callId`."""


class ErrorResponse(ResponseModel):
    """The body of all error responses."""

    error: ErrorDetail


_DESCRIPTIONS: Final = {
    400: "The request is invalid.",
    401: "The token is missing or wrong.",
    403: "The origin of the web page is not allowed, or the token lacks a scope.",
    404: "There is no such resource.",
    408: "The body was not complete in time.",
    409: "The run or approval has already ended, or the request conflicts with an earlier one.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "The Host header does not name this gateway.",
    422: "A member of the request is invalid; `path` names it.",
    429: "Too many requests at a time; retry after `Retry-After` seconds.",
    500: "The gateway failed.",
    503: "The gateway or its database is not available.",
}
_COMMON_STATUSES: Final = (400, 401, 403, 408, 413, 421, 422, 500, 503)


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses=`: the error responses of every route, and these."""
    chosen = sorted({*_COMMON_STATUSES, *statuses})
    return responses_with_body(ErrorResponse, {it: _DESCRIPTIONS[it] for it in chosen})


def responses_with_body(
    model: type[BaseModel], descriptions: Mapping[int, str]
) -> dict[int | str, dict[str, Any]]:
    """For `responses=`: the same body for several statuses.

    Only the first one has the model itself, which adds its schema to the document. FastAPI builds
    a validator for each model of each route, which takes a long time when the gateway starts.
    """
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    body = {"content": {"application/json": {"schema": schema}}}
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": description, **body} for status, description in descriptions.items()
    }
    first = next(iter(descriptions))
    responses[first] = {"description": descriptions[first], "model": model}
    return responses


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPattern:
    """A pattern for a `str` in an `Annotated`, with a message that describes it in words."""

    pattern: str
    """The whole text must match it. Part of /openapi.json."""
    words: str
    """What is allowed; follows "must be"."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: "GetCoreSchemaHandler"
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        return {**handler(schema), "pattern": f"^({self.pattern})$"}

    def _validate(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise PydanticCustomError("text_pattern", "must be {words}", {"words": self.words})
        return text


BODY_SECONDS: Final = 60.0


class BodyLimit:
    """Rejects a body that is too large, or not complete in time. Uses its announced length, if it
    has one."""

    def __init__(
        self, app: ASGIApp, state: GatewayState, *, body_seconds: float = BODY_SECONDS
    ) -> None:
        self._app = app
        self._state = state
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        max_bytes = self._state.system.config.gateway.max_body_bytes
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > max_bytes:
            await error_response(scope, _too_large_error(max_bytes))(scope, receive, send)
            return
        await self._app(scope, _LimitedReceive(receive, max_bytes, self._body_seconds), send)


class _LimitedReceive:
    """A `receive` that counts the bytes of the body."""

    def __init__(self, receive: Receive, max_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._deadline: float | None = None
        self._bytes = 0
        self._is_complete = False

    async def __call__(self) -> Message:
        if self._is_complete:
            # Only a disconnect can follow.
            return await self._receive()
        message = await self._receive_in_time()
        self._bytes += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._bytes > self._max_bytes:
            raise _too_large_error(self._max_bytes)
        return message

    async def _receive_in_time(self) -> Message:
        if self._deadline is None:
            self._deadline = anyio.current_time() + self._seconds
        try:
            with anyio.fail_after(self._deadline - anyio.current_time()):
                return await self._receive()
        except TimeoutError:
            raise ApiError(
                408, f"the body was not complete within {self._seconds:g} seconds"
            ) from None


def _too_large_error(max_bytes: int) -> ApiError:
    return ApiError(413, f"the body is larger than {max_bytes} bytes; see `gateway.maxBodyBytes`")


_KIND: Final = "idempotency_key"
_KEEP_SECONDS: Final = 24 * 3600.0


class StartRun(Protocol):
    """Starts a run with this id. If it is repeated, the run may have been started before."""

    async def __call__(self, run_id: str, /, *, is_repeated: bool) -> "JsonObject": ...


class IdempotencyKeys:
    """The keys of the last 24 hours, with the first response to each. They are stored, so they are
    known after a restart, and to other gateways."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._running: dict[str, anyio.Event] = {}

    async def run_once(self, key: str, body: "JsonObject", act: StartRun) -> "JsonObject":
        """Call `act`, or return what the first call with this key returned.

        A second request with the same key waits for the first. If it is not known whether the first
        one took effect, `act` is called again with the same run id. If `act` raises, the key can be
        used again. Raises ApiError if the key was used with another body.
        """
        stored_key = hashlib.sha256(key.encode()).hexdigest()
        while stored_key in self._running:
            await self._running[stored_key].wait()
        self._running[stored_key] = anyio.Event()
        try:
            return await self._run(stored_key, body, act)
        finally:
            self._running.pop(stored_key).set()

    async def _run(self, key: str, body: "JsonObject", act: StartRun) -> "JsonObject":
        value: JsonObject = {
            "body": hashlib.sha256(encode_json(body)).hexdigest(),
            "runId": new_run_id(),
        }
        known = await self._store.add_value(_KIND, key, value, seconds=_KEEP_SECONDS)
        if known is not None:
            if known.get("body") != value["body"]:
                raise ApiError(
                    409, "this idempotency key was used with another request; use a new one"
                )
            response = known.get("response")
            if isinstance(response, dict):
                return response
            value = known
        try:
            response = await act(str(value["runId"]), is_repeated=known is not None)
        except BaseException as error:
            if known is None and self._was_refused(error):
                with anyio.CancelScope(shield=True):
                    await self._store.delete_value(_KIND, key)
            raise
        try:
            await self._store.put_value(
                _KIND, key, {**value, "response": response}, seconds=_KEEP_SECONDS
            )
        except StorageError as error:
            # The action took effect, so its response counts.
            logger.warning("an idempotency key could not be stored: %s", error)
        return response

    def _was_refused(self, error: BaseException) -> bool:
        """Whether no message was taken. With several gateways, it may be in an inbox."""
        is_certain = isinstance(error, (NacreError, ApiError)) and not isinstance(
            error, StorageError
        )
        return is_certain or self._store.cluster is None
