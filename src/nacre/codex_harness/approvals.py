"""Answers the approval requests of the app-server: commands, file changes, permissions, MCP tools.

Policy and hooks come first. What they permit and the settings do not, a person has to allow.
"""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from nacre.codex_harness.approval_text import describe_request
from nacre.codex_harness.elicitations import accept_elicitation, can_answer, is_tool_approval
from nacre.codex_harness.native_tools import NO_REWRITE, NativeCall, parse_native_call
from nacre.errors import ToolDefinitionError, ToolInputError
from nacre.hooks import BeforeToolCall
from nacre.json_types import get_text
from nacre.tools import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.agent import TurnContext
    from nacre.codex_harness.permissions import NativePermissions
    from nacre.json_types import JsonObject
    from nacre.tools import Approvals, ToolPolicy

logger = logging.getLogger(__name__)

COMMAND_APPROVAL: Final = "item/commandExecution/requestApproval"
FILE_APPROVAL: Final = "item/fileChange/requestApproval"
PERMISSIONS_APPROVAL: Final = "item/permissions/requestApproval"
ELICITATION: Final = "mcpServer/elicitation/request"
APPROVAL_METHODS: Final = frozenset(
    (COMMAND_APPROVAL, FILE_APPROVAL, PERMISSIONS_APPROVAL, ELICITATION)
)

_Answer: TypeAlias = Literal["once", "always", "deny", "abort"]
# They differ between two requests about the same thing.
_VOLATILE: Final = frozenset(
    (
        "threadId",
        "turnId",
        "itemId",
        "approvalId",
        "startedAtMs",
        "commandActions",
        "availableDecisions",
        "proposedExecpolicyAmendment",
        "proposedNetworkPolicyAmendments",
    )
)
_SHELL_OPTIONS: Final = ("-c", "-lc")
_MAX_ITEMS: Final = 1_000


