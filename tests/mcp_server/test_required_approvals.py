"""`requireApproval` of a server."""

import pytest

from nacre import AskApproval, BeforeToolCall, RunContext
from nacre.config.mcp import McpServerConfig
from nacre.mcp_server.required_approvals import required_approvals


def config(name: str, *patterns: str) -> McpServerConfig:
    return McpServerConfig(name=name, transport="stdio", command="x", require_approval=patterns)


def answer_for(tool_id: str) -> object:
    configs = [config("git", "push*", "reset"), config("files", "*"), config("time")]
    hook = required_approvals(configs)["before_tool_call"]
    return hook(
        BeforeToolCall(
            tool_id=tool_id,
            tool_name=tool_id.split(":")[-1],
            input={},
            call_id="c",
            parent_id="p",
            context=RunContext(),
        )
    )


@pytest.mark.parametrize(
    "tool_id",
    ["mcp:git:push_all", "mcp:git:reset", "mcp:files:read", "mcp:files:$resources.read"],
)
def test_a_tool_that_matches_needs_an_approval(tool_id: str) -> None:
    answer = answer_for(tool_id)
    assert isinstance(answer, AskApproval)
    assert "configuration" in answer.reason


@pytest.mark.parametrize(
    "tool_id",
    ["mcp:git:log", "mcp:git:Push", "mcp:time:now", "mcp:other:push", "openclaw:files:read"],
)
def test_other_tools_need_none(tool_id: str) -> None:
    assert answer_for(tool_id) is None
