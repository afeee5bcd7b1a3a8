"""Approvals, questions and steering of the real Codex, in turns that Nacre runs.

All tests share one app-server.
"""

import json
import re
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from nacre.agent import AgentRun, ClientTool, TurnRequest
from nacre.bootstrap import System, open_system
from nacre.codex_harness import AppServerClient
from nacre.errors import AppServerError
from nacre.gateway.app import create_app
from nacre.hooks import AskApproval, BeforeToolCall, Block, ChangeInput
from nacre.json_types import JsonObject, JsonValue
from nacre.messages import UserMessage
from nacre.testing import Call, Say, ScriptedProvider, by_marker
from nacre.testing.http_server import serving
from nacre.testing.script import PlainTurn, RecordedRequest, Script
from nacre.tools import ApprovalInfo, ApprovalRequest
from tests.agent.agent_setup import event_of, events_of
from tests.agent.conftest import OpenAgent
from tests.codex_harness.codex_setup import (
    codex_document,
    mcp_call,
    read_config,
    skip_old_codex,
)
from tests.contract.requirements import requirement

pytestmark = pytest.mark.anyio

TOKEN = "0123456789abcdef-test"
SERVER = Path(__file__).parent / "paying_mcp_server.py"
ADD_FILE = "*** Begin Patch\n*** Add File: made.txt\n+hello\n*** End Patch\n"
CHANGE_FILE = "*** Begin Patch\n*** Update File: made.txt\n@@\n-hello\n+bye\n*** End Patch\n"
QUESTION: JsonObject = {
    "questions": [
        {
            "id": "colour",
            "header": "Colour",
            "question": "Which one?",
            "options": [
                {"label": "Red", "description": "like a rose"},
                {"label": "Blue", "description": "like the sea"},
            ],
        }
    ]
}


def double(number: int) -> Call:
    """A command that Codex does not trust."""
    return Call("exec_command", {"cmd": f"printf 'it is %d\\n' $(({number} * 2))"})


def pay(amount: int) -> Call:
    return mcp_call("bank", "pay", {"amount": amount})


def patch(text: str) -> Call:
    return Call("apply_patch", text, kind="custom")


SCRIPTS: dict[str, Script] = {
    "case:deny": [double(21), Say("I did without.")],
    "case:allow": [double(21), Say("It is 42.")],
    "case:abort": [double(21), Say("never")],
    "case:always": [double(1), Say("a"), double(1), Say("b"), double(2), Say("c")],
    "case:files": [
        patch(ADD_FILE),
        Say("made"),
        patch(CHANGE_FILE),
        Say("not changed"),
    ],
    "case:permissions": [
        Call(
            "request_permissions",
            {"reason": "to publish it", "permissions": {"network": {"enabled": True}}},
        ),
        Say("thanks"),
    ],
    "case:mcp": [pay(3), Say("a"), pay(3), Say("b"), pay(4), Say("c")],
    "case:elicit": [mcp_call("bank", "ask", {}), Say("a")],
    "case:question": [Call("request_user_input", QUESTION), Say("Blue it is.")],
    "case:unanswered": [Call("request_user_input", QUESTION), Say("never")],
    "case:steer-shell": [
        Call("exec_command", {"cmd": "until [ -e go ]; do sleep 0.02; done"}),
        Say("I know."),
    ],
    "case:steer-tool": [Call("pick", {}, namespace="openclaw"), Say("I know.")],
    "case:unconfirmed": [Call("pick", {}, namespace="openclaw"), Say("two")],
    "case:refused": [Call("pick", {}, namespace="openclaw"), Say("one"), Say("two")],
}


