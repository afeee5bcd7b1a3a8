"""Programs on a real Ray cluster with two nodes, both on this machine."""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import anyio
import anyio.to_thread
import psutil
import pytest

from nacre.config import RayConfig
from nacre.errors import ConfigError, RuntimeUnavailableError
from nacre.json_types import JsonValue
from nacre.sandbox import (
    Cell,
    CellResult,
    Completed,
    Failed,
    HostRequest,
    KeyRing,
    Limits,
    Sandbox,
    SandboxOptions,
    SharedData,
    Waiting,
    new_key,
)
from nacre.sandbox.executor import Worker
from nacre.sandbox.pool import WorkerPool
from nacre.sandbox.ray_executor import RayCluster, RayNode, check_reachable, find_difference
from nacre.sandbox.ray_supervisor import Exchange, NodeFacts
from tests.sandbox.cell_results import echo, failure_of, value_of
from tests.sandbox.conftest import HeldHandler

# Ray opens files and sockets that it never closes.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray then stays on the loopback interface.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # On a busy machine.
    "RAY_raylet_start_wait_time_s": "120",
}
_LONG = Limits(timeout_ms=60_000)


class TwoNodes:
    """A cluster whose head runs no programs, and two nodes with one CPU each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster: Any = cast("Any", Cluster)(
            initialize_head=True,
            head_node_args={
                **self._node_settings(0),
                "_system_config": {"prestart_worker_first_driver": False},
            },
        )
        self.address: str = self._cluster.address
        self._nodes: list[Any] = [self._add_node(), self._add_node()]

    def _node_settings(self, cpus: int) -> dict[str, object]:
        return {
            "num_cpus": cpus,
            "node_ip_address": "127.0.0.1",
            "include_dashboard": False,
            "object_store_memory": 80 << 20,
        }

    def _add_node(self) -> Any:
        return self._cluster.add_node(**self._node_settings(1))

    def kill_node(self, name: str) -> None:
        """Kill the node of this name without a warning."""
        (node,) = (node for node in self._nodes if node.node_id.startswith(name))
        self._nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def complete(self) -> None:
        """Replace the node that was killed. Ray allows that in the main thread only."""
        while len(self._nodes) < 2:
            self._nodes.append(self._add_node())

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    before = set(psutil.Process().children(recursive=True))
    patch = pytest.MonkeyPatch()
    for name, value in _ENVIRONMENT.items():
        patch.setenv(name, value)
    nodes = TwoNodes()
    yield nodes
    nodes.close()
    patch.undo()
    _, alive = psutil.wait_procs(
        set(psutil.Process().children(recursive=True)) - before, timeout=30
    )
    assert alive == []


@pytest.fixture
def complete_cluster(cluster: TwoNodes) -> TwoNodes:
    """The cluster, with two nodes also after a test that killed one."""
    cluster.complete()
    return cluster


@pytest.fixture(scope="module")
async def sandbox(cluster: TwoNodes) -> AsyncIterator[Sandbox]:
    async with open_sandbox(cluster) as sandbox:
        await wait_for_nodes(sandbox)
        yield sandbox


def open_sandbox(cluster: TwoNodes, keys: KeyRing | None = None) -> Sandbox:
    ray = RayConfig(address=cluster.address, workers_per_node=2)
    return Sandbox(SandboxOptions(ray=ray, keys=keys))


def nodes_of(sandbox: Sandbox) -> "list[RayNode]":
    found = cast("RayCluster", sandbox._cluster)  # pyright: ignore[reportPrivateUsage]
    return found.nodes


async def wait_for_nodes(sandbox: Sandbox) -> None:
    """Wait until both nodes have all their workers."""
    await sandbox.ensure_available()
    with anyio.fail_after(120):
        while len(nodes_of(sandbox)) < 2 or len(sandbox.workers) < 4:
            await anyio.wait_all_tasks_blocked()


def pool_of(sandbox: Sandbox) -> WorkerPool:
    return sandbox._services.runtime.pool  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]


def worker_of(cell: Cell) -> Worker:
    worker = cell._vm._worker  # pyright: ignore[reportPrivateUsage]
    assert worker is not None
    return worker


async def wait_for_worker(cell: Cell) -> Worker:
    """Wait until the cell runs in a worker."""
    with anyio.fail_after(60):
        while cell._vm._worker is None:  # pyright: ignore[reportPrivateUsage]
            await anyio.wait_all_tasks_blocked()
    return worker_of(cell)


async def run_and_lose_node(
    cluster: TwoNodes, sandbox: Sandbox, cell: Cell, run: Callable[[], Awaitable[CellResult]]
) -> tuple[CellResult, list[str]]:
    """Run a leg, kill its node in the middle of it, and return the result and all its nodes."""
    results: list[CellResult] = []

    async def run_leg() -> None:
        results.append(await run())

    nodes: list[str] = []
    acquire = pool_of(sandbox).acquire

    async def acquire_and_note(owner: str) -> Worker:
        worker = await acquire(owner)
        nodes.append(worker.node)
        return worker

    pool_of(sandbox).acquire = acquire_and_note
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_leg)
            worker = await wait_for_worker(cell)
            # The burst has begun: its worker uses CPU time.
            await anyio.to_thread.run_sync(wait_until_busy, worker.pid)
            await anyio.to_thread.run_sync(cluster.kill_node, worker.node)
    finally:
        pool_of(sandbox).acquire = acquire
    return results[0], nodes


def wait_until_busy(pid: int) -> None:
    process = psutil.Process(pid)
    before = process.cpu_times().user
    while process.cpu_times().user < before + 0.1:
        pass


async def test_a_program_runs_on_a_node(sandbox: Sandbox) -> None:
    cell = sandbox.cell("text('out'); json([1]); return 6 * 7")
    result = await cell.run()
    assert isinstance(result, Completed), result
    assert (result.value, len(result.output)) == (42, 2)
    assert os.getpid() not in {pid for pid, _ in sandbox.workers}


async def test_typescript_and_shared_data_work_on_nodes(sandbox: Sandbox) -> None:
    shared = SharedData({"tools": b"[]", "names": b"{}"}, methods=("tools.search",))
    for _ in range(4):
        result = await sandbox.cell(
            "const n: number = 3; return [n, await tools.search('x')]",
            language="typescript",
            shared=shared,
            handler=echo,
            limits=_LONG,
        ).run()
        assert isinstance(result, Completed), result
        assert result.value == [3, {"query": "x"}]


async def test_nested_calls_are_answered_by_this_process(sandbox: Sandbox) -> None:
    asked: list[int] = []

    async def handler(request: HostRequest) -> JsonValue:
        asked.append(os.getpid())
        return request.payload

    code = """
        let sum = 0;
        for (let n = 0; n < 5; n++) sum += await call(n);
        const many = await Promise.all([1, 2, 3].map((n) => call(n)));
        return [sum, many];
    """
    result = await sandbox.cell(code, functions=("call",), handler=handler).run()
    assert isinstance(result, Completed), result
    assert result.value == [10, [1, 2, 3]]
    assert asked == [os.getpid()] * 8


async def test_a_suspended_program_continues_on_another_node(sandbox: Sandbox) -> None:
    cell = sandbox.cell("let n = 1; await yield_control(); return n + 1", limits=_LONG)
    first: list[str] = []
    acquire = pool_of(sandbox).acquire

    async def acquire_and_note(owner: str) -> Worker:
        worker = await acquire(owner)
        first.append(worker.node)
        return worker

    pool_of(sandbox).acquire = acquire_and_note
    try:
        assert isinstance(await cell.run(), Waiting)
        assert cell.snapshot is not None
        # A cell that computes on the node of the first leg, so that the other is less busy.
        others = [
            worker
            for worker in [await acquire("other") for _ in range(2)]
            if worker.node == first[0] or pool_of(sandbox).release(worker)
        ]
        result = await cell.resume()
        for worker in others:
            pool_of(sandbox).release(worker)
    finally:
        pool_of(sandbox).acquire = acquire
    assert isinstance(result, Completed), result
    assert result.value == 2
    assert len(set(first)) == 2, first


async def test_cells_spread_over_the_nodes(sandbox: Sandbox) -> None:
    cells = [sandbox.cell("for (;;);", limits=_LONG, owner=str(n)) for n in range(2)]
    async with anyio.create_task_group() as tasks:
        for cell in cells:
            tasks.start_soon(cell.run)
        nodes = {(await wait_for_worker(cell)).node for cell in cells}
        for cell in cells:
            await cell.abort()
        assert len(nodes) == 2


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        ("for (;;);", Limits(timeout_ms=200), "timeout"),
        ("const a = []; for (;;) a.push(new Uint8Array(1e6))", _LONG, "memory_limit_exceeded"),
        ("for (;;) text('x'.repeat(1000))", _LONG, "output_limit_exceeded"),
        ("return require('fs')", _LONG, "module_access_denied"),
        ("function f() { f() } f()", _LONG, "guest_error"),
        ("await new Promise(() => {})", _LONG, "never_settles"),
        ("return (", _LONG, "syntax_error"),
    ],
)
async def test_limits_hold_on_nodes(
    sandbox: Sandbox, code: str, limits: Limits, reason: str
) -> None:
    assert (await failure_of(sandbox, code, limits)).reason == reason
    assert await value_of(sandbox, "return 1") == 1


async def test_an_aborted_program_frees_its_worker(sandbox: Sandbox) -> None:
    cell = sandbox.cell("for (;;);", limits=_LONG)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cell.run)
        worker = await wait_for_worker(cell)
        await cell.abort()
        assert not worker.is_dead
    assert await value_of(sandbox, "return 1") == 1


async def test_an_abort_may_arrive_before_the_program(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray does not promise that a supervisor gets calls in the order in which they were made."""
    call = RayNode.call
    delayed: list[tuple[Any, ...]] = []
    is_requested, is_aborting = anyio.Event(), anyio.Event()

    def delay(node: RayNode, method: str, *arguments: object) -> Awaitable[Any]:
        if method == "exchange" and not delayed:
            delayed.append((node, method, *arguments))
            is_requested.set()
            return anyio.sleep_forever()
        if method == "abort":
            is_aborting.set()
        return call(node, method, *arguments)

    async def deliver() -> None:
        await is_aborting.wait()
        for _ in range(50):
            await call(delayed[0][0], "describe")
        assert Exchange(*await call(*delayed[0])).problem == "the program was aborted"

    monkeypatch.setattr(RayNode, "call", delay)
    cell = sandbox.cell("for (;;);", limits=_LONG)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deliver)
            tasks.start_soon(cell.run)
            await is_requested.wait()
            await cell.abort()
    assert await value_of(sandbox, "return 1") == 1


