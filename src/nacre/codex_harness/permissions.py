"""The permissions of a Codex turn, and the approvals of Codex's own calls by people."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import anyio

from nacre.tools import (
    APPROVAL_SECONDS,
    ApprovalMemory,
    Approvals,
    Granted,
    Refused,
    accept_any_input,
    call_fingerprint,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.config import (
        AgentConfig,
        ApprovalPolicy,
        ApprovalsReviewer,
        AppServerConfig,
        CodexSandbox,
    )
    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext
    from nacre.tools import ApprovalQueue

_REMEMBERED_SECONDS: Final = 30 * 60.0
_MAX_REMEMBERED: Final = 512
_FLOOD_SECONDS: Final = 60.0
_MAX_FLOOD: Final = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class NativePermissions:
    """What Codex may do in a turn without asking, as it is sent with every turn."""

    approval_policy: ApprovalPolicy
    sandbox: CodexSandbox
    reviewer: ApprovalsReviewer
    is_promoted: bool = False
    """Whether the policy is stricter than the setting, so that calls reach the tool rules."""
    asks_people: bool = True
    """Whether a call that policy and hooks permit needs an approval of a person as well."""


def resolve_permissions(
    settings: AppServerConfig, agent: AgentConfig, *, has_call_hooks: bool
) -> NativePermissions:
    """The permissions of a turn, from the settings and the rules for tool calls.

    The mode and the fields that override it are resolved already. If nobody wrote a policy, the
    default `never` becomes `untrusted` while there are `before_tool_call` hooks, or if
    `tools.exec.ask` is `always`: otherwise no command would reach them. With hooks alone, the hooks
    decide, and no person is asked. `tools.exec.ask: "never"` keeps the default.
    """
    exec_tool = agent.core_tools.exec
    # Its default is meant for Nacre's own `exec`, which is off unless somebody enables it.
    exec_rule = exec_tool.ask if "ask" in exec_tool.model_fields_set else None
    found = NativePermissions(
        approval_policy=settings.approval_policy,
        sandbox=settings.sandbox,
        reviewer=settings.approvals_reviewer,
        asks_people=(settings.approval_policy, settings.sandbox) != ("never", "danger-full-access"),
    )
    is_default = settings.approval_policy == "never" and not settings.has_own_policy
    if not is_default or exec_rule == "never" or not (has_call_hooks or exec_rule == "always"):
        return found
    return replace(
        found,
        approval_policy="untrusted",
        is_promoted=True,
        asks_people=found.asks_people or exec_rule == "always",
    )


@dataclass(kw_only=True, slots=True)
class _OpenPrompt:
    """A request that is open; equal requests wait for its answer."""

    answer: Granted | Refused | None = None
    is_over: anyio.Event = field(default_factory=anyio.Event)


class NativeApprovals(Approvals):
    """Approvals of Codex's own calls; one object for all turns of a harness.

    "Allow always" holds for exactly the same call of the session, for half an hour and while this
    object exists. Equal requests that are open at the same time share one prompt. After twelve
    prompts within a minute that nobody allowed, further calls of the session are refused.
    """

    def __init__(
        self,
        queue: ApprovalQueue,
        *,
        ttl_seconds: float = APPROVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        memory = ApprovalMemory(_MAX_REMEMBERED, max_age_seconds=_REMEMBERED_SECONDS, clock=clock)
        super().__init__(queue, ttl_seconds=ttl_seconds, memory=memory)
        self._clock = clock
        self._open: dict[str, _OpenPrompt] = {}
        # The time and the session of each recent prompt that nobody has allowed, oldest first.
        self._unwanted: deque[tuple[float, str]] = deque()

    async def request(
        self,
        *,
        tool_id: str,
        tool_name: str,
        input: JsonObject,
        reason: str,
        context: RunContext,
        call_id: str,
        parent_id: str = "",
        check: Callable[[JsonObject], object] = accept_any_input,
    ) -> Granted | Refused:
        """Request an approval, unless an equal call has been allowed or is being asked about."""
        key = call_fingerprint(tool_id, input, context)
        while (other := self._open.get(key)) is not None:
            await other.is_over.wait()
            if other.answer is not None:
                return other.answer
        is_remembered = self._memory.contains(tool_id=tool_id, input=input, context=context)
        if not is_remembered and self._is_flooded(context):
            return Refused(
                code="approval_denied",
                reason=f"{_MAX_FLOOD} requests of this session were not allowed within the last "
                f"{_FLOOD_SECONDS:g} seconds; the call was not made, ask again later",
            )
        mine = self._open[key] = _OpenPrompt()
        prompt = (self._clock(), context.session_id)
        self._unwanted.append(prompt)
        try:
            mine.answer = await super().request(
                tool_id=tool_id,
                tool_name=tool_name,
                input=input,
                reason=reason,
                context=context,
                call_id=call_id,
                parent_id=parent_id,
                check=check,
            )
        finally:
            del self._open[key]
            mine.is_over.set()
        if isinstance(mine.answer, Granted) and prompt in self._unwanted:
            self._unwanted.remove(prompt)
        return mine.answer

    def _is_flooded(self, context: RunContext) -> bool:
        """Whether too many recent prompts of the session were denied, or are still open."""
        while self._unwanted and self._clock() - self._unwanted[0][0] > _FLOOD_SECONDS:
            self._unwanted.popleft()
        sessions = [session_id for _, session_id in self._unwanted]
        return sessions.count(context.session_id) >= _MAX_FLOOD
