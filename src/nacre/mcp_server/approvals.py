"""Approvals as questions of a form, and what a client without forms is told instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.mcp_server.display import escape_start, format_input
from nacre.tools import AllowAlways, AllowOnce, Deny

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools import ApprovalRequest
    from nacre.tools.approvals.requests import ApprovalDecision

_MAX_TEXT_CHARACTERS: Final = 1_000
_CHOICES: Final = {
    "allow-once": "Allow once",
    "allow-always": "Allow, and do not ask again for the same input",
    "deny": "Do not allow",
}


def approval_form(request: ApprovalRequest) -> JsonObject:
    """The parameters of the elicitation that asks a person about a call.

    Raises UnshowableInputError: nobody is to approve what they cannot see.
    """
    return {
        "mode": "form",
        "message": _message(request),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Decision",
                    "enum": list(_CHOICES),
                    "enumNames": list(_CHOICES.values()),
                }
            },
            "required": ["decision"],
        },
    }


def parse_decision(answer: JsonObject) -> ApprovalDecision:
    """What the person decided; everything but a clear yes is a no."""
    if answer.get("action") != "accept":
        return Deny("the person declined" if answer.get("action") == "decline" else "dismissed")
    content = answer.get("content")
    match content.get("decision") if isinstance(content, dict) else None:
        case "allow-once":
            return AllowOnce()
        case "allow-always":
            return AllowAlways()
        case "deny":
            return Deny("the person declined")
        case _:
            return Deny("the client sent no decision")


def awaited_approvals(requests: Sequence[ApprovalRequest], *, can_be_asked: bool) -> JsonObject:
    """What a `waiting` result says about the approvals that it waits for."""
    listed: list[JsonValue] = [
        {"id": request.id, "toolId": request.tool_id, "reason": request.reason}
        for request in requests
    ]
    return {"approvals": listed, "howToContinue": _how_to_continue(can_be_asked)}


def _how_to_continue(can_be_asked: bool) -> str:
    if can_be_asked:
        return "Call wait with the runId: the user is asked for the approvals then."
    # No second way to answer: whatever a process of the user could do, a hostile server could do.
    return (
        "This MCP client cannot ask for approvals (it has no elicitation): the call is not made. "
        "Tell the user to use a client that can ask, or not to require the approval."
    )


def _message(request: ApprovalRequest) -> str:
    reason = f"\nWhy you are asked: {_shorten(request.reason)}" if request.reason else ""
    return (
        f"A program wants to call {_shorten(request.tool_id)}{reason}\n"
        f"Input: {format_input(request.input)}"
    )


def _shorten(text: str) -> str:
    return escape_start(text, most_characters=_MAX_TEXT_CHARACTERS)
