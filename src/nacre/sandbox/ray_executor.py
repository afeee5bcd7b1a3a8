"""Workers on the nodes of a Ray cluster.

Each node that has a CPU gets a supervisor, a Ray actor (`ray_supervisor.py`). A burst of a program
is one call of it: START or RESTORE, the command and all events travel together. Ray runs the
supervisors and reports the loss of a node. Pool, budgets, host requests, snapshots and keys stay in
this process.
"""

import contextlib
import importlib
import importlib.util
import logging
import math
import os
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import anyio.to_thread

from nacre.config import Protection, RayConfig
from nacre.errors import (
    ConfigError,
    NodeLostError,
    RuntimeUnavailableError,
    WorkerDiedError,
    WorkerProtocolError,
)
from nacre.sandbox.hardening import HardeningReport
from nacre.sandbox.image import Image, ImageKind, load_image
from nacre.sandbox.ray_supervisor import (
    Exchange,
    NodeFacts,
    NodeSupervisor,
    Started,
    local_facts,
)
from nacre.sandbox.worker_process import SentData, SharedData, encode_shared, run_in_thread
from nacre.sandbox.worker_protocol import Event, Frame

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

# How often the list of nodes is read. The loss of a node is reported earlier, by its supervisor.
_POLL_SECONDS: Final = 1.0
_CONNECT_SECONDS: Final = 60.0
_REACH_SECONDS: Final = 5.0
# How long a supervisor may take to start: a new Python process that imports Nacre.
_SUPERVISOR_SECONDS: Final = 120.0
# How much later than a worker its supervisor may answer. Ray reports a lost node by itself.
_TRANSPORT_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0
# How long a node without a working supervisor or worker gets no other attempt.
_RETRY_SECONDS: Final = 10.0
_MAX_DETAIL_CHARACTERS: Final = 500


def require_ray() -> None:
    """Raise ConfigError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            "sandbox.executor",
            'is "ray", but Ray is not installed; install `nacre-ai[ray]` here and on all nodes',
        )


class _Connection:
    """The connection of this process to a Ray cluster. A process can have only one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._user_count = 0
        self._is_ours = False

    def open(self, address: str) -> Any:
        """Connect, unless this process is connected already, and return the module of Ray."""
        with self._lock:
            # Imported late: it takes a second, and nobody else needs it.
            ray: Any = importlib.import_module("ray")
            if not ray.is_initialized():
                check_reachable(address)
                try:
                    ray.init(
                        address=address,
                        namespace="nacre",
                        configure_logging=False,
                        log_to_driver=False,
                    )
                except Exception as error:
                    raise RuntimeUnavailableError(
                        f"cannot connect to the Ray cluster {address!r}: {_shorten(error)}"
                    ) from error
                self._is_ours = True
            self._user_count += 1
            return ray

    def close(self, ray: Any) -> None:
        """Disconnect when the last user is gone, unless somebody else has connected."""
        with self._lock:
            self._user_count -= 1
            if not self._user_count and self._is_ours:
                self._is_ours = False
                ray.shutdown()


_connection = _Connection()


