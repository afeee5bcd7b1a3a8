"""A turn that gets approval requests as the app-server would send them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

from nacre.agent import AgentRun, TurnContext
from nacre.codex_harness.approvals import ApprovalBridge, CallChecks
from nacre.codex_harness.permissions import NativeApprovals, NativePermissions
from nacre.json_types import JsonObject
from nacre.tools import ApprovalInfo, ApprovalRequest, policy_for
from tests.agent.agent_setup import AgentSetup

ASKING = NativePermissions(approval_policy="untrusted", sandbox="read-only", reviewer="user")
YOLO = NativePermissions(
    approval_policy="never", sandbox="danger-full-access", reviewer="user", asks_people=False
)
COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
PERMISSIONS = "item/permissions/requestApproval"
ELICITATION = "mcpServer/elicitation/request"


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class ApprovalTurns:
    """A harness whose turns only do what the test says with the bridge."""

    def __init__(
        self, permissions: NativePermissions = ASKING, *, checks: CallChecks | None = None
    ) -> None:
        self.permissions = permissions
        self.checks = checks
        self.clock = Clock()
        self.ttl_seconds = 3600.0
        self.act: Callable[[ApprovalBridge], Awaitable[None]] = _do_nothing
        self._approvals: NativeApprovals | None = None

    def plan_surface(self, turn: TurnContext, /) -> str:
        return "codex"

    def needs_history(self, turn: TurnContext, /) -> bool:
        return True

    async def run(self, turn: TurnContext, /) -> None:
        if self._approvals is None:
            self._approvals = NativeApprovals(
                turn.service.approvals, ttl_seconds=self.ttl_seconds, clock=self.clock
            )
        bridge = ApprovalBridge(
            turn,
            policy=policy_for(turn.agent.tools, turn.identity),
            approvals=self._approvals,
            permissions=self.permissions,
            is_active=lambda thread_id, turn_id: thread_id == "t1" and turn_id in ("u1", ""),
            checks=self.checks,
        )
        await self.act(bridge)

    async def send(
        self,
        setup: AgentSetup,
        *requests: tuple[str, JsonObject],
        answers: Sequence[ApprovalInfo] = (),
        items: Sequence[JsonObject] = (),
        session_key: str = "chat",
    ) -> tuple[list[JsonObject], list[ApprovalRequest], AgentRun]:
        """The results of the requests in one turn, the prompts that `answers` answer, the run."""
        results: list[JsonObject] = []
        prompts: list[ApprovalRequest] = []
        runs: list[AgentRun] = []

        async def act(bridge: ApprovalBridge) -> None:
            for item in items:
                bridge.observe("item/started", {"threadId": "t1", "item": item})
            for method, params in requests:
                results.append(await bridge.answer(method, params))

        async def answer_prompts() -> None:
            left = list(answers)
            async for request in setup.approvals:
                prompts.append(request)
                if left:
                    setup.approvals.answer(request.id, left.pop(0))

        self.act = act
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_prompts)
            runs.append(await setup.turn(session_key=session_key))
            tasks.cancel_scope.cancel()
        return results, prompts, runs[0]


async def _do_nothing(bridge: ApprovalBridge) -> None:
    pass


def command(text: str = "echo hi", *, call_id: str = "call_1", **more: Any) -> JsonObject:
    """The parameters of a request about a command."""
    return {
        "kind": "command",
        "threadId": "t1",
        "turnId": "u1",
        "itemId": call_id,
        "startedAtMs": 1,
        "command": f"/bin/bash -lc '{text}'",
        "cwd": "/opt/place",
        "reason": None,
        "commandActions": [{"type": "unknown", "command": text}],
        "availableDecisions": ["accept", "cancel"],
        **more,
    }


def file_change(*, call_id: str = "call_1", **more: Any) -> JsonObject:
    return {"threadId": "t1", "turnId": "u1", "itemId": call_id, "reason": None, **more}


def permissions(asked: JsonObject, **more: Any) -> JsonObject:
    base: JsonObject = {"threadId": "t1", "turnId": "u1", "itemId": "call_1", "cwd": "/opt/place"}
    return {**base, "permissions": asked, **more}


def elicitation(properties: JsonObject | None = None, **more: Any) -> JsonObject:
    meta: JsonObject = {
        "codex_approval_kind": "mcp_tool_call",
        "persist": ["session", "always"],
        "tool_params": {"amount": 3},
    }
    return {
        "threadId": "t1",
        "turnId": None,
        "serverName": "bank",
        "mode": "form",
        "message": 'Allow the bank MCP server to run tool "pay"?',
        "_meta": meta,
        "requestedSchema": {"type": "object", "properties": properties or {}},
        **more,
    }


PAY_ITEM: JsonObject = {
    "type": "mcpToolCall",
    "id": "call_1",
    "server": "bank",
    "tool": "pay",
    "arguments": {"amount": 3},
}
