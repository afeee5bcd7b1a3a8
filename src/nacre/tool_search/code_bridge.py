"""`openclaw.tools`: what a program of `tool_search_code` sees, and the answers to its requests.

A worker that hostile code has taken over can send any payload: every field is checked here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from nacre.errors import HostRequestError, ToolError
from nacre.json_types import encode_json
from nacre.sandbox import SharedData
from nacre.tool_search.control_tools import InvalidInput
from nacre.tools import CallSite

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.sandbox import HostRequest
    from nacre.telemetry import Span
    from nacre.tool_search.catalog_access import CatalogAccess
    from nacre.tool_search.program_clock import ProgramClock

_GLOBAL: Final = "openclaw"
_METHOD: Final = "namespace"
_FUNCTIONS: Final = ("search", "describe", "call")
_MAX_SHOWN_ID: Final = 120

_TOOL_FUNCTIONS: JsonObject = {"o": {name: {"f": True} for name in _FUNCTIONS}}
SHARED: Final = SharedData(
    {
        # The names of the parts, and of what is in them, are known to the guest (guest/src).
        "globals": encode_json({"only": [_GLOBAL]}),
        "namespaces": encode_json({_GLOBAL: {"o": {"tools": _TOOL_FUNCTIONS}}}),
    },
    methods=(_METHOD,),
)
"""The same for every program of every run: the catalog stays with the host."""


class CodeBridge:
    """Answers the requests of one program."""

    def __init__(
        self, access: CatalogAccess, *, clock: ProgramClock, call_id: str, span: Span
    ) -> None:
        self._access = access
        self._clock = clock
        self._call_id = call_id
        self._span = span
        self._open: dict[int, str] = {}

    async def __call__(self, request: HostRequest) -> JsonValue:
        self._clock.start()
        function, args = _parse_call(request.payload)
        self._open[request.id] = _describe_request(function, args)
        try:
            answer = await self._answer(function, args, request)
        except InvalidInput as error:
            del self._open[request.id]
            message = f"openclaw.tools.{function}: {error.message}"
            raise HostRequestError(message, name="TypeError") from error
        except ToolError as error:
            del self._open[request.id]
            raise HostRequestError(
                error.message,
                name=error.name,
                code=error.code,
                data={**error.details, "toolId": error.tool_id},
            ) from error
        # What is cancelled stays: when a program is ended, that is what it had not finished.
        del self._open[request.id]
        return answer

    @property
    def unfinished(self) -> list[str]:
        """The requests without an answer: tools that are called, or what else is asked for."""
        return list(self._open.values())

    async def _answer(
        self, function: str, args: list[JsonValue], request: HostRequest
    ) -> JsonValue:
        match function:
            case "search":
                return await self._access.search(args[0], _read_limit(args[1]))
            case "describe":
                return await self._access.describe(args[0])
            case "call":
                return await self._access.call(args[0], args[1], site=self._site(request))
            case _:
                raise InvalidInput("openclaw.tools has search, describe and call")

    def _site(self, request: HostRequest) -> CallSite:
        # For the program's clock a client is a person.
        asking = partial(self._clock.asking_person, request.asking_person)
        return CallSite(
            call_id=f"{self._call_id}.{request.id}",
            parent_id=self._call_id,
            abort=request.abort,
            asking_person=asking,
            away=asking,
            parent_span=self._span,
        )


def _describe_request(function: str, args: list[JsonValue]) -> str:
    return str(args[0])[:_MAX_SHOWN_ID] if function == "call" else f"openclaw.tools.{function}"


def _parse_call(payload: JsonValue) -> tuple[str, list[JsonValue]]:
    """Which function is called, empty for none that there is, and two arguments at least."""
    fields = payload if isinstance(payload, dict) else {}
    path, args = fields.get("path"), fields.get("args")
    given = args if isinstance(args, list) else []
    is_ours = fields.get("namespace") == _GLOBAL and isinstance(path, list) and len(path) == 2
    function = path[1] if is_ours and isinstance(path, list) and path[0] == "tools" else None
    known = function if isinstance(function, str) and function in _FUNCTIONS else ""
    return known, [*given, None, None]


def _read_limit(options: JsonValue) -> JsonValue:
    if options is None:
        return None
    if not isinstance(options, dict):
        raise InvalidInput("the options of a search are an object, such as {limit: 5}")
    return options.get("limit")
