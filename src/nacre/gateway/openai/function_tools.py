"""The tools that a client offers, and what it may say about their use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.agent import ClientTool
from nacre.gateway.openai.conversation import refused, shown_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject, JsonValue


def client_tool(*, name: str, description: str | None, parameters: JsonObject | None) -> ClientTool:
    if parameters is None:
        return ClientTool(name=name, description=description or "")
    return ClientTool(name=name, description=description or "", parameters=parameters)


def offered_tools(tools: Sequence[ClientTool], choice: JsonValue) -> tuple[ClientTool, ...]:
    """The tools that the run has of the client; raises ApiError for what cannot be done."""
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            raise refused(f"tools[{index}]", f"is a second tool named {shown_value(tool.name)}")
        seen.add(tool.name)
    match choice:
        case None | "auto":
            return tuple(tools)
        case "none":
            return ()
        case _:
            raise refused(
                "tool_choice",
                f'is {shown_value(choice)}; allowed: "auto" and "none". The agent has tools of '
                "its own, and which of them it calls is up to it",
            )


def refuse_kind(path: str, kind: str) -> None:
    """Only functions are a client's to run."""
    if kind != "function":
        raise refused(
            path,
            f'is {shown_value(kind)}; only "function" tools can be offered. Other tools are the '
            "agent's own: they are set up in the configuration of the gateway",
        )