class World:
    """The system, its model, and its directory."""

    def __init__(self, system: System, provider: ScriptedProvider, folder: Path) -> None:
        self.system = system
        self.provider = provider
        self.folder = folder
        self.workspace = system.config.agents.agent("main").workspace

    async def start(self, text: str, **options: Any) -> AgentRun:
        key = text.partition(" ")[0]
        request = TurnRequest(message=text, session_key=key, channel="api", **options)
        return await self.system.agents.start(request)

    async def turn(self, text: str, *answers: ApprovalInfo) -> tuple[AgentRun, list[str]]:
        """A whole turn in the session of its case, and the prompts that `answers` answer."""
        prompts: list[ApprovalRequest] = []

        async def answer() -> None:
            left = list(answers)
            async for request in self.system.approvals:
                prompts.append(request)
                self.system.approvals.answer(request.id, left.pop(0) if left else "deny")

        runs: list[AgentRun] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            runs.append(await self.start(text))
            with anyio.fail_after(60):
                await runs[0].wait()
            tasks.cancel_scope.cancel()
        return runs[0], [prompt.reason for prompt in prompts]

    def requests(self, case: str) -> Sequence[RecordedRequest]:
        return [request for request in self.provider.requests if request.key == case]

    def last_result(self, case: str) -> str:
        """What the model read of its last call."""
        return self.requests(case)[-1].tool_results[-1]


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("permissions")
    log = folder / "payments"
    args = ["app-server", "--enable", "request_permissions_tool"]
    server = {
        "command": f'"{sys.executable}"',
        "args": f'["{SERVER}", "{log}"]',
        # Threads start when it has started.
        "required": "true",
    }
    for key, value in server.items():
        args += ["-c", f"mcp_servers.bank.{key}={value}"]
    app_server = {"approvalPolicy": "untrusted", "sandbox": "read-only", "args": args}
    async with ScriptedProvider(SCRIPTS, script_for=by_marker(r"case:[\w-]+")) as provider:
        document = codex_document(
            provider.openai_url,
            agent={"workspace": str(folder / "work")},
            codex={"appServer": app_server},
            gateway={"auth": {"token": TOKEN}},
            messages={"queue": {"debounceMs": 100}},
        )
        config = await read_config(document, folder)
        async with open_system(config, workers=1) as system:
            yield World(system, provider, folder)


def text_of(run: AgentRun) -> str:
    assert run.result is not None
    assert run.result.error == ""
    return run.result.text


@requirement("codex:approval-decline-is-not-cancel")
async def test_a_denied_command_does_not_run_and_the_turn_goes_on(world: World) -> None:
    run, (reason,) = await world.turn("case:deny please", "deny")
    assert text_of(run) == "I did without."
    assert "Codex asks to run a command" in reason
    assert "$((21 * 2))" in reason
    assert "it is 42" not in world.last_result("case:deny")
    assert [event.data["answer"] for event in events_of(run, "approval.answered")] == ["deny"]
    (ended,) = events_of(run, "call.ended")
    assert (ended.data["errorCode"], ended.data["error"]) == (
        "approval_denied",
        "it was not approved",
    )


async def test_an_allowed_command_runs(world: World) -> None:
    run, prompts = await world.turn("case:allow please", "allow-once")
    assert (text_of(run), len(prompts)) == ("It is 42.", 1)
    assert "it is 42" in world.last_result("case:allow")


@requirement("codex:approval-decline-is-not-cancel")
async def test_an_abort_while_the_approval_is_open_cancels_the_turn(world: World) -> None:
    run = await world.start("case:abort please")
    await event_of(run, "approval.requested")
    with anyio.fail_after(30):
        await run.abort("enough")
    assert run.state == "aborted"
    assert world.system.approvals.pending == ()
    assert len(world.requests("case:abort")) == 1


@requirement("codex:allow-always-exact")
async def test_always_holds_for_the_same_command_and_a_changed_one_asks_again(
    world: World,
) -> None:
    counts: list[int] = []
    for answer in ("allow-always", "deny", "deny"):
        run, prompts = await world.turn("case:always please", answer)
        assert run.state == "completed"
        counts.append(len(prompts))
    assert counts == [1, 0, 1]
    results = [request.tool_results[-1] for request in world.requests("case:always")[1::2]]
    assert ["it is 2" in result for result in results] == [True, True, False]


