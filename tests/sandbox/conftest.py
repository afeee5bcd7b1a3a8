"""A sandbox for tests, and a handler whose answers a test controls."""

from collections.abc import AsyncIterator

import anyio
import pytest

from nacre.errors import HostRequestError
from nacre.json_types import JsonValue
from nacre.sandbox import HostRequest, Sandbox, SandboxOptions


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    """One sandbox for a whole file, with two workers: no test may spoil it for the next."""
    async with Sandbox(SandboxOptions(workers=2)) as sandbox:
        yield sandbox


class HeldHandler:
    """Records requests and answers each when the test lets it."""

    def __init__(self) -> None:
        self.requests: list[HostRequest] = []
        self.cancelled: list[int] = []
        self._arrived = anyio.Event()
        self._gates: dict[int, anyio.Event] = {}
        self._answers: dict[int, JsonValue | HostRequestError] = {}

    async def __call__(self, request: HostRequest) -> JsonValue:
        self.requests.append(request)
        gate = self._gates.setdefault(request.id, anyio.Event())
        self._arrived.set()
        try:
            await gate.wait()
        except BaseException:
            self.cancelled.append(request.id)
            raise
        answer = self._answers[request.id]
        if isinstance(answer, HostRequestError):
            raise answer
        return answer

    def answer(self, request_id: int, answer: JsonValue | HostRequestError) -> None:
        """Let the request of this id go, now or when it comes."""
        self._answers[request_id] = answer
        self._gates.setdefault(request_id, anyio.Event()).set()

    async def received(self, count: int) -> None:
        """Wait until so many requests have come in."""
        with anyio.fail_after(50):
            while len(self.requests) < count:
                self._arrived = anyio.Event()
                await self._arrived.wait()


@pytest.fixture
def held() -> HeldHandler:
    """A handler that holds every request."""
    return HeldHandler()