def check_reachable(address: str) -> None:
    """Raise RuntimeUnavailableError if nobody listens: Ray itself would try for many minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()
    except OSError as error:
        raise RuntimeUnavailableError(
            f"the Ray cluster {address!r} is not reachable ({error}); check `sandbox.ray.address`, "
            "and whether its head node runs"
        ) from error


def _shorten(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text[:_MAX_DETAIL_CHARACTERS]


def find_difference(node: NodeFacts, ours: NodeFacts) -> str:
    """Return how a node differs from this process; empty if programs can move between them."""
    names = {"python": "Python", "nacre": "Nacre", "image": "the sandbox image"}
    different = [
        f"{names[field]} {getattr(node, field)[:12]} instead of {getattr(ours, field)[:12]}"
        for field in NodeFacts._fields
        if getattr(node, field) != getattr(ours, field)
    ]
    if not different:
        return ""
    return f"it has {' and '.join(different)}; install the same version of Nacre on all nodes"


class RayNode:
    """A node of the cluster with its supervisor."""

    def __init__(self, ray: Any, supervisor: Any, *, name: str, workers: int) -> None:
        self._ray = ray
        self._supervisor = supervisor
        self.name = name
        self._loss = f"the node {name} of the Ray cluster was lost"
        self.size = workers
        self.workers: dict[str, RemoteWorker] = {}
        self.starting = 0
        self.problem = ""
        self._retry_at = 0.0

    @property
    def is_usable(self) -> bool:
        return not self.problem or time.monotonic() >= self._retry_at

    def refuse(self, problem: str) -> None:
        """Use the node no more for a while."""
        self.problem = problem
        self._retry_at = time.monotonic() + _RETRY_SECONDS

    async def call(self, method: str, *arguments: object) -> Any:
        """Call the supervisor. Raises NodeLostError, and WorkerDiedError for a bug in it."""
        errors = self._ray.exceptions
        try:
            return await getattr(self._supervisor, method).remote(*arguments)
        except errors.RayTaskError as error:
            raise WorkerDiedError(f"the supervisor of a node failed: {_shorten(error)}") from error
        except errors.RayError as error:
            self.note_loss()
            raise NodeLostError(self._loss) from error

    async def follow_deaths(self) -> None:
        """Mark workers as dead when they die, until the node is lost: NodeLostError."""
        while True:
            for worker_id in await self.call("wait_for_deaths"):
                worker = self.workers.get(worker_id)
                # An exchange reports the death itself, with the reason.
                if worker is not None and not worker.is_exchanging:
                    worker.note_death("the worker process died")

    def close(self) -> None:
        """End the supervisor, and with it its workers."""
        self._ray.kill(self._supervisor)

    def note_loss(self) -> None:
        """Mark all workers as dead, so that no cell gets one of them."""
        for worker in tuple(self.workers.values()):
            worker.note_death(self._loss, is_node_lost=True)


class RemoteWorker:
    """A worker process on a node. Commands wait here until an event is needed."""

    def __init__(self, node: RayNode, started: Started) -> None:
        self._node = node
        self._id = started.worker_id
        self._pid = started.pid
        self._start: tuple[list[bytes], float] = ([], 0.0)
        self._outbox: list[bytes] = []
        self._inbox: deque[Frame] = deque()
        self.is_exchanging = False
        self._exchange_count = 0
        self._is_late = False
        self._problem = ""
        self._is_node_lost = False
        self._sent_data = SentData()
        self.started = time.monotonic()
        self.must_be_silent = True
        self.is_dead = False
        self.death = anyio.Event()
        self.on_death: Callable[[], None] | None = None
        node.workers[self._id] = self

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def node(self) -> str:
        return self._node.name

    @property
    def has_unread(self) -> bool:
        return bool(self._inbox)

    def cpu_seconds(self) -> float:
        return 0.0

    async def start(self, frame: bytes, *, shared: SharedData | None, seconds: float) -> Frame:
        """Keep the frame for the first exchange, which sends it together with the command."""
        frames = [frame]
        if shared is not None and not self._sent_data.has(shared.digest):
            frames.insert(0, encode_shared(shared, self._sent_data))
        self._start = (frames, seconds)
        return Frame(Event.STARTED, {}, b"")

    async def send(self, data: bytes, *, until: float = math.inf) -> None:
        """Keep the data for the next exchange."""
        if self.is_dead:
            raise self._error()
        self._outbox.append(data)

    async def event(self, *, until: float = math.inf) -> Frame:
        """Return the next event. Raises WorkerDiedError and TimeoutError."""
        while not self._inbox:
            if self._is_late:
                raise TimeoutError
            if self.is_dead:
                raise self._error()
            await self._exchange(until)
        return self._inbox.popleft()

    async def _exchange(self, until: float) -> None:
        (start, start_seconds), self._start = self._start, ([], 0.0)
        command, self._outbox = self._outbox, []
        seconds = max(until - time.monotonic(), 0.0)
        done = None
        self.is_exchanging = True
        self._exchange_count += 1
        with anyio.move_on_after(start_seconds + seconds + _TRANSPORT_SECONDS):
            try:
                arguments = (self._id, start, start_seconds, command, seconds)
                done = Exchange(*await self._node.call("exchange", *arguments))
            finally:
                self.is_exchanging = False
        if done is None:
            self.note_death(f"the node {self.node} does not answer", is_node_lost=True)
            raise self._error()
        self._inbox.extend(Frame(*event) for event in done.events)
        self._is_late = done.is_late
        if done.problem:
            self.note_death(done.problem, is_node_lost=not done.has_started)

    def expect_silence(self) -> None:
        """Raise WorkerProtocolError if there are more events."""
        if self._inbox:
            raise WorkerProtocolError("a worker sent more messages than expected")

    async def abort(self, command: int) -> bool:
        """Make the worker drop its VM. Returns False if it does not answer in time."""
        self._inbox.clear()
        if self.is_dead or self._is_late or self._outbox or self._start[0]:
            return False
        with anyio.move_on_after(_STOP_SECONDS):
            try:
                return await self._node.call("abort", self._id, self._exchange_count)
            except WorkerDiedError:
                return False
        return False

    def kill(self) -> None:
        """Give the worker up. `stop` ends its process."""
        self.note_death("the worker process was killed")

    async def stop(self) -> None:
        """Kill the process and wait for its end. Can be called twice."""
        self.kill()
        if self._node.workers.pop(self._id, None) is not None and not self._is_node_lost:
            with anyio.move_on_after(_STOP_SECONDS):
                with contextlib.suppress(WorkerDiedError):
                    await self._node.call("stop", self._id)

    def note_death(self, problem: str, *, is_node_lost: bool = False) -> None:
        """Mark the worker as dead, once."""
        if self.is_dead:
            return
        self.is_dead = True
        self._problem, self._is_node_lost = problem, is_node_lost
        self.death.set()
        if self.on_death is not None:
            self.on_death()

    def _error(self) -> WorkerDiedError:
        kind = NodeLostError if self._is_node_lost else WorkerDiedError
        return kind(self._problem)


class RayCluster:
    """The nodes that run the programs of one sandbox. An async context manager.

    The first worker connects to the cluster.
    """

    def __init__(self, config: RayConfig, *, required: tuple[Protection, ...] | None) -> None:
        require_ray()
        self._config = config
        self._required = required
        self._tasks = anyio.create_task_group()
        self._opening = anyio.Lock()
        self._ray: Any = None
        self._nodes: dict[str, RayNode | None] = {}
        """By id; None while its supervisor starts."""
        self._refused: dict[str, tuple[str, float]] = {}
        """Why nodes have no supervisor, and when to try again."""
        self._has_looked = False
        self._changed = anyio.Event()
        # Programs see one clock, also after a move between nodes.
        self._clock_offset_ns = time.time_ns() - time.monotonic_ns()
        self.on_resize: Callable[[int], None] = lambda _: None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        if self._ray is not None:
            with anyio.CancelScope(shield=True):
                await run_in_thread(self._close)

    def _close(self) -> None:
        for node in self.nodes:
            node.close()
        _connection.close(self._ray)

    @property
    def nodes(self) -> list[RayNode]:
        """The nodes with a supervisor."""
        return [node for node in self._nodes.values() if node is not None]

    async def choose_node(self) -> RayNode:
        """Return the usable node with the fewest workers for its size. Waits for nodes that start.

        Raises RuntimeUnavailableError.
        """
        await self._open()
        while True:
            usable = [node for node in self.nodes if node.is_usable]
            if usable:
                return min(usable, key=lambda it: (len(it.workers) + it.starting) / it.size)
            if self._has_looked and None not in self._nodes.values():
                raise RuntimeUnavailableError(self._explain())
            await self._changed.wait()

    def note_change(self) -> None:
        """Report the size of the cluster to the pool, and wake the tasks that wait for a node."""
        self._changed.set()
        self._changed = anyio.Event()
        self.on_resize(max(1, sum(node.size for node in self.nodes if not node.problem)))

    def _explain(self) -> str:
        problems = [f"node {node.name}: {node.problem}" for node in self.nodes if node.problem]
        problems += [problem for problem, _ in self._refused.values()]
        return "no node of the Ray cluster can run programs: " + (
            "; ".join(problems) or "no node has a CPU"
        )

    async def _open(self) -> None:
        async with self._opening:
            if self._ray is not None:
                return
            with anyio.move_on_after(_CONNECT_SECONDS):
                self._ray = await anyio.to_thread.run_sync(
                    _connection.open, self._config.address, abandon_on_cancel=True
                )
                self._tasks.start_soon(self._watch_nodes)
                return
            raise RuntimeUnavailableError(
                f"no connection to the Ray cluster {self._config.address!r} within "
                f"{_CONNECT_SECONDS:g} s"
            )

    async def _watch_nodes(self) -> None:
        while True:
            try:
                found: list[dict[str, Any]] = await run_in_thread(self._ray.nodes)
            except Exception as error:
                logger.warning("cannot list the nodes of the Ray cluster: %s", _shorten(error))
            else:
                now = time.monotonic()
                alive = {info["NodeID"] for info in found if info["Alive"]}
                for lost in self._refused.keys() - alive:
                    del self._refused[lost]
                for info in found:
                    node_id, cpus = info["NodeID"], info["Resources"].get("CPU", 0)
                    _, retry_at = self._refused.get(node_id, ("", 0.0))
                    if node_id in alive - self._nodes.keys() and cpus and now >= retry_at:
                        self._nodes[node_id] = None
                        self._tasks.start_soon(self._serve_node, node_id, info, int(cpus))
                self._has_looked = True
                self._changed.set()
                self._changed = anyio.Event()
            await anyio.sleep(_POLL_SECONDS)

    async def _serve_node(self, node_id: str, info: dict[str, Any], cpus: int) -> None:
        """Start a supervisor on a node, and follow it until the node is lost."""
        # Models read it in results, so it is not the name of the machine.
        name = node_id[:8]
        size = self._config.workers_per_node or max(2, min(cpus, 8))
        node = RayNode(self._ray, self._make_supervisor(node_id), name=name, workers=size)
        try:
            with anyio.fail_after(_SUPERVISOR_SECONDS):
                facts = NodeFacts(*await node.call("describe"))
                difference = find_difference(facts, await run_in_thread(local_facts))
                if difference:
                    raise RuntimeUnavailableError(difference)
                await node.call("open", time.monotonic_ns() + self._clock_offset_ns)
            self._refused.pop(node_id, None)
            self._nodes[node_id] = node
            self.note_change()
            await node.follow_deaths()
        except (RuntimeUnavailableError, WorkerDiedError, TimeoutError) as error:
            # Ray says why a supervisor did not start, such as a module that is missing.
            detail = error if self._nodes[node_id] is node else error.__cause__ or error
            problem = f"node {name} ({info['NodeManagerHostname']}): {_shorten(detail)}"
            logger.warning("a node of the Ray cluster runs no programs: %s", problem)
            self._refused[node_id] = (problem, time.monotonic() + _RETRY_SECONDS)
            del self._nodes[node_id]
            node.note_loss()
            await run_in_thread(node.close)
            self.note_change()

    def _make_supervisor(self, node_id: str) -> Any:
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        actor = self._ray.remote(NodeSupervisor).options(
            num_cpus=0,
            max_restarts=0,
            max_concurrency=1000,
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node_id, soft=False),
        )
        return actor.remote(self._required)


class RayExecutor:
    """Starts the workers of one image on the nodes of a cluster."""

    def __init__(self, kind: ImageKind, cluster: RayCluster) -> None:
        self._kind: ImageKind = kind
        self._cluster = cluster
        self._image: Image | None = None
        self.module_origin = ""
        self.hardening: HardeningReport | None = None

    @property
    def image(self) -> Image:
        """The image, which all nodes have. Raises ImageError if the package is damaged."""
        if self._image is None:
            self._image = load_image(self._kind)
        return self._image

    @property
    def image_identity(self) -> str:
        return "" if self._image is None else self._image.identity

    def prepare(self) -> bool:
        # A node compiles the image when it starts a worker.
        return False

    async def launch(self) -> RemoteWorker:
        """Start a worker on the node with the fewest. Raises RuntimeUnavailableError."""
        node = await self._cluster.choose_node()
        node.starting += 1
        try:
            started = Started(*await node.call("launch", self._kind))
        except WorkerDiedError as error:
            raise RuntimeUnavailableError(str(error)) from error
        finally:
            node.starting -= 1
        if started.hardening is not None:
            self.hardening = HardeningReport.from_json(started.hardening)
        was_refused = bool(node.problem)
        node.problem = ""
        if started.problem:
            node.refuse(started.problem)
            self._cluster.note_change()
            raise RuntimeUnavailableError(f"node {node.name}: {started.problem}")
        if was_refused:
            self._cluster.note_change()
        self.module_origin = started.module_origin
        if self._image is None:
            self._image = await run_in_thread(load_image, self._kind)
        return RemoteWorker(node, started)

    def close(self) -> None:
        """The cluster ends the workers."""