@requirement("codex:allow-always-exact")
async def test_a_file_change_is_made_and_another_one_of_the_file_asks_again(world: World) -> None:
    made = world.workspace / "made.txt"
    _, (reason,) = await world.turn("case:files please", "allow-always")
    assert "Codex asks to change files. add made.txt" in reason
    assert await anyio.to_thread.run_sync(made.read_text) == "hello\n"
    run, (reason,) = await world.turn("case:files again", "deny")
    assert "update made.txt" in reason
    assert await anyio.to_thread.run_sync(made.read_text) == "hello\n"
    assert text_of(run) == "not changed"


@requirement("codex:approval-answers")
async def test_permissions_are_granted_as_they_were_asked_for(world: World) -> None:
    run, (reason,) = await world.turn("case:permissions please", "allow-once")
    assert text_of(run) == "thanks"
    assert "risk: network access to all hosts" in reason
    assert "to publish it" in reason
    granted = world.last_result("case:permissions")
    assert '"network":{"enabled":true}' in granted
    assert '"file_system":null' in granted
    assert '"scope":"turn"' in granted


@requirement("codex:mcp-elicitations", "codex:allow-always-exact")
async def test_a_tool_of_an_mcp_server_of_codex_is_approved_like_any_other(world: World) -> None:
    _, (reason,) = await world.turn("case:mcp please", "allow-always")
    assert reason == "Codex asks to call pay of the MCP server bank"
    assert "paid 3" in world.last_result("case:mcp")
    _, prompts = await world.turn("case:mcp again")
    assert prompts == []
    assert "paid 3" in world.last_result("case:mcp")
    run, prompts = await world.turn("case:mcp once more", "deny")
    assert len(prompts) == 1
    assert "paid 4" not in world.last_result("case:mcp")
    assert text_of(run) == "c"
    log = (world.folder / "payments").read_text
    assert await anyio.to_thread.run_sync(log) == "3\n3\n"


@requirement("codex:mcp-elicitations")
async def test_other_questions_of_mcp_servers_are_not_answered(world: World) -> None:
    run, prompts = await world.turn("case:elicit please")
    assert run.state == "completed"
    assert prompts == []
    assert '"accept"' not in world.last_result("case:elicit")
    assert "action" in world.last_result("case:elicit")


@requirement("codex:user-input")
async def test_a_question_is_answered_by_the_next_message_to_the_api(world: World) -> None:
    run = await world.start("case:question please")
    asked = await event_of(run, "input.requested")
    assert "2) Blue: like the sea" in str(asked.data["text"])
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with (
        serving(create_app(world.system)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers) as client,
    ):
        with anyio.fail_after(30):
            assert await run.waiting_or_ended() == "waiting"
        shown = (await client.get(f"/api/runs/{run.id}")).json()
        assert (shown["state"], shown["pendingInput"]["questions"][0]["id"]) == (
            "waiting",
            "colour",
        )
        message = {"text": "2", "sessionId": run.session_id, "queueMode": "followup"}
        answered = (await client.post("/api/runs", json=message)).json()
        assert answered["runId"] == run.id
        with anyio.fail_after(60):
            await run.wait()
    assert text_of(run) == "Blue it is."
    assert world.last_result("case:question") == '{"answers":{"colour":{"answers":["Blue"]}}}'
    # The answer neither steered the turn nor started another one.
    assert events_of(run, "steered") == []
    assert world.system.agents.runs(run.session_id) == [run]
    assert len(world.requests("case:question")) == 2


async def test_an_abort_leaves_a_question_of_codex_without_an_answer(world: World) -> None:
    run = await world.start("case:unanswered please")
    await event_of(run, "input.requested")
    with anyio.fail_after(30):
        await run.abort("enough")
    assert run.pending_input is None
    assert run.state == "aborted"


# Hooks.


