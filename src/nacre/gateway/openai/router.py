"""The routes under `/v1`, compatible with OpenAI's API."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from nacre.bootstrap import System
from nacre.gateway.errors import OPENAI_PREFIX, ApiError
from nacre.gateway.openai.chat_output import ChatStream, chat_completion, chat_head
from nacre.gateway.openai.chat_request import ChatRequest, chat_ask
from nacre.gateway.openai.models import model_choice, model_to_json, models_to_json
from nacre.gateway.openai.parked_runs import ParkedRuns
from nacre.gateway.openai.responses_output import ResponseLog, ResponseStream, response_head
from nacre.gateway.openai.responses_request import ResponsesRequest, responses_ask, run_id_of
from nacre.gateway.openai.run_answers import RunAnswer, whole_answer
from nacre.gateway.openai.run_starter import RunStarter
from nacre.gateway.routing import JsonRoute
from nacre.gateway.sse import EventStreamResponse
from nacre.json_types import JsonObject


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


SessionKey = Annotated[
    str, Header(alias="x-nacre-session-key", description="Names a session that is kept.")
]


def openai_router(system: System) -> APIRouter:
    """Its prefix is its own: the paths of its routes are whole, as metrics tell them."""
    # Half of what may run: clients that never come back must not keep all others out.
    parked = ParkedRuns(most=lambda: system.config.gateway.max_concurrent_runs // 2)
    router = APIRouter(
        prefix=OPENAI_PREFIX, route_class=OpenAiRoute, tags=["OpenAI"], responses=ERRORS
    )
    starter = RunStarter(system, parked)
    _add_models(router, system)
    _add_chat(router, system, starter)
    _add_responses(router, system, starter)
    return router


def _add_models(router: APIRouter, system: System) -> None:
    @router.get("/models", summary="The agents, and the models that they can use")
    async def models() -> dict[str, Any]:
        return models_to_json(system)

    @router.get("/models/{model:path}", summary="One agent or model")
    async def model(model: str) -> dict[str, Any]:
        return model_to_json(model_choice(system, model).name)


def _add_chat(router: APIRouter, system: System, starter: RunStarter) -> None:
    @router.post("/chat/completions", summary="A turn of an agent", responses=ANSWERS)
    async def chat_completions(
        request: Request, body: ChatRequest, session_key: SessionKey = ""
    ) -> Response:
        choice = model_choice(system, body.model)
        answer = await starter.begin(chat_ask(body, choice, session_key=session_key))
        head = chat_head(answer, body.model)
        if not body.stream:
            return await whole_answer(request, answer, lambda: chat_completion(answer, head))
        options = body.stream_options
        stream = ChatStream(answer, head, tells_usage=bool(options and options.include_usage))
        return _stream_response(answer, stream)


def _add_responses(router: APIRouter, system: System, starter: RunStarter) -> None:
    log = ResponseLog(system.store)

    @router.post("/responses", summary="A turn of an agent", responses=ANSWERS)
    async def responses(
        request: Request, body: ResponsesRequest, session_key: SessionKey = ""
    ) -> Response:
        choice = model_choice(system, body.model)
        answer = await starter.begin(responses_ask(body, choice, session_key=session_key))
        keep = log.keep if body.is_kept else _keep_nothing
        stream = ResponseStream(answer, response_head(answer, body), keep=keep)
        if not body.stream:
            return await whole_answer(request, answer, stream.whole)
        return _stream_response(answer, stream)

    @router.get("/responses/{response_id}", summary="A response that was given")
    async def response(response_id: str) -> Response:
        return JSONResponse(await log.response(response_id))

    @router.post("/responses/{response_id}/cancel", summary="End the run of a response")
    async def cancel(response_id: str) -> Response:
        await log.response(response_id)
        is_cut = await system.agents.abort(run_id_of(response_id), "the response was cancelled")
        wire = await log.response(response_id)
        if is_cut:
            wire["status"] = "cancelled"
        return JSONResponse(wire)


def _stream_response(answer: RunAnswer, stream: ChatStream | ResponseStream) -> Response:
    return EventStreamResponse(
        stream.events(),
        headers=answer.headers,
        error_event=stream.failed,
        on_close=answer.close,
    )


def _keep_nothing(response: JsonObject) -> None:
    """The client wants nothing kept."""


class OpenAiRoute(JsonRoute):
    """A body that does not fit is a bad request: 400, where our own API says 422."""

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
        return ApiError(400, "the body has to be a JSON object, sent as application/json")
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
    """Where a member may be of several types, pydantic names the one that it tried."""
    return step == "str" or step.startswith("list[") or step[:1].isupper()
