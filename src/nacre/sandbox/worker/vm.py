"""A VM that runs guest code: its memory, its shared data and its snapshots.

The host uses handles: addresses of JavaScript values in the guest's memory. They stay valid across
a snapshot, because between two calls the memory is the whole state of a VM.

A snapshot contains changed blocks as the exclusive-or with the image's block. Most of them differ
in one or two reference counts, and zeros compress well.
"""

import ctypes
import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final, cast

from nacre.sandbox.image import Image
from nacre.sandbox.worker.host_calls import GuestListener, HostCalls
from nacre.sandbox.worker.wasm_runtime import Instance, Runtime


class SharedParts:
    """The parts of one set of shared data. A part is parsed when a program first uses it."""

    def __init__(self, sizes: list[tuple[str, int]], texts: bytes) -> None:
        self._texts: dict[str, bytes] = {}
        # Parsed parts, for lookups by key.
        self._members: dict[str, dict[str, Any]] = {}
        start = 0
        for name, size in sizes:
            self._texts[name] = texts[start : start + size]
            start += size

    def text(self, part: str) -> bytes | None:
        """Return the JSON text of a part."""
        return self._texts.get(part)

    def member(self, part: str, key: bytes) -> bytes | None:
        """Return the JSON text of one member of a part that is an object."""
        try:
            found = self._members_of(part).get(key.decode(), self)
        except UnicodeDecodeError:
            # Half a surrogate pair cannot be a key of JSON in UTF-8.
            return None
        return None if found is self else json.dumps(found, separators=(",", ":")).encode()

    def _members_of(self, part: str) -> dict[str, Any]:
        if part not in self._members:
            parsed: object = json.loads(self._texts.get(part, b"{}"))
            is_object = isinstance(parsed, dict)
            self._members[part] = cast("dict[str, Any]", parsed) if is_object else {}
        return self._members[part]