@requirement("codex:policy-promotion", "codex:approval-policy-first")
@pytest.mark.parametrize("has_relay", [True, False])
async def test_hooks_decide_about_native_commands_with_and_without_the_relay(
    open_codex: OpenAgent, has_relay: bool
) -> None:
    """By default Codex asks for nothing; hooks see its commands nevertheless, once each."""
    seen: list[str] = []

    def before_tool_call(event: BeforeToolCall) -> object:
        seen.append(str(event.input["command"]))
        match seen[-1].removeprefix("touch "):
            case "blocked":
                return Block("not today")
            case "doubtful":
                return AskApproval("is it good?")
            case "changed":
                return ChangeInput({"command": "true"})
            case _:
                return None

    names = ["fine", "blocked", "doubtful", "changed"]
    calls = [Call("exec_command", {"cmd": f"touch {name}"}) for name in names]
    async with (
        ScriptedProvider([*calls, Say("finished")]) as provider,
        open_codex(
            provider.openai_url,
            codex={"nativeHookRelay": {"enabled": has_relay}},
            hooks=[before_tool_call],
        ) as setup,
    ):
        run = await setup.start()
        asked = await event_of(run, "approval.requested")
        setup.approvals.answer(str(asked.data["approvalId"]), "allow-once")
        with anyio.fail_after(60):
            await run.wait()
        assert text_of(run) == "finished"
        workspace = setup.config.agents.agent("main").workspace
        made = await anyio.to_thread.run_sync(lambda: sorted(it.name for it in workspace.iterdir()))
    assert made == ["doubtful", "fine"]
    assert seen == [f"touch {name}" for name in names]
    assert len(events_of(run, "approval.requested")) == 1


@requirement("codex:guardian")
@pytest.mark.parametrize("outcome", ["allow", "deny"])
async def test_a_reviewer_of_codex_decides_in_the_mode_guardian(
    open_codex: OpenAgent, outcome: str
) -> None:
    escalated: JsonObject = {"cmd": "touch made", "sandbox_permissions": "require_escalated"}
    review = {"outcome": outcome, "risk_level": "low", "rationale": "because"}

    def play(request: RecordedRequest) -> PlainTurn:
        if "tool_search" not in request.tool_names:
            # The reviewer is a model with instructions of its own.
            return Say(json.dumps(review))
        is_done = request.messages[-1].role == "tool"
        return Say("finished") if is_done else Call("exec_command", escalated)

    async with (
        ScriptedProvider(play) as provider,
        open_codex(provider.openai_url, codex={"appServer": {"mode": "guardian"}}) as setup,
    ):
        run = await setup.turn()
        assert text_of(run) == "finished"
        made = setup.config.agents.agent("main").workspace / "made"
        assert await anyio.to_thread.run_sync(made.exists) == (outcome == "allow")
    assert events_of(run, "approval.requested") == []


@requirement("codex:approval-decline-is-not-cancel")
async def test_an_approval_that_nobody_answers_expires_and_the_turn_goes_on(
    open_codex: OpenAgent,
) -> None:
    codex = {"appServer": {"approvalPolicy": "untrusted"}}
    async with (
        ScriptedProvider([double(21), Say("without it")]) as provider,
        # The limit of the runtime, as for all other approvals.
        open_codex(provider.openai_url, codex=codex, approval_seconds=0.2) as setup,
    ):
        run = await setup.turn()
    assert text_of(run) == "without it"
    assert [event.data["answer"] for event in events_of(run, "approval.answered")] == ["expired"]


# Steering.


