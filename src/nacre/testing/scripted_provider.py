"""A model provider without a model: answers over HTTP, from a script, in the real wire formats.

`python -m nacre.testing.scripted_provider --script FILE` runs it as a process of its own.
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

_HOW_TO_GO_ON: Final = "give the script one more turn, or find out why it was asked once more"


class ScriptedProvider:
    """An HTTP server on loopback; an async context manager. Serves many clients at once.

    `script` is a list of turns, or a function that answers every request. With `script_for`, which
    names the conversation of a request, each conversation plays the script from its beginning; or a
    script of its own, if `script` is a mapping by those names. What a function of the script
    raises, an assertion say, is raised once more at the end of the block.
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
        """All that came, oldest first."""
        if _is_by_key(script) and script_for is None:
            raise ValueError("scripts by conversation need `script_for`, which tells them apart")
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
        """The address without `/v1`, as Anthropic's clients want it."""
        if not self._url:
            raise RuntimeError("the scripted provider does not run: use `async with`")
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
            # Functions of the script are a test's own code: whatever they raise is for the test.
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
            whose = f" of {request.key!r}" if request.key else ""
            problem = f"the script{whose} is used up after {len(turns)} turns"
            return (script_fault(f"{problem}; {_HOW_TO_GO_ON}"),)
        self._played[request.key] += 1
        return parts_of(turns[index], request)

    def _script_of(self, key: str) -> Script | None:
        script = self._script
        if _is_by_key(script):
            return script.get(key)
        return cast("Script", script)

    def _no_script_for(self, key: str) -> str:
        names = self._script if _is_by_key(self._script) else ()
        there_are = ", ".join(repr(name) for name in names) or "none"
        return f"there is no script for the conversation {key!r}; there are: {there_are}"


def _is_by_key(script: Script | Mapping[str, Script]) -> TypeGuard[Mapping[str, Script]]:
    return isinstance(script, Mapping)


def main() -> None:
    # The command line is a small part of its own, which the library does not load.
    from nacre.testing.command import run_from_command_line

    run_from_command_line()


if __name__ == "__main__":
    main()
