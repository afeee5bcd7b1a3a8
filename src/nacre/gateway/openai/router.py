"""The routes under `/v1`, compatible with OpenAI's API."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from nacre.bootstrap import System
from nacre.gateway.auth import caller_rights
from nacre.gateway.errors import OPENAI_PREFIX, ApiError
from nacre.gateway.events import EventStreamResponse
from nacre.gateway.openai.chat import (
    ChatCompletionRequest,
    ChatStream,
    chat_completion,
    chat_turn_input,
    create_chat_head,
)
from nacre.gateway.openai.responses import (
    ResponseLog,
    ResponsesRequest,
    ResponseStream,
    create_response_head,
    responses_turn_input,
    run_id_of,
)
from nacre.gateway.openai.run_starter import RunStarter, WaitingRuns
from nacre.gateway.openai.turns import (
    AnswerStream,
    choose_model,
    complete_response,
    model_to_json,
    models_to_json,
)
from nacre.gateway.routing import BEARER, JsonRoute, responses_with_body
from nacre.json_types import JsonObject


class OpenAiErrorDetail(BaseModel):
    """Describes an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAiErrorResponse(BaseModel):
    """An error response in OpenAI's format."""

    error: OpenAiErrorDetail


ERRORS: Final = responses_with_body(
    OpenAiErrorResponse,
    {
        400: "The request is invalid; `param` names the member.",
        401: "The token is missing or wrong.",
        403: "The origin of the web page is not allowed, or the token lacks a scope.",
        404: "There is no such model or response.",
        408: "The body was not complete in time.",
        409: "The previous response is not complete yet.",
        413: "The body is too large.",
        421: "The Host header does not name this gateway.",
        429: "Too many requests at a time, or the limit of the model's provider is reached.",
        500: "The run failed, or exceeded a limit.",
        502: "The model's provider failed.",
        503: "The provider is busy, or the run was aborted.",
    },
)
_EVENT: Final = {
    "type": "object",
    "required": ["data"],
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
}
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The answer; with `stream`, server-sent events.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"schema": _EVENT},
        },
    },
    **ERRORS,
}


SessionKey = Annotated[
    str, Header(alias="x-nacre-session-key", description="Your name for a stored session.")
]


@dataclass(frozen=True, kw_only=True)
class OpenAiApi:
    """What the routes need: the system, the start of runs, and the stored responses."""

    system: System
    starter: RunStarter
    log: ResponseLog


def create_openai_api(system: System) -> OpenAiApi:
    # Half of the allowed runs, so that clients that never return cannot block all others.
    waiting = WaitingRuns(
        max_runs=lambda: system.config.gateway.max_concurrent_runs // 2, system=system
    )
    return OpenAiApi(
        system=system, starter=RunStarter(system, waiting), log=ResponseLog(system.store)
    )


async def _get_api(request: Request) -> OpenAiApi:
    return cast("OpenAiApi", request.app.state.openai)


Api = Annotated[OpenAiApi, Depends(_get_api)]


class OpenAiRoute(JsonRoute):
    """A route that reports an invalid body with status 400 instead of 422."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                raise _bad_request(error.errors()) from None

        return handle


def _bad_request(problems: Sequence[Mapping[str, Any]]) -> ApiError:
    first = problems[0]
    path = _format_path(first["loc"])
    if not path:
        return ApiError(400, "the body must be a JSON object, sent as application/json")
    return ApiError(400, f"`{path}`: {first['msg']}", path=path)


def _format_path(location: Sequence[str | int]) -> str:
    path = ""
    for step in location[1:]:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not _is_alternative(step):
            path += f".{step}" if path else step
    return path


def _is_alternative(step: str) -> bool:
    """Whether pydantic added the step to name one type of a union."""
    return step == "str" or step.startswith("list[") or step[:1].isupper()


# It has its own prefix, so that metrics show the whole paths.
router = APIRouter(
    prefix=OPENAI_PREFIX,
    route_class=OpenAiRoute,
    tags=["OpenAI"],
    responses=ERRORS,
    dependencies=[BEARER],
)


@router.get("/models", summary="List agents and models")
async def models(api: Api) -> dict[str, Any]:
    return models_to_json(api.system)


@router.get("/models/{model:path}", summary="Get an agent or model")
async def model(api: Api, model: str) -> dict[str, Any]:
    return model_to_json(choose_model(api.system, model).name)


@router.post("/chat/completions", summary="Create a chat completion", responses=RESPONSES)
async def chat_completions(
    api: Api, request: Request, body: ChatCompletionRequest, session_key: SessionKey = ""
) -> Response:
    choice = choose_model(api.system, body.model)
    rights = caller_rights(request.scope)
    turn_input = chat_turn_input(body, choice, session_key=session_key)
    answer = await api.starter.start(replace(turn_input, rights=rights))
    head = create_chat_head(answer, body.model)
    if not body.stream:
        return await complete_response(request, answer, lambda: chat_completion(answer, head))
    options = body.stream_options
    stream = ChatStream(answer, head, includes_usage=bool(options and options.include_usage))
    return _stream_response(answer, stream)


@router.post("/responses", summary="Create a response", responses=RESPONSES)
async def responses(
    api: Api, request: Request, body: ResponsesRequest, session_key: SessionKey = ""
) -> Response:
    choice = choose_model(api.system, body.model)
    rights = caller_rights(request.scope)
    turn_input = responses_turn_input(body, choice, session_key=session_key)
    answer = await api.starter.start(replace(turn_input, rights=rights))
    keep = api.log.keep if body.is_kept else _keep_nothing
    stream = ResponseStream(answer, create_response_head(answer, body), keep=keep)
    if not body.stream:
        return await complete_response(request, answer, stream.complete)
    return _stream_response(answer, stream)


@router.get("/responses/{response_id}", summary="Get a response")
async def response(api: Api, response_id: str) -> Response:
    return JSONResponse(await api.log.response(response_id))


@router.post("/responses/{response_id}/cancel", summary="Cancel a response")
async def cancel(api: Api, response_id: str) -> Response:
    await api.log.response(response_id)
    run_id = run_id_of(response_id)
    run = await api.system.agents.find_run(run_id, for_change=True)
    was_aborted = run is not None and await run.abort("the response was cancelled")
    wire = await api.log.response(response_id)
    if was_aborted:
        wire["status"] = "cancelled"
    return JSONResponse(wire)


def _stream_response(answer: AnswerStream, stream: ChatStream | ResponseStream) -> Response:
    return EventStreamResponse(
        stream.events(),
        headers=answer.headers,
        error_event=stream.encode_error,
        on_close=answer.close,
    )


def _keep_nothing(response: JsonObject) -> None:
    """For requests with `store: false`."""