class Steering:
    """Sees the requests that steer a turn, and can refuse them as Codex does in a review."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[JsonObject] = []
        self.is_refused = False
        self.has_come = anyio.Event()
        self.client: AppServerClient | None = None
        self._request = AppServerClient.request
        seen = self

        async def request(
            client: AppServerClient, method: str, params: JsonObject, **options: Any
        ) -> JsonValue:
            if method != "turn/steer":
                return await seen._request(client, method, params, **options)
            seen.sent.append(params)
            seen.client = client
            try:
                if seen.is_refused:
                    raise AppServerError(method, code=-32600, message="cannot steer a review turn")
                return await seen._request(client, method, params, **options)
            finally:
                seen.has_come.set()

        monkeypatch.setattr(AppServerClient, "request", request)


async def send_two(world: World, run: AgentRun, steering: Steering) -> None:
    """Send two messages, and wait for the request that has them."""
    for text in ("and this", "and that"):
        request = TurnRequest(message=text, session_id=run.session_id, channel="api")
        assert await world.system.agents.start(request) is run
    with anyio.fail_after(30):
        await steering.has_come.wait()


def heard(request: RecordedRequest) -> list[str]:
    """The messages that the model has read, in their order."""
    said = " ".join(message.text for message in request.messages if message.role == "user")
    return re.findall(r"and this|and that", said)


@requirement("codex:queue-steering")
@pytest.mark.parametrize("case", ["case:steer-shell", "case:steer-tool"])
async def test_messages_during_a_call_steer_the_turn_in_one_request(
    world: World, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    steering = Steering(monkeypatch)
    run = await world.start(f"{case} please", client_tools=[ClientTool(name="pick")])
    if case == "case:steer-shell":
        asked = await event_of(run, "approval.requested")
        world.system.approvals.answer(str(asked.data["approvalId"]), "allow-once")
        await event_of(run, "call.started")
    else:
        await event_of(run, "client_call.requested")
    await send_two(world, run, steering)
    if case == "case:steer-shell":
        await anyio.to_thread.run_sync((world.workspace / "go").touch)
    else:
        run.deliver(run.pending_client_calls[0].call_id, "the red one")
    with anyio.fail_after(60):
        await run.wait()
    assert text_of(run) == "I know."
    (sent,) = steering.sent
    assert sent["input"] == [
        {"type": "text", "text": text, "text_elements": []} for text in ("and this", "and that")
    ]
    # The model has read them in the same turn, and the session keeps them.
    assert heard(world.requests(case)[-1]) == ["and this", "and that"]
    assert world.system.agents.runs(run.session_id) == [run]
    stored = [it.message for it in await world.system.store.messages(run.session_id)]
    assert [it.text for it in stored if isinstance(it, UserMessage)][1:] == ["and this", "and that"]


@requirement("codex:queue-steering")
async def test_messages_that_codex_does_not_take_run_afterwards(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    steering = Steering(monkeypatch)
    steering.is_refused = True
    run = await world.start("case:refused please", client_tools=[ClientTool(name="pick")])
    await event_of(run, "client_call.requested")
    await send_two(world, run, steering)
    run.deliver(run.pending_client_calls[0].call_id, "the red one")
    with anyio.fail_after(60):
        await run.wait()
        assert text_of(run) == "one"
        follow_up_id = str(events_of(run, "steered")[-1].data["followupRunId"])
        follow_up = world.system.agents.run(follow_up_id)
        assert follow_up is not None
        await follow_up.wait()
    assert text_of(follow_up) == "two"
    assert len(steering.sent) == 1
    first, last = world.requests("case:refused")[1:]
    assert (heard(first), heard(last)) == ([], ["and this", "and that"])


@requirement("codex:steering-confirmed")
@skip_old_codex("does not report the ids of messages")
async def test_messages_that_codex_accepts_and_does_not_take_run_afterwards(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    steering = Steering(monkeypatch)
    run = await world.start("case:unconfirmed please", client_tools=[ClientTool(name="pick")])
    await event_of(run, "client_call.requested")
    await send_two(world, run, steering)
    (sent,) = steering.sent
    assert steering.client is not None
    # Codex ends the turn before its next request to the model, which would have the messages.
    ids: JsonObject = {"threadId": sent["threadId"], "turnId": sent["expectedTurnId"]}
    await steering.client.request("turn/interrupt", ids)
    with anyio.fail_after(60):
        await run.wait()
        assert run.state == "failed"
        follow_up = world.system.agents.run(
            str(events_of(run, "steered")[-1].data["followupRunId"])
        )
        assert follow_up is not None
        await follow_up.wait()
    (last,) = world.requests("case:unconfirmed")[1:]
    assert heard(last) == ["and this", "and that"]
    stored = [it.message for it in await world.system.store.messages(run.session_id)]
    said = [it.text for it in stored if isinstance(it, UserMessage)]
    assert said == ["case:unconfirmed please", "and this\nand that"]