class CallChecks(Protocol):
    """What the native hooks of the turn know of a call."""

    def has_checked(self, call_id: str, /) -> bool:
        """Whether policy and `before_tool_call` hooks have let this call pass."""
        ...

    def is_approved(self, call_id: str, /) -> bool:
        """Whether a person has approved this call, because a hook required it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _Request:
    """A request of the app-server."""

    method: str
    call: NativeCall
    """For policy and hooks."""
    call_id: str
    shown: JsonObject
    """Everything that was asked for: the person sees it, and "always" holds for exactly this."""
    asks_for_more: bool = False
    """Whether it asks for more than to make the call as the model wrote it."""
    params: JsonObject = field(repr=False)


class ApprovalBridge:
    """Answers the approval requests of one turn."""

    def __init__(
        self,
        turn: TurnContext,
        *,
        policy: ToolPolicy,
        approvals: Approvals,
        permissions: NativePermissions,
        is_active: Callable[[str, str], bool],
        checks: CallChecks | None = None,
    ) -> None:
        """`is_active` says whether a thread and a turn of Codex are those of this turn.

        `checks` are the native hooks; what they have checked is not checked again.
        """
        self._turn = turn
        self._policy = policy
        self._approvals = approvals
        self._permissions = permissions
        self._is_active = is_active
        self._checks = checks
        # By thread and id: agents that Codex starts may use the same ids.
        self._items: dict[tuple[str, str], JsonObject] = {}
        self._asked: set[str] = set()

    def observe(self, method: str, params: JsonObject) -> None:
        """Remember the items that approvals are about; call it with each notification."""
        item = params.get("item")
        if not isinstance(item, dict) or item.get("type") not in ("fileChange", "mcpToolCall"):
            return
        key = (str(params.get("threadId")), str(item.get("id")))
        if method == "item/started" and len(self._items) < _MAX_ITEMS:
            self._items[key] = item
        elif method == "item/completed":
            self._items.pop(key, None)

    async def answer(self, method: str, params: JsonObject) -> JsonObject:
        """The result of a request whose method is one of `APPROVAL_METHODS`."""
        if not self._is_of_turn(method, params):
            logger.warning("%s of another thread or turn is declined", method)
            return _decline(method)
        request = self._parse(method, params)
        if request is None:
            return _decline(method)
        answer = await self._decide(request)
        match answer:
            case "deny":
                return _decline(method)
            case "abort":
                return _cancel(method)
            case "once" | "always":
                return _accept(request, is_always=answer == "always")

    def _is_of_turn(self, method: str, params: JsonObject) -> bool:
        turn_id = params.get("turnId")
        if turn_id is None and method == ELICITATION:
            # The app-server does not always know the turn of an elicitation.
            turn_id = ""
        return self._is_active(str(params.get("threadId")), str(turn_id))

    # Parse requests.

    def _parse(self, method: str, params: JsonObject) -> _Request | None:
        """None for a request that cannot be approved."""
        try:
            match method:
                case "item/commandExecution/requestApproval":
                    return self._parse_command(params)
                case "item/fileChange/requestApproval":
                    return self._parse_file_change(params)
                case "item/permissions/requestApproval":
                    return _make_request(
                        method, "codex_permission_approval", _select_input(params), params
                    )
                case _:
                    return self._parse_elicitation(params)
        except ToolDefinitionError as error:
            logger.warning("%s is declined: its tool cannot be checked: %s", method, error)
            return None

    def _parse_command(self, params: JsonObject) -> _Request:
        given = _select_input(params)
        command = params.get("command")
        if isinstance(command, str):
            given["command"] = _find_script(command)
        is_input = params.get("kind") == "writeStdin"
        return _make_request(
            COMMAND_APPROVAL,
            "write_stdin" if is_input else "exec",
            given,
            params,
            asks_for_more=is_input
            or any(params.get(key) for key in ("networkApprovalContext", "additionalPermissions")),
        )

    def _parse_file_change(self, params: JsonObject) -> _Request:
        item = self._items.get((str(params.get("threadId")), str(params.get("itemId"))), {})
        given = {"changes": item.get("changes"), **_select_input(params)}
        return _make_request(
            FILE_APPROVAL,
            "apply_patch",
            given,
            params,
            asks_for_more=bool(params.get("grantRoot")),
            shown=given,
        )

    def _parse_elicitation(self, params: JsonObject) -> _Request | None:
        if not is_tool_approval(params) or not can_answer(params):
            return None
        server, given = str(params.get("serverName")), _meta(params).get("tool_params")
        given = given if isinstance(given, dict) else {}
        call_id, tool = self._find_mcp_call(server, given, params)
        if not tool:
            logger.warning(
                "an approval for the MCP server %s names no tool; it is declined", server
            )
            return None
        return _make_request(
            ELICITATION,
            f"mcp__{server}__{tool}",
            given,
            {**params, "itemId": call_id},
            shown={"server": server, "tool": tool, "arguments": given},
        )

    def _find_mcp_call(self, server: str, given: JsonObject, params: JsonObject) -> tuple[str, str]:
        """The id and the tool of the call that an elicitation is about; no tool if it is not sure.

        An elicitation has no id of its call.
        """
        found = {
            call_id: str(item.get("tool"))
            for (thread_id, call_id), item in self._items.items()
            if thread_id == params.get("threadId")
            and item.get("server") == server
            and (item.get("arguments") or {}) == given
        }
        tools = set(found.values())
        if len(tools) > 1:
            # Calls with the same arguments run at the same time; the text names the tool.
            text = get_text(params, "message")
            tools = {tool for tool in tools if f'"{tool}"' in text}
        if found and len(tools) != 1:
            return f"elicitation_{server}", ""
        for call_id, tool in reversed(found.items()):
            if tool in tools:
                return call_id, tool
        name = _meta(params).get("tool_name")
        return f"elicitation_{server}", name if isinstance(name, str) else ""

    # Decide.

    async def _decide(self, request: _Request) -> _Answer:
        answer: _Answer = "abort"
        stop = self._turn.stop
        if not stop.is_aborted:
            with stop.cancelling():
                answer = await self._check(request)
        return "abort" if stop.is_aborted else answer

    async def _check(self, request: _Request) -> _Answer:
        refusal = request.call.refusal(self._policy)
        if refusal is not None:
            return self._refuse(request, refusal)
        hook_reason: str | None = None
        if self._checks is None or not self._checks.has_checked(request.call_id):
            refusal, hook_reason = await self._call_hooks(request)
            if refusal is not None:
                return self._refuse(request, refusal)
        if self._is_approved(request) or (
            hook_reason is None and not self._permissions.asks_people
        ):
            return "once"
        return await self._ask(request, hook_reason or "")

    def _is_approved(self, request: _Request) -> bool:
        """Whether a hook has already asked a person about the call. That holds for the call itself,
        once, and for nothing beyond it."""
        is_first = request.call_id not in self._asked
        self._asked.add(request.call_id)
        return (
            is_first
            and not request.asks_for_more
            and self._checks is not None
            and self._checks.is_approved(request.call_id)
        )

    async def _call_hooks(self, request: _Request) -> tuple[str | None, str | None]:
        """Why hooks refuse the call, and why they want an approval of it."""
        hooks = self._turn.service.hooks
        if not hooks.has_hooks("before_tool_call"):
            return None, None
        call = request.call
        decision = await hooks.before_tool_call(
            BeforeToolCall(
                tool_id=call.tool.id,
                tool_name=call.tool.name,
                input=call.input,
                call_id=request.call_id,
                parent_id="",
                context=self._turn.identity,
            )
        )
        if decision.block is not None:
            return decision.block, None
        if decision.is_changed and decision.input != call.input:
            return NO_REWRITE, None
        return None, decision.approval

    def _refuse(self, request: _Request, reason: str) -> _Answer:
        logger.info("%s of %s is declined: %s", request.method, request.call.tool.id, reason)
        self._record("approval.answered", request, {"answer": "deny", "reason": reason})
        return "deny"

    async def _ask(self, request: _Request, hook_reason: str) -> _Answer:
        turn, call = self._turn, request.call
        described = describe_request(
            request.method, request.shown, workspace=PurePosixPath(turn.agent.workspace)
        )
        reason = "; ".join(filter(None, (described, hook_reason)))
        self._record("approval.requested", request, {"reason": reason})
        turn.waits.begin(request.call_id)
        try:
            answer = await self._approvals.request(
                tool_id=call.tool.id,
                tool_name=call.tool.name,
                input=request.shown,
                reason=reason,
                context=turn.identity,
                call_id=request.call_id,
                check=_refuse_edits(request),
            )
        finally:
            turn.waits.end(request.call_id)
        if isinstance(answer, Refused):
            self._record("approval.answered", request, {"answer": "deny", "reason": answer.reason})
            return "deny"
        how = "always" if answer.is_remembered else "once"
        self._record("approval.answered", request, {"answer": "allow", "how": how})
        return "always" if answer.is_remembered or answer.is_always else "once"

    def _record(
        self,
        kind: Literal["approval.requested", "approval.answered"],
        request: _Request,
        data: JsonObject,
    ) -> None:
        self._turn.trajectory.record(kind, call_id=request.call_id, data=data)


def _make_request(
    method: str,
    name: str,
    given: JsonObject,
    params: JsonObject,
    *,
    asks_for_more: bool = False,
    shown: JsonObject | None = None,
) -> _Request:
    return _Request(
        method=method,
        call=parse_native_call(name, given),
        call_id=str(params.get("itemId")),
        shown=_select_input(params) if shown is None else shown,
        asks_for_more=asks_for_more,
        params=params,
    )


def _select_input(params: JsonObject) -> JsonObject:
    """What was asked for, without the members that no decision depends on."""
    return {
        key: value for key, value in params.items() if key not in _VOLATILE and value is not None
    }


def _find_script(command: str) -> str:
    """The script of `/bin/bash -lc '…'`, as the model wrote it; other commands unchanged."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    return words[2] if len(words) == 3 and words[1] in _SHELL_OPTIONS else command


