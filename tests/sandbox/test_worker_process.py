"""Shared data: sent to a worker once, read by programs, and limited in size."""

import asyncio
import json
import math
import os
import signal
from collections import Counter

import anyio
import pytest

from nacre.errors import HostRequestError
from nacre.json_types import JsonValue
from nacre.sandbox import Completed, Failed, HostRequest, Limits, Sandbox, SandboxOptions, Waiting
from nacre.sandbox.pool import WorkerPool
from nacre.sandbox.worker_process import (
    MAX_SHARED_BYTES,
    SentData,
    SharedData,
    WakeUp,
    WorkerProcess,
)
from nacre.sandbox.worker_protocol import HEADER_BYTES, Command, Event, decode_header, encode_frame
from tests.sandbox.conftest import HeldHandler
from tests.security.forged_worker import forge_first_worker

METHODS = ("tools.search", "tools.describe", "tools.call", "namespace")


def catalog(*names: str, methods: tuple[str, ...] = METHODS) -> SharedData:
    ids = {name: f"openclaw:core:{name}" for name in names}
    entries = [{"id": id_, "name": name} for name, id_ in ids.items()]
    issues = {"o": {"list": {"f": True}, "version": {"v": 3}}}
    parts = {
        "tools": entries,
        "names": ids,
        "globals": ["Issues"],
        "namespaces": {"Issues": issues},
    }
    return SharedData(
        {name: json.dumps(part).encode() for name, part in parts.items()}, methods=methods
    )


async def echo(request: HostRequest) -> JsonValue:
    return [request.method, request.payload]


async def run(
    sandbox: Sandbox, code: str, shared: SharedData | None = None, limits: Limits | None = None
) -> Completed | Failed | Waiting:
    with anyio.fail_after(50):
        return await sandbox.cell(code, shared=shared, handler=echo, limits=limits).run()


async def value_of(sandbox: Sandbox, code: str, shared: SharedData | None = None) -> JsonValue:
    result = await run(sandbox, code, shared)
    assert isinstance(result, Completed), result
    return result.value


def pool_of(sandbox: Sandbox) -> WorkerPool:
    services = sandbox._services  # pyright: ignore[reportPrivateUsage]
    assert services is not None
    return services.runtime.pool


