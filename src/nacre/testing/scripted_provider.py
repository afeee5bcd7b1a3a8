"""A model provider that answers from a script, over HTTP and in the real wire formats.

`python -m nacre.testing.scripted_provider --script FILE` runs it as a separate process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Self, TypeGuard, cast

from nacre.testing.http_server import serving
from nacre.testing.script import Part, Script, Turn, parts_of, script_fault
from nacre.testing.scripted_app import ScriptedApp

if TYPE_CHECKING:
    from types import TracebackType

    from nacre.testing.script import RecordedRequest

_HINT: Final = "add a turn to the script, or find out why there was one more request"


class ScriptedProvider:
    """An HTTP server on loopback, for use with `async with`. It supports concurrent clients.

    `script` is a list of turns, or a function that answers every request. `script_for` returns the
    name of a request's conversation. Each conversation then plays the script from the start, or its
    own script, if `script` is a mapping by these names. An exception of a function in the script,
    such as an assertion, is raised again at the end of the block.
    """

    def __init__(
        self,
        script: Script | Mapping[str, Script],
        *,
        script_for: Callable[[RecordedRequest], str] | None = None,
        models: Sequence[str] = ("scripted",),
        port: int = 0,
    ) -> None:
        self.requests: list[RecordedRequest] = []
        """All requests, oldest first."""
        if _is_by_key(script) and script_for is None:
            raise ValueError("a mapping of scripts needs `script_for`, which selects one")
        self._script = script
        self._script_for = script_for
        self._played: defaultdict[str, int] = defaultdict(int)
        self._first_error: Exception | None = None
        self._app = ScriptedApp(turn=self._next_turn, requests=self.requests, models=models)
        self._port = port
        self._url = ""
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """The base URL without `/v1`, for clients of Anthropic."""
        if not self._url:
            raise RuntimeError("the scripted provider is not running; use `async with`")
        return self._url

    @property
    def openai_url(self) -> str:
        """The base URL for clients of OpenAI."""
        return f"{self.url}/v1"

    async def __aenter__(self) -> Self:
        self._url = await self._stack.enter_async_context(serving(self._app, port=self._port))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
        self._url = ""
        if error is None and self._first_error is not None:
            raise self._first_error

    def _next_turn(self, request: RecordedRequest) -> tuple[Part, ...]:
        try:
            request.key = self._script_for(request) if self._script_for else ""
            return self._turn_of(request)
        except Exception as error:
            # The functions are code of the test, so the test gets their exceptions.
            self._first_error = self._first_error or error
            problem = f"the script failed: {type(error).__name__}: {error}"
            return (script_fault(problem),)

    def _turn_of(self, request: RecordedRequest) -> tuple[Part, ...]:
        script = self._script_of(request.key)
        if script is None:
            return (script_fault(self._no_script_for(request.key)),)
        if not isinstance(script, Sequence):
            return parts_of(script, request)
        turns = cast("Sequence[Turn]", script)
        index = self._played[request.key]
        if index >= len(turns):
            owner = f" of {request.key!r}" if request.key else ""
            problem = f"the script{owner} has only {len(turns)} turns"
            return (script_fault(f"{problem}; {_HINT}"),)
        self._played[request.key] += 1
        return parts_of(turns[index], request)

    def _script_of(self, key: str) -> Script | None:
        script = self._script
        if _is_by_key(script):
            return script.get(key)
        return cast("Script", script)

    def _no_script_for(self, key: str) -> str:
        names = self._script if _is_by_key(self._script) else ()
        known = ", ".join(repr(name) for name in names) or "none"
        return f"there is no script for the conversation {key!r}; there are: {known}"


def _is_by_key(script: Script | Mapping[str, Script]) -> TypeGuard[Mapping[str, Script]]:
    return isinstance(script, Mapping)


def main() -> None:
    # Imported here, because tests do not need the command line.
    from nacre.testing.command import run_from_command_line

    run_from_command_line()


if __name__ == "__main__":
    main()