# Compared in large steps first, because most of an image does not change.
_STRIDE_BYTES: Final = 65536
_PAGE_BYTES: Final = 4096
# A stride has 256 blocks, so that a byte numbers them.
BLOCK_BYTES: Final = 256
_PAGES_OF_STRIDE = struct.Struct(f"{_PAGE_BYTES}s" * (_STRIDE_BYTES // _PAGE_BYTES))
_BLOCKS_OF_PAGE = struct.Struct(f"{BLOCK_BYTES}s" * (_PAGE_BYTES // BLOCK_BYTES))
_STRIDE_HEAD = struct.Struct("<II")

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
_memcmp.restype = ctypes.c_int


class BaseMemory:
    """The initial memory of all VMs of an image."""

    def __init__(self, content: bytes, stack_pointer: int) -> None:
        self._stack_pointer = stack_pointer
        self._strides = [
            content[at : at + _STRIDE_BYTES] for at in range(0, len(content), _STRIDE_BYTES)
        ]

    def changed_blocks(self, instance: Instance) -> Iterator[bytes]:
        """Yield a record for each stride of the memory with changed blocks: its number, the count
        and numbers of the blocks, and their differences from the image."""
        size = instance.current_memory_bytes()
        # Memory below the stack pointer belongs to calls that have returned.
        for stride in range(self._stack_pointer // _STRIDE_BYTES, size // _STRIDE_BYTES):
            at = stride * _STRIDE_BYTES
            base = self._base_of(stride)
            if _memcmp(instance.base + at, base, _STRIDE_BYTES):
                changed = _find_changed_blocks(instance.view(at, _STRIDE_BYTES), base)
                difference = self._combine(stride, b"".join(changed.values()), changed)
                yield _STRIDE_HEAD.pack(stride, len(changed)) + bytes(changed) + difference

    def apply_blocks(self, instance: Instance, records: BinaryIO) -> None:
        """Apply the output of `changed_blocks` to a new instance of the same image."""
        while head := records.read(_STRIDE_HEAD.size):
            if len(head) != _STRIDE_HEAD.size:
                raise ValueError("the blocks of a snapshot are truncated")
            stride, count = _STRIDE_HEAD.unpack(head)
            if count > _STRIDE_BYTES // BLOCK_BYTES:
                raise ValueError(f"a snapshot has {count} blocks in one stride")
            numbers = records.read(count)
            difference = records.read(count * BLOCK_BYTES)
            if len(difference) != len(numbers) * BLOCK_BYTES or len(numbers) != count:
                raise ValueError("the blocks of a snapshot are truncated")
            blocks = self._combine(stride, difference, numbers)
            at = stride * _STRIDE_BYTES
            if len(blocks) == _STRIDE_BYTES:
                instance.write(at, blocks)
                continue
            for index, number in enumerate(numbers):
                start = index * BLOCK_BYTES
                instance.write(at + number * BLOCK_BYTES, blocks[start : start + BLOCK_BYTES])

    def _combine(self, stride: int, blocks: bytes, numbers: Iterable[int]) -> bytes:
        """Return the exclusive-or with the blocks of the image, which is zero at its end."""
        if stride >= len(self._strides):
            return blocks
        return _exclusive_or(blocks, _pick(self._strides[stride], numbers))

    def _base_of(self, stride: int) -> bytes:
        return self._strides[stride] if stride < len(self._strides) else _ZERO_STRIDE


_ZERO_STRIDE: Final = bytes(_STRIDE_BYTES)


def _find_changed_blocks(memory: memoryview, base: bytes) -> dict[int, bytes]:
    """Return the blocks of a stride that differ, by their numbers."""
    changed: dict[int, bytes] = {}
    pages = _PAGES_OF_STRIDE.unpack(memory)
    for page_at, page in zip(range(0, _STRIDE_BYTES, _PAGE_BYTES), pages, strict=True):
        # Compares without a copy of the base.
        if base.startswith(page, page_at):
            continue
        blocks = enumerate(_BLOCKS_OF_PAGE.unpack(page), page_at // BLOCK_BYTES)
        changed.update(
            (number, block)
            for number, block in blocks
            if not base.startswith(block, number * BLOCK_BYTES)
        )
    return changed


def _pick(stride: bytes, numbers: Iterable[int]) -> bytes:
    """Return the blocks with these numbers."""
    starts = [number * BLOCK_BYTES for number in numbers]
    return b"".join([stride[at : at + BLOCK_BYTES] for at in starts])


def _exclusive_or(first: bytes, second: bytes) -> bytes:
    number = int.from_bytes(first, "little") ^ int.from_bytes(second, "little")
    return number.to_bytes(len(first), "little")


# The tag of a JSValue is in its upper half; 6 is the exception tag of QuickJS's NaN boxing.
_EXCEPTION_TAG: Final = (6).to_bytes(4, "little")
_EVAL_OPTIONS_VERSION: Final = 1
_COMPILE_ONLY: Final = 1 << 5
# The scratch area of the image: the length of a text, the arguments of a call, a short text.
_SCRATCH_ARGUMENTS: Final = 16
_SCRATCH_TEXT: Final = 64
# A function of the image (guest/image/optimize_engine.mjs), and its result for a full memory.
_DELIVER: Final = "nacre_deliver"
_NO_MEMORY: Final = 2


def memory_with_overhead(memory_limit_bytes: int) -> int:
    """Return the memory to reserve for a program with this limit."""
    # The allocator of the engine has overhead, and the host allocates texts.
    return memory_limit_bytes * 5 // 4 + (4 << 20)


class OutOfMemory(Exception):
    """A value of the host does not fit within the guest's memory limit."""


class GuestError(Exception):
    """The engine threw an error in a call of the host. `failure` describes it in JSON."""

    def __init__(self, failure: bytes) -> None:
        super().__init__(failure.decode(errors="replace"))
        self.failure = failure


class CompileError(GuestError):
    """The program cannot be compiled."""


class VmFactory:
    """Creates VMs of one image. It does the expensive steps once."""

    def __init__(self, runtime: Runtime, host: HostCalls, image: Image, module: int) -> None:
        self.runtime = runtime
        self.host = host
        self.image = image
        self._prepared = host.imports.prepare(module)
        # A snapshot contains only the differences from this memory. Creating the instance also
        # makes wasmtime create the file of the memory before the process is hardened.
        pristine = self._instance(image.memory_bytes)
        # Images of older versions of Nacre do not have it.
        self.has_deliver = pristine.has_export(_DELIVER)
        self.base_memory = BaseMemory(pristine.read(0, image.memory_bytes), image.stack_pointer)
        pristine.close()

    def create(
        self,
        listener: GuestListener,
        *,
        memory_limit_bytes: int,
        shared: SharedParts | None = None,
    ) -> "Vm":
        """Create a VM, with a seed for `Math.random` from the random bytes of the host."""
        vm = Vm(self, self._new_instance(memory_limit_bytes), listener, shared)
        vm.instance.write(self.image.random_state, self._random_seed())
        vm.limit_memory(memory_limit_bytes)
        return vm

    def restore(
        self,
        listener: GuestListener,
        *,
        memory_limit_bytes: int,
        memory_bytes: int,
        blocks: BinaryIO,
        rejections: dict[int, tuple[int, int]],
        shared: SharedParts | None = None,
    ) -> "Vm":
        """Create a VM from a snapshot of a VM of this image."""
        instance = self._new_instance(memory_limit_bytes)
        try:
            instance.grow_to(memory_bytes)
            self.base_memory.apply_blocks(instance, blocks)
        except BaseException:
            instance.close()
            raise
        vm = Vm(self, instance, listener, shared)
        vm.rejections = rejections
        vm.may_have_timers = True
        vm.limit_memory(memory_limit_bytes)
        return vm

    def _random_seed(self) -> bytes:
        # Not zero, because an xorshift generator would then return only zeros.
        seed = int.from_bytes(self.host.inputs.random_bytes(8), "little")
        return (seed | 1).to_bytes(8, "little")

    def _new_instance(self, memory_limit_bytes: int) -> Instance:
        return self._instance(self.image.memory_bytes + memory_with_overhead(memory_limit_bytes))

    def _instance(self, max_memory_bytes: int) -> Instance:
        return Instance(self.runtime, self._prepared, max_memory_bytes=max_memory_bytes)


class _Running:
    """A context manager that makes a VM the target of host calls."""

    def __init__(self, host: HostCalls, vm: "Vm") -> None:
        self._host = host
        self._vm = vm

    def __enter__(self) -> None:
        self._host.vm = self._vm

    def __exit__(self, *_exception: object) -> None:
        self._host.vm = None


class Vm:
    """A VM. Every method that runs guest code may raise `GuestError` or `WasmTrap`."""

    def __init__(
        self,
        factory: VmFactory,
        instance: Instance,
        listener: GuestListener,
        shared: SharedParts | None,
    ) -> None:
        self._factory = factory
        self._entries = factory.image.entries
        self._while_running = _Running(factory.host, self)
        self.instance = instance
        self.listener = listener
        self.shared = shared
        # Rejected promises without a handler: from their address to (promise, reason).
        self.rejections: dict[int, tuple[int, int]] = {}
        self.may_have_timers = False
        self._memory_limit_bytes = 0
        self._scratch = factory.image.scratch
        self._max_short_text = factory.image.scratch_bytes - _SCRATCH_TEXT
        self._undefined = factory.image.undefined

    def close(self) -> None:
        """Free the VM. Can be called twice."""
        self.instance.close()

    def limit_memory(self, memory_limit_bytes: int) -> None:
        """Limit the memory of the program, in addition to the memory of the guest code."""
        self._memory_limit_bytes = memory_limit_bytes
        limit = self._factory.image.heap_bytes + memory_limit_bytes
        self.instance.call("qjs_set_memory_limit", limit)

    def define_functions(self, names: bytes) -> None:
        """Define global functions that send requests. `names` is a JSON array."""
        with self._while_running:
            self._call_with_text("defineFunctions", names)

    def define_catalog(self) -> None:
        """Define the global names of the shared data."""
        names = self.shared.text("globals") if self.shared is not None else None
        with self._while_running:
            self._call_with_text("defineCatalog", names or b"[]")

    def start(self, source: bytes, *, file_name: str) -> None:
        """Compile the program and run it until it waits or ends."""
        with self._while_running:
            main = self._compile(source, file_name)
            self._free(self._call_entry("start", main), main)
            self._drain_jobs()

    def deliver(self, settlements: bytes) -> None:
        """Settle requests with the JSON `[[id, succeeded, value], ...]`, and run the program."""
        with self._while_running:
            if self._factory.has_deliver and len(settlements) <= self._max_short_text:
                self._deliver_at_once(settlements)
            else:
                self._call_with_text("deliver", settlements)
                self._drain_jobs()

    def fire_timers(self) -> None:
        """Run all due timers, and the promise jobs after each."""
        with self._while_running:
            while True:
                fired = self._call_entry("fireTimer")
                is_fired = self.instance.call("qjs_get_bool", fired)
                self._free(fired)
                self._drain_jobs()
                if not is_fired:
                    return

    def ms_until_next_timer(self) -> float | None:
        """Return the time until the next timer is due, or None without timers."""
        if not self.may_have_timers:
            return None
        with self._while_running:
            handle = self._call_entry("untilNextTimer")
            left = self.number(handle)
            self._free(handle)
        self.may_have_timers = left >= 0
        return left if self.may_have_timers else None

    def is_memory_full(self) -> bool:
        """Whether the program holds nearly all the memory that it may have."""
        self.instance.call("qjs_compute_memory_usage", self._scratch)
        usage = self.instance.read(self._scratch, 16)
        used, limit = int.from_bytes(usage[:8], "little"), int.from_bytes(usage[8:], "little")
        heap_bytes = self._factory.image.heap_bytes
        return used - heap_bytes > (limit - heap_bytes) * 7 // 8

    def was_memory_full(self) -> bool:
        """Whether the program has held nearly all the memory that it may have, now or before."""
        growth = self.instance.current_memory_bytes() - self._factory.image.memory_bytes
        return growth > self._memory_limit_bytes * 7 // 8

    def unhandled_failure(self) -> bytes | None:
        """Return the description of the first unhandled rejection, if there is one."""
        first = next(iter(self.rejections.values()), None)
        if first is None:
            return None
        with self._while_running:
            return self.text(self._call_entry("describeFailure", first[1]))

    def snapshot(self) -> Iterator[bytes]:
        """Yield the blocks that differ from the image, in pieces."""
        return self._factory.base_memory.changed_blocks(self.instance)

    # Used by host calls while the guest runs.

    def text(self, handle: int) -> bytes:
        """Read a string value as UTF-8."""
        start = self.instance.call("qjs_get_string_len", handle, self._scratch)
        if not start:
            raise OutOfMemory
        size = int.from_bytes(self.instance.read(self._scratch, 4), "little")
        data = self.instance.read(start, size)
        self.instance.call("qjs_free_cstring", start)
        return data

    def number(self, handle: int) -> float:
        """Read a number value."""
        return self.instance.call_for_f64("qjs_get_float64", handle)

    def new_undefined(self) -> int:
        """Create a handle of undefined. The engine frees the result of a host call."""
        return self.instance.call("qjs_get_undefined")

    def new_string(self, data: bytes) -> int:
        """Create a string value. Raises OutOfMemory if it does not fit."""
        is_short = len(data) <= self._max_short_text
        at = self._scratch + _SCRATCH_TEXT if is_short else self._malloc(len(data))
        self.instance.write(at, data)
        handle = self.instance.call("qjs_new_string", at, len(data))
        if not is_short:
            self.instance.call("wasm_free", at)
        if not handle or self._is_exception(handle):
            raise OutOfMemory
        return handle

    def new_bytes(self, data: bytes) -> int:
        """Create a Uint8Array with a copy of `data`."""
        at = self._malloc(len(data))
        self.instance.write(at, data)
        handle = self.instance.call("qjs_new_uint8_array", at, len(data))
        self.instance.call("wasm_free", at)
        return handle

    def throw_module_error(self, tried: str) -> None:
        """Throw the error of a refused import in the guest, from inside a host call."""
        text = self.new_string(tried.encode())
        error = self._call_entry("moduleError", text)
        self.instance.call("qjs_throw", error)
        self._free(error, text)

    def note_rejection(self, promise: int, reason: int, *, is_handled: bool) -> None:
        """Track rejected promises without a handler. The host must free both handles."""
        address = self.instance.call("qjs_get_value_ptr", promise)
        if is_handled:
            self._free(promise, reason)
            self._free(*self.rejections.pop(address, ()))
        else:
            # Not freed until it is handled, so that no other promise gets its address.
            self.rejections[address] = (promise, reason)
            self.listener.on_rejected(len(self.rejections))

    # Calls of the engine.

    def _compile(self, source: bytes, file_name: str) -> int:
        """Compile the program as an async function. Its first line is line 1 of `file_name`."""
        code = b"(async () => {\n\n" + source + b"\n})"
        value = self._evaluate(code, file_name)
        if not _is_exception_value(value):
            slot = self._malloc(8)
            self.instance.write(slot, value.to_bytes(8, "little"))
            return slot
        error = self._pending_exception()
        # A program can close the function around it and throw a SyntaxError of its own.
        if _is_exception_value(self._evaluate(code, file_name, flags=_COMPILE_ONLY)):
            raise CompileError(self._pending_exception().failure)
        raise error

    def _evaluate(self, code: bytes, file_name: str, *, flags: int = 0) -> int:
        code_at = self._new_c_string(code)
        name_at = self._new_c_string(file_name.encode())
        options = self._malloc(16)
        # The two lines of the wrapper get the numbers -1 and 0; to the engine, 0 means "unset".
        fields = (_EVAL_OPTIONS_VERSION, flags, name_at, 0xFFFFFFFF)
        self.instance.write(options, b"".join(field.to_bytes(4, "little") for field in fields))
        context = self.instance.call("qjs_get_context_ptr")
        value = self.instance.call_for_i64("JS_Eval2", context, code_at, len(code), options)
        for at in (code_at, name_at, options):
            self.instance.call("wasm_free", at)
        return value

    def _call_entry(self, entry: str, *arguments: int) -> int:
        """Call an entry point of the guest. The caller frees the arguments."""
        slots = self._scratch + _SCRATCH_ARGUMENTS
        self.instance.write(slots, b"".join(a.to_bytes(4, "little") for a in arguments))
        result = self.instance.call(
            "qjs_call", self._entries[entry], self._undefined, len(arguments), slots
        )
        if self._is_exception(result):
            raise self._pending_exception()
        return result

    def _drain_jobs(self) -> None:
        call = self.instance.call
        while True:
            ran = call("qjs_execute_pending_job")
            if ran == 0:
                return
            if ran > 0x7FFFFFFF:
                raise self._pending_exception()

    def _pending_exception(self) -> GuestError:
        call = self.instance.call
        error = call("qjs_get_exception")
        slots = self._scratch + _SCRATCH_ARGUMENTS
        self.instance.write(slots, error.to_bytes(4, "little"))
        described = call("qjs_call", self._entries["describeFailure"], self._undefined, 1, slots)
        if self._is_exception(described):
            # There is not enough memory left to describe the error.
            raise OutOfMemory
        return GuestError(self.text(described))

    def _deliver_at_once(self, settlements: bytes) -> None:
        """Deliver a short text and run the jobs, in one call of the engine."""
        scratch = self._scratch
        at = scratch + _SCRATCH_TEXT
        self.instance.write(at, settlements)
        problem = self.instance.call(
            _DELIVER,
            self._entries["deliver"],
            self._undefined,
            at,
            len(settlements),
            scratch + _SCRATCH_ARGUMENTS,
        )
        if problem:
            raise OutOfMemory if problem == _NO_MEMORY else self._pending_exception()

    def _call_with_text(self, entry: str, text: bytes) -> None:
        argument = self.new_string(text)
        self._free(self._call_entry(entry, argument), argument)

    def _is_exception(self, handle: int) -> bool:
        return self.instance.read(handle + 4, 4) == _EXCEPTION_TAG

    def _new_c_string(self, data: bytes) -> int:
        at = self._malloc(len(data) + 1)
        self.instance.write(at, data + b"\0")
        return at

    def _malloc(self, size: int) -> int:
        at = self.instance.call("wasm_malloc", size or 1)
        if not at:
            raise OutOfMemory
        return at

    def _free(self, *handles: int) -> None:
        for handle in handles:
            self.instance.call("qjs_free_value", handle)


def _is_exception_value(value: int) -> bool:
    return value.to_bytes(8, "little")[4:] == _EXCEPTION_TAG