async def test_the_death_of_a_worker_fails_its_waiting_cell_alone(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    cell = sandbox.cell("return await call()", functions=("call",), handler=held, limits=_LONG)
    results: list[CellResult] = []

    async def run() -> None:
        results.append(await cell.run())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await held.received(1)
            psutil.Process(worker_of(cell).pid).kill()
    assert isinstance(results[0], Failed)
    assert results[0].reason == "worker_lost"
    assert await value_of(sandbox, "return 1") == 1


async def test_a_program_that_kills_its_worker_is_not_repeated(sandbox: Sandbox) -> None:
    cell = sandbox.cell("for (;;);", limits=_LONG)
    results: list[CellResult] = []

    async def run() -> None:
        results.append(await cell.run())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            pid = (await wait_for_worker(cell)).pid
            await anyio.to_thread.run_sync(wait_until_busy, pid)
            psutil.Process(pid).kill()
    assert isinstance(results[0], Failed)
    assert (results[0].reason, "SIGKILL" in results[0].error) == ("worker_lost", True)


async def test_the_report_has_the_hardening_of_the_nodes(sandbox: Sandbox) -> None:
    report = await sandbox.check()
    assert report.problem == ""
    assert report.hardening is not None
    applied = {measure.name for measure in report.hardening.measures if measure.applied}
    assert {"no_new_privileges", "not_dumpable", "no_new_executable_memory"} <= applied
    assert not report.hardening.unmet(None)


async def test_a_node_without_a_required_protection_serves_no_cell(
    cluster: TwoNodes,
) -> None:
    # No kernel has it, so no worker reports it.
    ray = RayConfig(address=cluster.address, workers_per_node=1)
    options = SandboxOptions(ray=ray)
    object.__setattr__(options, "require", ("selinux",))
    async with Sandbox(options) as sandbox:
        with anyio.fail_after(120):
            result = await sandbox.cell("return 1").run()
    assert isinstance(result, Failed)
    assert result.reason == "runtime_unavailable"
    assert "lacks required protections: selinux (not reported)" in result.error


async def test_two_sandboxes_share_a_cluster_and_move_cells(
    cluster: TwoNodes, sandbox: Sandbox
) -> None:
    keys = KeyRing(new_key())
    code = "let n = 20; await yield_control(); return n + 1"
    async with open_sandbox(cluster, keys) as first:
        cell = first.cell(code)
        assert isinstance(await cell.run(), Waiting)
        stored = cell.to_stored()
    async with open_sandbox(cluster, keys) as second:
        assert await value_of(second, "return 1") == 1
        result = await second.cell(code, stored=stored).resume()
        assert isinstance(result, Completed), result
        assert result.value == 21
        assert {pid for pid, _ in second.workers}.isdisjoint({pid for pid, _ in sandbox.workers})
    assert await value_of(sandbox, "return 2") == 2


async def test_nothing_listens_outside_of_this_machine(cluster: TwoNodes, sandbox: Sandbox) -> None:
    def addresses() -> set[str]:
        found: set[str] = set()
        for process in psutil.Process().children(recursive=True):
            # Some end meanwhile.
            with suppress(psutil.NoSuchProcess):
                connections = process.net_connections("inet")
                found |= {it.laddr.ip for it in connections if it.status == psutil.CONN_LISTEN}
        return found

    assert await anyio.to_thread.run_sync(addresses) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


# The nodes that are lost are replaced, so these tests come last.


async def test_a_program_without_calls_is_repeated_when_its_node_is_lost(
    complete_cluster: TwoNodes, sandbox: Sandbox
) -> None:
    await wait_for_nodes(sandbox)
    code = "const end = Date.now() + 3000; let n = 0; while (Date.now() < end) n = 7; return n"
    cell = sandbox.cell(code, limits=_LONG)
    result, nodes = await run_and_lose_node(complete_cluster, sandbox, cell, cell.run)
    assert isinstance(result, Completed), result
    assert result.value == 7
    assert len(nodes) == len(set(nodes)) == 2


async def test_a_program_is_repeated_from_its_snapshot_when_its_node_is_lost(
    complete_cluster: TwoNodes, sandbox: Sandbox
) -> None:
    await wait_for_nodes(sandbox)
    called: list[JsonValue] = []

    async def handler(request: HostRequest) -> JsonValue:
        called.append(request.payload)
        return request.payload

    code = """
        const n = await call(5);
        await yield_control();
        const end = Date.now() + 3000;
        while (Date.now() < end);
        return n;
    """
    cell = sandbox.cell(code, functions=("call",), handler=handler, limits=_LONG)
    assert isinstance(await cell.run(), Waiting)
    result, nodes = await run_and_lose_node(complete_cluster, sandbox, cell, cell.resume)
    assert isinstance(result, Completed), result
    assert (result.value, called) == (5, [5])
    assert len(nodes) == len(set(nodes)) == 2


async def test_a_program_with_calls_fails_when_its_node_is_lost(
    complete_cluster: TwoNodes, sandbox: Sandbox, held: HeldHandler
) -> None:
    await wait_for_nodes(sandbox)
    cell = sandbox.cell("return await call()", functions=("call",), handler=held, limits=_LONG)
    results: list[CellResult] = []

    async def run() -> None:
        results.append(await cell.run())

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await held.received(1)
            await anyio.to_thread.run_sync(complete_cluster.kill_node, worker_of(cell).node)
    assert isinstance(results[0], Failed)
    assert (results[0].reason, held.cancelled) == ("worker_lost", [1])
    assert await value_of(sandbox, "return 1") == 1


# Errors.


def test_a_node_that_differs_says_how() -> None:
    ours = NodeFacts(python="3.11", nacre="0.1.0", image="a" * 64)
    assert find_difference(ours, ours) == ""
    other = ours._replace(python="3.12", image="b" * 64)
    assert find_difference(other, ours) == (
        "it has Python 3.12 instead of 3.11 and the sandbox image bbbbbbbbbbbb instead of "
        "aaaaaaaaaaaa; install the same version of Nacre on all nodes"
    )


async def test_ray_that_is_not_installed_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(ConfigError, match=r"Ray is not installed; install `nacre-ai\[ray\]`"):
        Sandbox(SandboxOptions(ray=RayConfig()))


def test_an_address_of_ray_client_is_refused() -> None:
    with pytest.raises(ConfigError, match="Ray Client"):
        RayConfig(address="ray://127.0.0.1:10001")


def test_a_cluster_that_is_not_reachable_is_reported_with_its_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(RuntimeUnavailableError, match=f"'{address}' is not reachable"):
            check_reachable(address)
