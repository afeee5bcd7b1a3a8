"""Questions for the MCP client and whoever sits before it, and their answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import anyio

from nacre.errors import NacreError

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

QuestionMethod = Literal["elicitation/create", "sampling/createMessage", "roots/list"]
ClientFeature = Literal["form", "url", "sampling", "sampling-tools", "roots"]
"""What a client can be asked: to show a form, to open a page, to sample, to list its roots."""


class ClientRefusedError(NacreError):
    """The client cannot be asked, or would not answer; the message says which and why."""


class ClientQuestion:
    """One request to the client. It stays open until it is answered, refused or withdrawn."""

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
        """The first answer or refusal counts."""
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
        """The client's answer; raises ClientRefusedError."""
        await self._is_settled.wait()
        if self._answer is None:
            raise ClientRefusedError(self._refusal)
        return self._answer
