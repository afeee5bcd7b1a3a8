"""The host functions that the engine imports, its clock and random bytes, and their listener.

One `HostCalls` serves all VMs of a worker, one VM at a time, because callbacks can only be created
before the worker is hardened.
"""

import json
import os
import struct
import time

# Not `hashlib`, which loads OpenSSL and would double the start time of a worker.
from _blake2 import blake2b
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from nacre.sandbox.worker.wasm_runtime import Imports, Runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.sandbox.worker.vm import Vm

_WASI = "wasi_snapshot_preview1"
_WASI_BAD_DESCRIPTOR = 8
_WASI_MONOTONIC = 1
# The arguments of a host function: handles, at most as many as the guest passes.
_SLOTS = tuple(struct.Struct(f"<{count}I") for count in range(4))
# The guest's `crypto` requests no more at a time.
_MAX_RANDOM_BYTES = 65536
_MAX_SHOWN_NAME_BYTES = 100
_MAX_CACHED_BYTES = 64
_FIRST_STEP_US: Final = 100
_STEPS_PER_SIZE: Final = 256
_BLOCK_BYTES: Final = 64
_KEY_BYTES: Final = 16
# The guest uses the same text (guest/src/failures.js).
MODULES_DISABLED = "module access is disabled in cells"


class GuestListener(Protocol):
    """Receives the events of a guest. Each method may raise `StopGuest` to stop the guest."""

    def output(self, kind: str, content: bytes) -> None:
        """One item of output. `kind` is text, json or image; `content` is UTF-8 text, JSON, or the
        media type and the base64 of an image in two lines."""
        ...

    def request(self, request_id: int, method: str, payload: bytes) -> None:
        """A request to the host, with `payload` as JSON. Its answer is delivered later."""
        ...

    def pause(self, request_id: int, reason: str) -> None:
        """The guest yields until the request with this id is answered."""
        ...

    def on_completed(self, value: bytes) -> None:
        """The program ended with this JSON value."""
        ...

    def on_failed(self, failure: bytes) -> None:
        """The program ended with an error, described in JSON."""
        ...

    def on_rejected(self, count: int) -> None:
        """A promise was rejected without a handler. `count` is the number of such promises."""
        ...

    def interrupt(self) -> None:
        """Called every few thousand steps of guest code."""
        ...