def _meta(params: JsonObject) -> JsonObject:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _refuse_edits(request: _Request) -> Callable[[JsonObject], JsonObject]:
    def check(edited: JsonObject) -> JsonObject:
        if edited != request.shown:
            raise ToolInputError(
                "Codex runs its own tools with the input of the model only; allow the call as it "
                "is, or deny it",
                tool_id=request.call.tool.id,
            )
        return edited

    return check


# Results.


def _accept(request: _Request, *, is_always: bool) -> JsonObject:
    match request.method:
        case "item/permissions/requestApproval":
            scope = "session" if is_always else "turn"
            return {"permissions": _requested_permissions(request.params), "scope": scope}
        case "mcpServer/elicitation/request":
            return accept_elicitation(request.params)
        case "item/commandExecution/requestApproval" if is_always:
            offered = request.params.get("availableDecisions")
            is_offered = isinstance(offered, list) and "acceptForSession" in offered
            # Never an amendment of Codex's rules, even if it is offered: it allows all commands
            # with a prefix that the model chose, in all threads.
            return {"decision": "acceptForSession" if is_offered else "accept"}
        case _:
            # For file changes "acceptForSession" would allow other changes of the same files.
            return {"decision": "accept"}


def _requested_permissions(params: JsonObject) -> JsonObject:
    """Exactly what was asked for."""
    asked = params.get("permissions")
    if not isinstance(asked, dict):
        return {}
    return {key: asked[key] for key in ("network", "fileSystem") if asked.get(key) is not None}


def _decline(method: str) -> JsonObject:
    """The turn goes on without the call."""
    match method:
        case "item/permissions/requestApproval":
            return {"permissions": {}, "scope": "turn"}
        case "mcpServer/elicitation/request":
            return {"action": "decline"}
        case _:
            return {"decision": "decline"}


def _cancel(method: str) -> JsonObject:
    """The turn is interrupted; only an abort of the run does this."""
    match method:
        case "item/permissions/requestApproval":
            return {"permissions": {}, "scope": "turn"}
        case "mcpServer/elicitation/request":
            return {"action": "cancel"}
        case _:
            return {"decision": "cancel"}
