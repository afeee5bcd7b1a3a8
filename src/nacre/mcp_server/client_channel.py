"""Progress and requests that the server sends to its MCP client during a request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, assert_never

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, ValidationError

from nacre.errors import NacreError

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext

    from nacre.json_types import JsonObject


QuestionMethod = Literal["elicitation/create", "sampling/createMessage", "roots/list"]
ClientFeature = Literal["form", "url", "sampling", "sampling-tools", "roots"]
"""What a client supports: forms, opening pages, sampling, sampling with tools, roots."""


class ClientRefusedError(NacreError):
    """The client does not support the question, or refused it. The message says why."""


class ClientQuestion:
    """One request to the client. It is open until it is answered, refused or withdrawn."""

    def __init__(self, method: QuestionMethod, params: JsonObject) -> None:
        self.id = f"question_{os.urandom(8).hex()}"
        self.method: QuestionMethod = method
        self.params = params
        self._answer: JsonObject | None = None
        self._refusal = ""
        self._is_settled = anyio.Event()

    @property
    def is_settled(self) -> bool:
        return self._is_settled.is_set()

    def answer(self, answer: JsonObject) -> None:
        """Set the answer. Only the first answer or refusal counts."""
        if not self.is_settled:
            self._answer = answer
            self._is_settled.set()

    def refuse(self, reason: str) -> None:
        if not self.is_settled:
            self._refusal = reason
            self._is_settled.set()

    async def wait_until_settled(self) -> None:
        await self._is_settled.wait()

    async def wait(self) -> JsonObject:
        """Wait for the answer. Raises ClientRefusedError."""
        await self._is_settled.wait()
        if self._answer is None:
            raise ClientRefusedError(self._refusal)
        return self._answer


class _RawAnswer(BaseModel):
    """An answer with all keys that the client sent, including unknown ones."""

    model_config = ConfigDict(extra="allow")


class ClientChannel:
    """The connection to the client, for all protocol versions.

    Up to 2025-11-25, a server sends requests to its client (`is_two_way`). Since 2026-07-28, the
    server returns its questions as the result, and the client repeats the request with the answers
    (`takes_questions`). A client without a session supports neither.
    """

    def __init__(self, context: ServerRequestContext[Any, Any]) -> None:
        self._session = context.session
        self._request_id = context.request_id
        self.takes_questions = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        self.is_two_way = not self.takes_questions and context.session.can_send_request

    @property
    def features(self) -> frozenset[ClientFeature]:
        """The features that the client has announced."""
        offered = self._session.client_capabilities
        if offered is None or not (self.is_two_way or self.takes_questions):
            return frozenset()
        return frozenset(
            (
                *_elicitation_features(offered.elicitation),
                *_sampling_features(offered.sampling),
                *(() if offered.roots is None else ("roots",)),
            )
        )

    async def report_progress(self, number: int, message: str) -> None:
        """Send progress, if the client requested it."""
        await self._session.report_progress(number, None, message)

    async def ask(self, question: ClientQuestion) -> JsonObject:
        """Send a question and return the answer. Raises ClientRefusedError. Needs `is_two_way`."""
        try:
            answer = await self._session.send_request(
                request_for(question),
                _RawAnswer,
                # On HTTP, it has to use the stream of an open request.
                metadata=ServerMessageMetadata(related_request_id=self._request_id),
            )
        except MCPError as error:
            raise ClientRefusedError(f"the client answered: {error.message}") from error
        except ValidationError as error:
            raise ClientRefusedError(
                f"the client's answer to {question.method} is invalid"
            ) from error
        return answer.model_dump(mode="json", by_alias=True)


def request_for(question: ClientQuestion) -> types.InputRequest:
    """Convert a question to a request of the SDK. Raises ClientRefusedError if it is malformed."""
    wire = {"method": question.method, "params": question.params}
    try:
        match question.method:
            case "elicitation/create":
                return types.ElicitRequest.model_validate(wire, by_name=False)
            case "sampling/createMessage":
                return types.CreateMessageRequest.model_validate(wire, by_name=False)
            case "roots/list":
                return types.ListRootsRequest.model_validate(wire, by_name=False)
            case _:
                assert_never(question.method)
    except ValidationError as error:
        raise ClientRefusedError(
            f"the {question.method} request of the server is malformed: {_first_problem(error)}"
        ) from error


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _elicitation_features(
    offered: types.ElicitationCapability | None,
) -> tuple[ClientFeature, ...]:
    if offered is None:
        return ()
    # In older versions, an empty object means forms.
    has_form = offered.form is not None or offered.url is None
    return (*(("form",) if has_form else ()), *(("url",) if offered.url is not None else ()))


def _sampling_features(offered: types.SamplingCapability | None) -> tuple[ClientFeature, ...]:
    if offered is None:
        return ()
    return ("sampling",) if offered.tools is None else ("sampling", "sampling-tools")
