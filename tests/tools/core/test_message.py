"""Messages to the people of a session."""

import pytest

from nacre.run_context import RunContext
from nacre.tools.core.core_tools import MessageProblem, message_tool
from tests.tools.core.tool_calls import Calls


class Channel:
    """Keeps what was sent, and for whom."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    async def send(self, text: str, context: RunContext, /) -> None:
        self.sent.append((text, context.session_id))


async def test_a_message_goes_to_the_channel_of_the_session() -> None:
    channel = Channel()
    calls = Calls([message_tool(channel)])
    result = await calls.call("message", text="half way", session_id="session_7")
    assert (channel.sent, calls.updates) == ([("half way", "session_7")], [])
    assert result == {"sentTo": "the session"}


async def test_without_a_channel_whoever_follows_the_run_sees_it() -> None:
    calls = Calls([message_tool(None)])
    assert await calls.call("message", text="half way") == {"sentTo": "whoever follows the run"}
    assert calls.updates == [{"message": "half way"}]


async def test_an_empty_message_is_not_sent() -> None:
    calls = Calls([message_tool(None)])
    with pytest.raises(MessageProblem, match="text is empty"):
        await calls.call("message", text=" \n")
    assert calls.updates == []
