"""An approval is shown to readers when it is stored, so that a kill cannot lose it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from nacre.agent import AgentRun, turn_state
from nacre.agent import approvals as approvals_module
from nacre.sandbox import KeyRing, new_key
from nacre.storage import CellStore, open_store
from nacre.storage.approval_store import ApprovalStore
from nacre.tools import AllowOnce, Tool, ToolCall
from tests.agent.agent_setup import AgentSetup, kinds, open_agent
from tests.agent.fake_models import call, calls, say

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from nacre.storage import TurnState
    from nacre.trajectory import RunEvent

KEYS: Final = KeyRing(new_key())
PAY: Final = "return await tools.pay({sum: 7})"
PAY_AND_HOLD: Final = "return await Promise.all([tools.pay({sum: 7}), tools.hold({})])"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, nothing is shown before it is stored."""
    monkeypatch.setattr(turn_state, "_BUSY_SECONDS", 30)
    monkeypatch.setattr(approvals_module, "_SHOW_SECONDS", 30)


class Work:
    """A tool that needs an approval, and one that waits until the test lets it go."""

    def __init__(self) -> None:
        self.may_end = anyio.Event()

    def as_tools(self) -> list[Tool]:
        return [
            Tool(name="pay", execute=self._pay, needs_approval="money"),
            Tool(name="hold", execute=self._hold),
        ]

    async def _pay(self, given: dict[str, Any], _call: ToolCall) -> object:
        return given

    async def _hold(self, _given: dict[str, Any], _call: ToolCall) -> object:
        await self.may_end.wait()
        return "held"


@asynccontextmanager
async def open_process(
    folder: Path, *, work: Work | None = None, is_durable: bool = True, url: str = ""
) -> AsyncGenerator[AgentSetup]:
    code_mode = {"enabled": True, "durable": is_durable}
    async with (
        open_store(url or f"sqlite:///{folder}/nacre.db") as store,
        open_agent(
            store=store,
            folder=folder,
            document={"tools": {"codeMode": code_mode}},
            tools=(work or Work()).as_tools(),
            keys=KEYS,
        ) as setup,
    ):
        yield setup


class Steps:
    """What is stored and what is shown, in its order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.turn_stored = anyio.Event()
        put, suspend, put_turn = ApprovalStore.put, CellStore.suspend, CellStore.put_turn_state

        async def put_noted(store: ApprovalStore, *records: Any) -> None:
            await put(store, *records)
            self.names.extend(f"approval {record.state}" for record in records)

        async def suspend_noted(store: CellStore, record: Any, **options: Any) -> bool:
            is_stored = await suspend(store, record, **options)
            if options.get("turn_state") is not None:
                self.names.append("turn")
                self.turn_stored.set()
            return is_stored

        async def put_turn_noted(store: CellStore, state: TurnState) -> None:
            await put_turn(store, state)
            self.names.append("turn")

        monkeypatch.setattr(ApprovalStore, "put", put_noted)
        monkeypatch.setattr(CellStore, "suspend", suspend_noted)
        monkeypatch.setattr(CellStore, "put_turn_state", put_turn_noted)

    def note(self, event: RunEvent) -> None:
        if event.kind.startswith(("approval.", "run.waiting")):
            self.names.append(event.kind)


class HeldStore:
    """A store that takes no approval until the test releases it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.release = anyio.Event()
        self.has_begun = anyio.Event()
        put = ApprovalStore.put

        async def put_later(store: ApprovalStore, *records: Any) -> None:
            self.has_begun.set()
            await self.release.wait()
            await put(store, *records)

        monkeypatch.setattr(ApprovalStore, "put", put_later)


async def start(setup: AgentSetup, code: str = PAY) -> AgentRun:
    setup.model.will(call("exec", {"code": code}), say("done"))
    return await setup.start("buy it")


async def wait_for_event(run: AgentRun, kind: str) -> RunEvent:
    with anyio.fail_after(30):
        async for event in run.events.follow():
            if event.kind == kind:
                return event
    raise AssertionError(f"{kind} is not in {kinds(run)}")


async def wait_for_end(run: AgentRun) -> None:
    with anyio.fail_after(30):
        await run.wait()
    assert run.state == "completed", run.result


@pytest.mark.usefixtures("patient")
async def test_a_durable_turn_is_stored_before_its_approval_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    async with open_process(tmp_path) as setup:
        run = await start(setup)
        run.events.subscribe(steps.note)
        asked = await wait_for_event(run, "approval.requested")
        before = steps.names[: steps.names.index("approval.requested")]
        assert set(before) == {"approval open", "turn"}
        setup.approvals.answer(str(asked.data["approvalId"]), AllowOnce())
        await wait_for_end(run)
    shown = [name for name in steps.names if "." in name]
    assert shown == ["approval.requested", "run.waiting", "approval.answered"]
    assert "approval allowed" in steps.names


