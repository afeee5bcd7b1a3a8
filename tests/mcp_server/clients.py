"""Clients of the SDK for tests, and what they make of a result."""

from typing import Any, Literal

from mcp import Client
from mcp.client import ClientRequestContext
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent

from nacre.json_types import JsonObject, decode_json
from nacre.mcp_server import CodeModeMcpServer

Era = Literal["legacy", "auto"]


class FormFiller:
    """Answers every elicitation the same way, and remembers what was asked."""

    def __init__(self, action: Literal["accept", "decline", "cancel"], **content: Any) -> None:
        self.asked: list[ElicitRequestParams] = []
        self._result = ElicitResult(action=action, content=content or None)

    async def __call__(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        self.asked.append(params)
        return self._result

    @property
    def messages(self) -> list[str]:
        return [params.message for params in self.asked]


class Heard:
    """Progress as a client hears it."""

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.messages: list[str | None] = []

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.numbers.append(progress)
        self.messages.append(message)


def connect(server: CodeModeMcpServer, era: Era, **options: Any) -> Client:
    """A client in this process; to be entered."""
    return Client(server.sdk_server, mode=era, cache=None, **options)


async def exec_in(client: Client, code: str, **options: Any) -> JsonObject:
    """The result of a program, as a client reads it."""
    return content_of(await client.call_tool("exec", {"code": code}, **options))


async def wait_in(client: Client, run_id: object, **options: Any) -> JsonObject:
    return content_of(await client.call_tool("wait", {"runId": run_id}, **options))


def content_of(result: CallToolResult) -> JsonObject:
    """The structured content, which has to be in the text as well."""
    assert result.structured_content == decode_json(text_of(result).encode())
    return result.structured_content


def text_of(result: CallToolResult) -> str:
    (part,) = result.content
    assert isinstance(part, TextContent)
    return part.text
