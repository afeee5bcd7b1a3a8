"""What a person is asked about a tool call, and what may be answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from nacre.errors import ApprovalError, ToolInputError
from nacre.json_types import NotJsonError, decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext


def accept_any_input(given: JsonObject) -> JsonObject:
    """The check of a call whose input nobody checks."""
    return given


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRequest:
    """A call that waits for a yes or a no. `input` is a copy: changing it changes no call."""

    id: str
    tool_id: str
    tool_name: str
    input: JsonObject
    reason: str
    """Why somebody has to agree."""
    context: RunContext
    call_id: str
    parent_id: str
    """The call of `exec` that the call is nested in; empty for a direct call."""
    created: float
    """When it was asked, and until when an answer counts: seconds since the epoch."""
    expires: float
    check: Callable[[JsonObject], object] = field(
        default=accept_any_input, repr=False, compare=False
    )
    """Raises ToolInputError for an input that the call cannot be made with."""

    def refuse_unfit(self, edited: JsonObject) -> None:
        """Raises ApprovalError for an edited input that the call cannot be made with."""
        try:
            self.check(edited)
        except ToolInputError as error:
            raise ApprovalError(f"the edited input does not fit: {error.message}") from error


@dataclass(frozen=True, slots=True)
class AllowOnce:
    """Make the call."""


@dataclass(frozen=True, slots=True)
class AllowAlways:
    """Make the call, and do not ask again for this tool with just this input in this session."""


@dataclass(frozen=True, slots=True)
class AllowEdited:
    """Make the call with this input instead; it has to fit the tool's schema as well."""

    input: JsonObject


@dataclass(frozen=True, slots=True)
class Deny:
    """Do not make the call; the program is told why."""

    reason: str = ""


ApprovalDecision: TypeAlias = AllowOnce | AllowAlways | AllowEdited | Deny
ApprovalInfo: TypeAlias = Literal["allow-once", "allow-always", "deny"] | ApprovalDecision
"""An answer as a word or as an object."""


def parse_decision(answer: object) -> ApprovalDecision:
    """The answer as an object of its own; raises ApprovalError for what is no answer."""
    match answer:
        case "allow-once":
            return AllowOnce()
        case "allow-always":
            return AllowAlways()
        case "deny":
            return Deny()
        case AllowEdited():
            return AllowEdited(_copy_input(answer.input))
        case AllowOnce() | AllowAlways():
            return answer
        case Deny() if isinstance(cast("object", answer.reason), str):
            return answer
        case _:
            raise ApprovalError(
                f"the answer is of type {type(answer).__name__}, or a word that is not known; "
                'allowed: "allow-once", "allow-always", "deny", AllowOnce, AllowAlways, '
                "AllowEdited(input), Deny(reason)"
            )


def _copy_input(edited: object) -> JsonObject:
    if not isinstance(edited, dict):
        raise ApprovalError(f"the edited input is a {type(edited).__name__}; it has to be a dict")
    try:
        return cast("JsonObject", decode_json(encode_json(cast("object", edited))))
    except NotJsonError as error:
        raise ApprovalError(f"the edited input is not JSON: {error}") from error