@pytest.mark.usefixtures("patient")
async def test_two_programs_that_are_stored_at_once_are_stored_with_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, suspend = Steps(monkeypatch), CellStore.suspend
    both, begun = anyio.Event(), list[str]()

    async def suspend_together(store: CellStore, record: Any, **options: Any) -> bool:
        begun.append(record.id)
        if len(begun) == 2:
            both.set()
        await both.wait()
        return await suspend(store, record, **options)

    monkeypatch.setattr(CellStore, "suspend", suspend_together)
    async with open_process(tmp_path) as setup:
        setup.model.will(
            calls(("call_1", "exec", {"code": PAY}), ("call_2", "exec", {"code": PAY})), say("done")
        )
        run = await setup.start("buy it twice")
        run.events.subscribe(steps.note)
        with anyio.fail_after(30):
            assert await run.waiting_or_ended() == "waiting"
        assert kinds(run).count("approval.requested") == 2
        assert steps.names.index("turn") < steps.names.index("approval.requested")
        for request in run.pending_approvals:
            setup.approvals.answer(request.id, AllowOnce())
        await wait_for_end(run)


async def test_other_turns_show_an_approval_when_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldStore(monkeypatch)
    async with open_process(tmp_path, is_durable=False) as setup:
        run = await start(setup)
        with anyio.fail_after(30):
            await held.has_begun.wait()
            assert (len(run.open_approvals), run.pending_approvals) == (1, ())
            assert setup.service.approvals.pending == ()
            assert "approval.requested" not in kinds(run)
            held.release.set()
            assert await run.waiting_or_ended() == "waiting"
        assert "approval.requested" in kinds(run)
        setup.approvals.answer(run.pending_approvals[0].id, AllowOnce())
        await wait_for_end(run)


async def test_a_program_that_is_busy_does_not_hide_its_approval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, work = Steps(monkeypatch), Work()
    async with open_process(tmp_path, work=work) as setup:
        run = await start(setup, PAY_AND_HOLD)
        asked = await wait_for_event(run, "approval.requested")
        assert (run.state, "turn" in steps.names) == ("running", False)
        work.may_end.set()
        setup.approvals.answer(str(asked.data["approvalId"]), AllowOnce())
        await wait_for_end(run)


async def test_a_store_that_does_not_answer_hides_no_approval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approvals_module, "_SHOW_SECONDS", 0.05)
    held = HeldStore(monkeypatch)
    async with open_process(tmp_path) as setup:
        run = await start(setup)
        asked = await wait_for_event(run, "approval.requested")
        assert await setup.store.approvals.find(str(asked.data["approvalId"])) is None
        held.release.set()
        setup.approvals.answer(str(asked.data["approvalId"]), AllowOnce())
        await wait_for_end(run)


async def test_an_answer_before_the_approval_is_shown_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldStore(monkeypatch)
    async with open_process(tmp_path) as setup:
        run = await start(setup)
        with anyio.fail_after(30):
            await held.has_begun.wait()
        (request,) = run.open_approvals
        setup.approvals.answer(request.id, AllowOnce())
        assert [kind for kind in kinds(run) if kind.startswith("approval.")] == [
            "approval.requested",
            "approval.answered",
        ]
        held.release.set()
        await wait_for_end(run)
    async with open_store(f"sqlite:///{tmp_path}/nacre.db") as store:
        record = await store.approvals.find(request.id)
        assert record is not None and record.state == "allowed"


@pytest.mark.parametrize("database", ["file", "postgres"])
async def test_a_process_that_ends_before_it_shows_an_approval_leaves_it_to_the_next(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    database: str,
    request: pytest.FixtureRequest,
) -> None:
    url = request.getfixturevalue("postgres").url() if database == "postgres" else ""
    steps = Steps(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(AgentRun, "show_approval", lambda _run, _id: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        async with open_process(tmp_path, url=url) as setup:
            first = await start(setup)
            with anyio.fail_after(30):
                await steps.turn_stored.wait()
            assert "approval.requested" not in kinds(first)
            (asked,) = first.open_approvals
    async with open_process(tmp_path, url=url) as setup:
        setup.model.will(say("done"))
        (run,) = await setup.service.continue_turns()
        with anyio.fail_after(30):
            assert await run.waiting_or_ended() == "waiting"
        seen: list[dict[str, Any]] = [event.to_json() for event in run.events.events]
        if setup.service.shared is not None and setup.store.cluster is not None:
            # The readers at other gateways.
            await setup.service.shared.flush()
            feed = await setup.store.cluster.feed.events_after({run.id: -1})
            seen = feed[run.id]
        shown = [it["data"]["approvalId"] for it in seen if it["kind"] == "approval.requested"]
        assert shown == [asked.id]
        setup.approvals.answer(asked.id, AllowOnce())
        await wait_for_end(run)
