"""The handshake with servers of both protocol eras, and its failures."""

import pytest

from nacre.errors import ToolServerError
from tests.mcp_client.conftest import Opening
from tests.mcp_client.peers import (
    RAW_SERVER,
    Person,
    call,
    raw,
    text_of,
)


async def test_the_reason_of_a_failed_handshake_is_what_the_server_said(opening: Opening) -> None:
    old = await opening.one(raw("old"))
    with pytest.raises(ToolServerError) as failure:
        await old.tools()
    assert "uses version '1999-01-01' of MCP" in str(failure.value)
    assert "just a warning" not in str(failure.value)
    refusing = await opening.one(raw(args=(str(RAW_SERVER), "refusing", "initialize")))
    with pytest.raises(ToolServerError, match="refused the connection: no licence"):
        await refusing.tools()


async def test_a_modern_server_is_understood_when_it_refuses_the_handshake(
    opening: Opening,
) -> None:
    server = await opening.one(raw("modern"), upstream=Person())
    assert text_of(await call(server, "echo", a=1)) == '{"a": 1}'
    assert server.status().version == "modern 2"