class GuestInputs:
    """The clock and the random bytes of the VM that runs: reported for a record, or replayed.

    A record has to be small, although a program may read its clock in a loop. So the clock of a
    burst moves in steps, and the report has one entry per step. The steps grow with their number.
    Random bytes come from a keyed hash with a key that the supervisor sends, so a record needs only
    the key.
    """

    def __init__(self, *, monotonic_offset_ns: int = 0) -> None:
        self._offset_us = monotonic_offset_ns // 1000
        self._key = os.urandom(_KEY_BYTES)
        self._block_count = 0
        self._begin_clock(None)

    def begin(self, clock: list[int] | None, seed: str | None) -> None:
        """Start a burst. `clock` is the report of an earlier run, to be replayed; `seed` is the
        key of the random bytes from now on."""
        self._begin_clock(clock)
        if seed:
            self._key = bytes.fromhex(seed)
            self._block_count = 0

    def _begin_clock(self, replayed: list[int] | None) -> None:
        self.clock: list[int] = []
        """The report: the wall clock and the monotonic clock in microseconds, the number of reads
        at this time; then for each step its size and the number of reads after it."""
        self._replayed = replayed or []
        self._at = 3
        self._wall_us = self._monotonic_us = self._real_us = 0
        self._step_us = _FIRST_STEP_US

    def read_clock(self, *, is_monotonic: bool) -> int:
        """Return nanoseconds."""
        step_us = self._replayed_step() if self._at <= len(self._replayed) else self._real_step()
        if step_us:
            self._wall_us += step_us
            self._monotonic_us += step_us
            self.clock += (step_us, 1)
        else:
            self.clock[-1] += 1
        return (self._monotonic_us if is_monotonic else self._wall_us) * 1000

    def _real_step(self) -> int:
        now_us = time.monotonic_ns() // 1000
        if not self.clock:
            self._wall_us = time.time_ns() // 1000
            self._monotonic_us = now_us + self._offset_us
            self._real_us = now_us
            self.clock += (self._wall_us, self._monotonic_us, 0)
            return 0
        step_us = now_us - self._real_us
        if step_us < self._step_us:
            return 0
        self._real_us = now_us
        if len(self.clock) % (2 * _STEPS_PER_SIZE) == 1:
            self._step_us *= 2
        return step_us

    def _replayed_step(self) -> int:
        if not self.clock:
            self._wall_us, self._monotonic_us = self._replayed[:2]
            self.clock += (self._wall_us, self._monotonic_us, 0)
        if self.clock[-1] < self._replayed[self._at - 1]:
            return 0
        # After the last step of the record, the clock goes on from there.
        self._at += 2
        if self._at <= len(self._replayed):
            return self._replayed[self._at - 2]
        self._real_us = time.monotonic_ns() // 1000
        return 0

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes that only the key determines."""
        blocks: list[bytes] = []
        for _ in range(0, size, _BLOCK_BYTES):
            counter = self._block_count.to_bytes(8, "little")
            blocks.append(blake2b(counter, key=self._key, digest_size=_BLOCK_BYTES).digest())
            self._block_count += 1
        return b"".join(blocks)[:size]


class HostCalls:
    """The imports of all VMs in this process. A call goes to the running VM."""

    def __init__(self, runtime: Runtime, *, monotonic_offset_ns: int = 0) -> None:
        self.inputs = GuestInputs(monotonic_offset_ns=monotonic_offset_ns)
        self.vm: Vm | None = None
        self.imports = Imports(runtime)
        self._by_name: dict[bytes, Callable[[Vm, tuple[int, ...]], int]] = {
            b"completed": _on_completed,
            b"failed": _on_failed,
            b"output": _output,
            b"pause": _pause,
            b"random": self._random,
            b"request": _request,
            b"shared": _on_shared,
            b"timers": _timers,
        }
        self._define()

    def _define(self) -> None:
        i32, i64 = "i32", "i64"
        define = self.imports.define
        define("env", "host_call", self._host_call, parameters=[i32] * 5)
        define("env", "host_request", self._host_request, parameters=[i32, i32], results=[])
        define("env", "host_interrupt", self._interrupt, parameters=[])
        define(
            "env", "host_promise_rejection", self._promise_rejection,
            parameters=[i32] * 3, results=[],
        )  # fmt: skip
        define("env", "host_module_normalize", self._refuse_module, parameters=[i32, i32])
        define("env", "host_module_load", self._refuse_module, parameters=[i32, i32])
        define("env", "host_get_timezone_offset", lambda *_: 0, parameters=[i32, i32])
        define(_WASI, "clock_time_get", self._clock, parameters=[i32, i64, i32])
        define(_WASI, "random_get", self._random_get, parameters=[i32, i32])
        # A cell has no descriptors, so the engine cannot print anything.
        for name, parameters in (
            ("fd_close", [i32]),
            ("fd_fdstat_get", [i32, i32]),
            ("fd_seek", [i32, i64, i32, i32]),
            ("fd_write", [i32] * 4),
        ):
            define(_WASI, name, lambda *_: _WASI_BAD_DESCRIPTOR, parameters=parameters)

    def _running(self) -> "Vm":
        if self.vm is None:
            raise RuntimeError("the engine called the host although no VM is running")
        return self.vm

    def _host_call(self, name: int, name_size: int, _this: int, count: int, arguments: int) -> int:
        vm = self._running()
        slots = _SLOTS[count].unpack(vm.instance.read(arguments, 4 * count))
        return self._by_name[vm.instance.read(name, name_size)](vm, slots)

    def _host_request(self, text: int, size: int) -> None:
        vm = self._running()
        _take_request(vm, vm.instance.read(text, size))

    def _interrupt(self) -> int:
        self._running().listener.interrupt()
        return 0

    def _promise_rejection(self, promise: int, reason: int, is_handled: int) -> None:
        self._running().note_rejection(promise, reason, is_handled=bool(is_handled))

    def _refuse_module(self, _importer: int, name: int) -> int:
        vm = self._running()
        room = vm.instance.current_memory_bytes() - name
        shown = vm.instance.read(name, min(room, _MAX_SHOWN_NAME_BYTES)).partition(b"\0")[0]
        vm.throw_module_error(f"import({json.dumps(shown.decode(errors='replace'))})")
        return 0

    def _clock(self, clock_id: int, _precision: int, at: int) -> int:
        now = self.inputs.read_clock(is_monotonic=clock_id == _WASI_MONOTONIC)
        self._running().instance.write(at, now.to_bytes(8, "little"))
        return 0

    def _random_get(self, at: int, size: int) -> int:
        data = self.inputs.random_bytes(min(size, _MAX_RANDOM_BYTES))
        self._running().instance.write(at, data)
        return 0

    def _random(self, vm: "Vm", arguments: tuple[int, ...]) -> int:
        size = min(int(vm.number(arguments[0])), _MAX_RANDOM_BYTES)
        return vm.new_bytes(self.inputs.random_bytes(size))


def _on_completed(vm: "Vm", arguments: tuple[int, ...]) -> int:
    vm.listener.on_completed(vm.text(arguments[0]))
    return vm.new_undefined()


def _on_failed(vm: "Vm", arguments: tuple[int, ...]) -> int:
    vm.listener.on_failed(vm.text(arguments[0]))
    return vm.new_undefined()


def _output(vm: "Vm", arguments: tuple[int, ...]) -> int:
    vm.listener.output(vm.text(arguments[0]).decode(), vm.text(arguments[1]))
    return vm.new_undefined()


def _pause(vm: "Vm", arguments: tuple[int, ...]) -> int:
    reason = vm.text(arguments[1]).decode(errors="replace")
    vm.listener.pause(int(vm.number(arguments[0])), reason)
    return vm.new_undefined()


def _request(vm: "Vm", arguments: tuple[int, ...]) -> int:
    """A request of an older image, or one whose text does not fit in memory."""
    _take_request(vm, vm.text(arguments[0]))
    return vm.new_undefined()


def _take_request(vm: "Vm", text: bytes) -> None:
    request_id, method, payload = text.split(b"\n", 2)
    vm.listener.request(int(request_id), _decode_method(method), payload)


def _decode_method(method: bytes) -> str:
    return _decode_short_text(method) if len(method) <= _MAX_CACHED_BYTES else json.loads(method)


# A program uses few methods, again and again.
_decode_short_text = lru_cache(maxsize=256)(json.loads)


def _on_shared(vm: "Vm", arguments: tuple[int, ...]) -> int:
    if vm.shared is None:
        return vm.new_undefined()
    # The name of the part comes from the guest code, a key from the program.
    part = vm.text(arguments[0]).decode()
    if len(arguments) > 1:
        found = vm.shared.member(part, vm.text(arguments[1]))
    else:
        found = vm.shared.text(part)
    return vm.new_undefined() if found is None else vm.new_string(found)


def _timers(vm: "Vm", _arguments: tuple[int, ...]) -> int:
    vm.may_have_timers = True
    return vm.new_undefined()