class SentFrames:
    """Every frame that goes to a worker: (pid, kind, fields)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._frames: list[tuple[int, Command, dict[str, object]]] = []
        send = WorkerProcess.send

        async def recorded(worker: WorkerProcess, data: bytes, *, until: float = math.inf) -> None:
            kind, fields_size, _ = decode_header(data)
            fields = json.loads(data[HEADER_BYTES : HEADER_BYTES + fields_size])
            self._frames.append((worker.pid, Command(kind), fields))
            await send(worker, data, until=until)

        monkeypatch.setattr(WorkerProcess, "send", recorded)

    def shares(self) -> list[dict[str, object]]:
        return [fields for _, kind, fields in self._frames if kind is Command.SHARE]

    def shares_by_worker(self) -> Counter[tuple[int, object]]:
        return Counter(
            (pid, fields["digest"]) for pid, kind, fields in self._frames if kind is Command.SHARE
        )

    def start_fields(self) -> list[dict[str, object]]:
        return [fields for _, kind, fields in self._frames if kind is Command.START]


# What a program finds.


async def test_a_program_reads_the_catalog_and_calls_what_is_in_it(sandbox: Sandbox) -> None:
    code = """
        return [
            ALL_TOOLS.length, Object.keys(tools), Issues.version,
            await tools.search("r", {limit: 2}), await tools.read({path: "x"}),
            await tools.describe("openclaw:core:read"), await Issues.list("open"),
        ]
    """
    assert await value_of(sandbox, code, catalog("read", "write")) == [
        2,
        ["search", "describe", "call", "read", "write"],
        3,
        ["tools.search", {"query": "r", "limit": 2}],
        ["tools.call", {"id": "openclaw:core:read", "input": {"path": "x"}}],
        ["tools.describe", {"id": "openclaw:core:read"}],
        ["namespace", {"namespace": "Issues", "path": ["list"], "args": ["open"]}],
    ]


async def test_without_shared_data_a_program_finds_no_catalog(sandbox: Sandbox) -> None:
    code = "return [typeof tools, typeof ALL_TOOLS, typeof namespaces, typeof Issues]"
    assert await value_of(sandbox, code, catalog("read")) == ["object"] * 4
    assert await value_of(sandbox, code) == ["undefined"] * 4


async def test_a_program_sees_its_own_catalog_in_a_worker_that_holds_others() -> None:
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        for names in (("a",), ("b", "c"), ("a",), ()):
            found = await value_of(
                sandbox, "return ALL_TOOLS.map((tool) => tool.name)", catalog(*names)
            )
            assert found == list(names)


async def test_hostile_names_are_found_nowhere(sandbox: Sandbox) -> None:
    code = r"""
        const names = [
            "__proto__", "constructor", "toString", "hasOwnProperty", "then", "toJSON", "", "0",
            "\ud800", "\0", "read\0", "x".repeat(1e6), "names", "__class__", "🦪",
        ];
        return names.filter((name) => tools[name] !== undefined || name in tools)
    """
    assert await value_of(sandbox, code, catalog("read")) == []


async def test_text_of_every_script_comes_through(sandbox: Sandbox) -> None:
    words = ["é", "日本", "🦪", 'quote"', "back\\slash", "\u2028"]
    assert await value_of(
        sandbox, "return [ALL_TOOLS.map((tool) => tool.name), Object.keys(tools)]", catalog(*words)
    ) == [words, ["search", "describe", "call", *words]]


async def test_an_error_of_a_tool_that_nobody_caught_has_its_own_reason(sandbox: Sandbox) -> None:
    async def refuse(request: HostRequest) -> JsonValue:
        raise HostRequestError("no such file", name="ToolError")

    async def reason_of(code: str) -> object:
        result = await sandbox.cell(code, shared=catalog("read"), handler=refuse).run()
        assert isinstance(result, Failed), result
        return result.reason, result.error.splitlines()[0]

    assert await reason_of("await tools.read()") == (
        "nested_tool_failed",
        "ToolError: no such file",
    )
    assert await reason_of("tools.read(); await Issues.list().catch(() => {}); return 1") == (
        "nested_tool_failed",
        "ToolError: no such file",
    )
    assert await reason_of("await tools.read().catch(() => { throw new Error('mine') })") == (
        "guest_error",
        "Error: mine",
    )


async def test_a_tool_that_does_not_exist_is_named_with_a_way_to_find_one(sandbox: Sandbox) -> None:
    result = await run(sandbox, "\nawait tools.send_mail({})", catalog("read"))
    assert isinstance(result, Failed)
    assert result.error == (
        "TypeError: not a function (tools.send_mail does not exist; find tools with "
        "tools.search(query))\n    at cell.js:2:13"
    )


async def test_a_catalog_larger_than_the_memory_of_a_program_fails_only_that_program(
    sandbox: Sandbox,
) -> None:
    large = SharedData({"tools": b'["%b"]' % (b"x" * (4 << 20))}, methods=())
    limits = Limits(memory_limit_bytes=2 << 20)
    result = await run(sandbox, "try { ALL_TOOLS } catch {} return 1", large, limits)
    assert isinstance(result, Failed)
    assert result.reason == "memory_limit_exceeded"
    assert isinstance(await run(sandbox, "return 1", large, limits), Completed)
    assert await value_of(sandbox, "return ALL_TOOLS[0].length", large) == 4 << 20


# Where it travels.


async def test_a_worker_is_given_the_same_data_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = SentFrames(monkeypatch)
    async with Sandbox(SandboxOptions(workers=2)) as sandbox:
        for _ in range(6):
            # Equal, not the same: the hash counts.
            assert await value_of(sandbox, "return ALL_TOOLS.length", catalog("read")) == 1
        assert await value_of(sandbox, "return 1") == 1
    assert set(sent.shares_by_worker().values()) == {1}
    assert len(sent.shares()) <= 2
    assert [fields["shared"] for fields in sent.start_fields()] == [
        *[catalog("read").digest] * 6,
        None,
    ]


async def test_a_suspended_program_finds_its_data_in_another_worker() -> None:
    code = """
        const {read} = tools;
        await yield_control();
        return [ALL_TOOLS.length, tools.read === read, await read(), await tools.write(),
            await Issues.list()]
    """
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        cell = sandbox.cell(code, shared=catalog("read", "write"), handler=echo)
        assert isinstance(await cell.run(), Waiting)
        (first,) = pool_of(sandbox).workers
        first.kill()
        with anyio.fail_after(50):
            await first.death.wait()
            result = await cell.resume()
        assert isinstance(result, Completed), result
        assert result.value == [
            2,
            True,
            ["tools.call", {"id": "openclaw:core:read", "input": {}}],
            ["tools.call", {"id": "openclaw:core:write", "input": {}}],
            ["namespace", {"namespace": "Issues", "path": ["list"], "args": []}],
        ]


async def test_programs_that_move_out_under_pressure_keep_their_data(held: HeldHandler) -> None:
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        results: list[JsonValue] = []

        async def run_one(name: str) -> None:
            code = "await tools.call('x'); return [ALL_TOOLS[0].name, Object.keys(tools).length]"
            cell = sandbox.cell(
                code, shared=catalog(name), handler=held, limits=Limits(timeout_ms=60_000)
            )
            result = await cell.run()
            assert isinstance(result, Completed), result
            results.append(result.value)

        with anyio.fail_after(50):
            async with anyio.create_task_group() as tasks:
                for name in "abcdef":
                    tasks.start_soon(run_one, name)
                await held.received(6)
                held.answer(1, None)
        assert sorted(map(str, results)) == [str([name, 4]) for name in "abcdef"]


async def test_what_was_not_used_for_long_is_forgotten_and_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nacre.sandbox.worker_process._MAX_SENT_ITEMS", 2)
    sent = SentFrames(monkeypatch)
    digest = {name: catalog(name).digest for name in "abc"}
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        for name in "abacab":
            assert await value_of(sandbox, "return ALL_TOOLS[0].name", catalog(name)) == name
    assert [(fields["digest"], fields["forget"]) for fields in sent.shares()] == [
        (digest["a"], []),
        (digest["b"], []),
        (digest["c"], [digest["b"]]),
        (digest["b"], [digest["c"]]),
    ]


async def test_a_worker_that_was_cut_off_in_the_middle_of_the_data_is_replaced() -> None:
    large = SharedData({"tools": b'["%b"]' % (b"x" * (16 << 20))}, methods=())
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        assert await value_of(sandbox, "return 1") == 1
        (stopped,) = pool_of(sandbox).workers
        os.kill(stopped.pid, signal.SIGSTOP)
        cell = sandbox.cell("return 1", shared=large)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cell.run)
            await anyio.wait_all_tasks_blocked()
            await cell.abort()
        assert await value_of(sandbox, "return ALL_TOOLS[0].length", large) == 16 << 20
        assert stopped not in pool_of(sandbox).workers


# What it allows.


async def test_a_request_that_the_data_does_not_allow_costs_the_worker() -> None:
    shared = catalog("read", methods=("tools.search",))
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        assert await value_of(sandbox, "return await tools.search('x')", shared) == [
            "tools.search",
            {"query": "x"},
        ]
        result = await run(sandbox, "return await tools.read()", shared)
        assert isinstance(result, Failed)
        assert result.reason == "worker_lost"
        assert "a request that the program cannot make" in result.error


@pytest.mark.parametrize("shared", [None, catalog("read", methods=("tools.search",))])
async def test_a_forged_request_of_a_method_that_was_not_given_is_refused(
    monkeypatch: pytest.MonkeyPatch, shared: SharedData | None
) -> None:
    payload = b'{"id":"openclaw:core:exec","input":{}}'
    forged = {"requests": [[1, "tools.call", len(payload)]], "busyMs": 1}
    answer = encode_frame(Event.PARKED, forged, payload)
    # A forged worker answers every command, and SHARE is not to be answered.
    answers = [answer] if shared is None else [b"", answer]
    forge_first_worker(monkeypatch, answers)
    called: list[HostRequest] = []

    async def handler(request: HostRequest) -> JsonValue:
        called.append(request)
        return None

    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        with anyio.fail_after(50):
            result = await sandbox.cell("return 1", shared=shared, handler=handler).run()
        assert isinstance(result, Failed)
        assert result.reason == "worker_lost"
    assert called == []


# The data itself.


def test_equal_parts_have_one_digest_in_any_order() -> None:
    first = SharedData({"a": b"1", "b": b"2"}, methods=["x"])
    second = SharedData({"b": b"2", "a": b"1"}, methods=[])
    assert first.digest == second.digest
    assert (first.size, first.methods) == (2, frozenset({"x"}))


def test_parts_that_only_look_alike_have_different_digests() -> None:
    alike = [{"a": b"bc"}, {"ab": b"c"}, {"a": b"b", "c": b""}, {"a": b"", "bc": b""}, {"abc": b""}]
    assert len({SharedData(parts, methods=()).digest for parts in alike}) == len(alike)


def test_shared_data_does_not_change_with_what_it_was_made_of() -> None:
    parts = {"a": b"1"}
    data = SharedData(parts, methods=())
    parts["a"] = b"2"
    assert dict(data.parts) == {"a": b"1"}
    with pytest.raises(TypeError):
        data.parts["a"] = b"3"  # pyright: ignore[reportIndexIssue]


def test_a_part_that_is_not_bytes_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="part 'tools' must be bytes, not a str"):
        SharedData({"tools": "[]"}, methods=())  # pyright: ignore[reportArgumentType]


def test_data_beyond_what_a_worker_can_take_is_refused() -> None:
    SharedData({"a": b"x" * MAX_SHARED_BYTES}, methods=())
    with pytest.raises(ValueError, match=f"the limit is {MAX_SHARED_BYTES}"):
        SharedData({"a": b"x" * MAX_SHARED_BYTES, "b": b"x"}, methods=())


def test_a_worker_never_holds_more_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nacre.sandbox.worker_process._MAX_SENT_BYTES", 100)
    sent = SentData()
    first, second, third = (SharedData({"a": b"%02d" % n * 25}, methods=()) for n in range(3))
    for data in (first, second):
        assert sent.choose_evictions(data.size) == []
        sent.record(data, evicted=[])
    assert sent.has(first.digest)
    assert sent.choose_evictions(third.size) == [second.digest]
    assert sent.choose_evictions(100) == [second.digest, first.digest]


async def test_a_wait_without_a_limit_outlives_the_timer_of_an_earlier_one() -> None:
    wake = WakeUp()
    loop = asyncio.get_running_loop()
    loop.call_soon(wake.set)
    await wake.wait(0.001)
    ended: list[str] = []

    async def wait() -> None:
        await wake.wait()
        ended.append("by set")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        # Due after the timer of the first wait, so it runs after it.
        await asyncio.sleep(0.002)
        assert not ended
        wake.set()
    assert ended


async def test_a_wait_ends_at_its_own_deadline_although_an_earlier_one_had_more_time() -> None:
    wake = WakeUp()
    asyncio.get_running_loop().call_soon(wake.set)
    await wake.wait(3600)
    await wake.wait(0.001)
    wake.close()


async def test_a_wait_does_not_end_with_the_earlier_deadline_of_another_one() -> None:
    wake = WakeUp()
    loop = asyncio.get_running_loop()
    loop.call_soon(wake.set)
    await wake.wait(0.001)
    deadline = loop.time() + 0.02
    await wake.wait(0.02)
    assert loop.time() >= deadline
