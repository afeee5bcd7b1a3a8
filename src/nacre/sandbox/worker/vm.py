"""One VM of the guest: its memory, its shared data, and its snapshots.

Pages are kept as the exclusive-or with the image's page: most changed pages differ in a reference
count or two, and a page of zeros compresses to nothing.

It drives the engine through handles: addresses of JavaScript values inside the guest's memory. They
stay valid across a snapshot, because memory is all there is to a VM between two calls.
"""

import ctypes
import json
import os
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

from nacre.sandbox.image import Image
from nacre.sandbox.worker.host_calls import GuestListener, HostCalls
from nacre.sandbox.worker.wasm_runtime import Instance, Runtime


class SharedParts:
    """The parts of one set of shared data. Nothing is parsed before a program looks it up."""

    def __init__(self, sizes: list[tuple[str, int]], texts: bytes) -> None:
        self._texts: dict[str, bytes] = {}
        # Parts that were looked into by key, parsed.
        self._members: dict[str, dict[str, Any]] = {}
        start = 0
        for name, size in sizes:
            self._texts[name] = texts[start : start + size]
            start += size

    def text(self, part: str) -> bytes | None:
        """The whole JSON text of a part."""
        return self._texts.get(part)

    def member(self, part: str, key: bytes) -> bytes | None:
        """The JSON text of one member of a part that is an object."""
        try:
            found = self._members_of(part).get(key.decode(), self)
        except UnicodeDecodeError:
            # Half a surrogate pair: JSON in UTF-8 has no such key.
            return None
        return None if found is self else json.dumps(found, separators=(",", ":")).encode()

    def _members_of(self, part: str) -> dict[str, Any]:
        if part not in self._members:
            parsed: object = json.loads(self._texts.get(part, b"{}"))
            is_object = isinstance(parsed, dict)
            self._members[part] = cast("dict[str, Any]", parsed) if is_object else {}
        return self._members[part]


PAGE_BYTES: Final = 4096
# Compared first in big steps: most of an image is never touched.
_STRIDE_BYTES: Final = 65536
_INDEX = struct.Struct("<I")
_RECORD_BYTES: Final = _INDEX.size + PAGE_BYTES

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
_memcmp.restype = ctypes.c_int


class BaseMemory:
    """The memory that every VM of an image starts with."""

    def __init__(self, content: bytes, stack_pointer: int) -> None:
        self._content = content
        self._stack_pointer = stack_pointer
        self._strides = [
            content[at : at + _STRIDE_BYTES] for at in range(0, len(content), _STRIDE_BYTES)
        ]

    def changed_pages(self, instance: Instance) -> Iterator[bytes]:
        """The difference of every page that changed, with its number; in pieces of any size."""
        size = instance.current_memory_bytes()
        # Below the stack pointer is what returned calls left behind: nothing will read it again.
        for stride in range(self._stack_pointer // _STRIDE_BYTES, size // _STRIDE_BYTES):
            at = stride * _STRIDE_BYTES
            base = self._strides[stride] if stride < len(self._strides) else _ZERO_STRIDE
            if _memcmp(instance.base + at, base, _STRIDE_BYTES):
                yield _differences(instance.read(at, _STRIDE_BYTES), base, at // PAGE_BYTES)

    def apply_pages(self, instance: Instance, pages: BinaryIO) -> None:
        """Put what `changed_pages` gave into a fresh instance of the same image."""
        while record := pages.read(_RECORD_BYTES):
            if len(record) != _RECORD_BYTES:
                raise ValueError("the pages of a snapshot are cut off")
            (number,) = _INDEX.unpack_from(record)
            at = number * PAGE_BYTES
            difference = record[_INDEX.size :]
            base = self._content[at : at + PAGE_BYTES].ljust(PAGE_BYTES, b"\0")
            instance.write(at, _exclusive_or(difference, base))


_ZERO_STRIDE: Final = bytes(_STRIDE_BYTES)


def _differences(memory: bytes, base: bytes, first_page: int) -> bytes:
    found: list[bytes] = []
    for at in range(0, _STRIDE_BYTES, PAGE_BYTES):
        page, base_page = memory[at : at + PAGE_BYTES], base[at : at + PAGE_BYTES]
        if page != base_page:
            number = first_page + at // PAGE_BYTES
            found += (_INDEX.pack(number), _exclusive_or(page, base_page))
    return b"".join(found)


def _exclusive_or(first: bytes, second: bytes) -> bytes:
    number = int.from_bytes(first, "little") ^ int.from_bytes(second, "little")
    return number.to_bytes(PAGE_BYTES, "little")


# JSValue's tag is in its upper half; 6 is the exception tag of QuickJS's NaN boxing.
_EXCEPTION_TAG: Final = (6).to_bytes(4, "little")
_EVAL_OPTIONS_VERSION: Final = 1
# The image's scratch area: the length of a text first, the arguments of a call, then a short text.
_SCRATCH_ARGUMENTS: Final = 16
_SCRATCH_TEXT: Final = 64


def room_for(memory_limit_bytes: int) -> int:
    """Memory for so many bytes of a program: the engine's allocator needs room beside what it
    hands out, and the host borrows some for texts."""
    return memory_limit_bytes * 5 // 4 + (4 << 20)


class OutOfMemory(Exception):
    """The guest's memory limit left no room for a value of the host."""


class GuestError(Exception):
    """The engine threw while the host drove it; `failure` describes the error in JSON."""

    def __init__(self, failure: bytes) -> None:
        super().__init__(failure.decode(errors="replace"))
        self.failure = failure


class VmFactory:
    """Makes VMs of one image; whatever is costly is done here, once."""

    def __init__(self, runtime: Runtime, host: HostCalls, image: Image, module: int) -> None:
        self.runtime = runtime
        self.host = host
        self.image = image
        self._prepared = host.imports.prepare(module)
        # The memory every VM starts with: a snapshot holds only what differs from it. Making this
        # instance also lets wasmtime set up the memory's file before the process is locked down.
        pristine = self._instance(image.memory_bytes)
        self.base_memory = BaseMemory(pristine.read(0, image.memory_bytes), image.stack_pointer)
        pristine.close()

    def create(
        self,
        listener: GuestListener,
        *,
        memory_limit_bytes: int,
        shared: SharedParts | None = None,
    ) -> "Vm":
        """A fresh VM with a random seed of its own."""
        vm = Vm(self, self._new_instance(memory_limit_bytes), listener, shared)
        vm.instance.write(self.image.random_state, _random_seed())
        vm.limit_memory(memory_limit_bytes)
        return vm

    def restore(
        self,
        listener: GuestListener,
        *,
        memory_limit_bytes: int,
        memory_bytes: int,
        pages: BinaryIO,
        rejections: dict[int, tuple[int, int]],
        shared: SharedParts | None = None,
    ) -> "Vm":
        """A VM in the state of a snapshot that was taken of a VM of this image."""
        instance = self._new_instance(memory_limit_bytes)
        try:
            instance.grow_to(memory_bytes)
            self.base_memory.apply_pages(instance, pages)
        except BaseException:
            instance.close()
            raise
        vm = Vm(self, instance, listener, shared)
        vm.rejections = rejections
        vm.may_have_timers = True
        vm.limit_memory(memory_limit_bytes)
        return vm

    def _new_instance(self, memory_limit_bytes: int) -> Instance:
        return self._instance(self.image.memory_bytes + room_for(memory_limit_bytes))

    def _instance(self, max_memory_bytes: int) -> Instance:
        return Instance(self.runtime, self._prepared, max_memory_bytes=max_memory_bytes)


class _Running:
    """While this is entered, host calls go to its VM."""

    def __init__(self, host: HostCalls, vm: "Vm") -> None:
        self._host = host
        self._vm = vm

    def __enter__(self) -> None:
        self._host.vm = self._vm

    def __exit__(self, *_exception: object) -> None:
        self._host.vm = None


class Vm:
    """A running VM. Every method that lets guest code run may raise `GuestError` or `WasmTrap`."""

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
        # Promises that were rejected with no handler so far: their address to (promise, reason).
        self.rejections: dict[int, tuple[int, int]] = {}
        self.may_have_timers = False
        self._scratch = factory.image.scratch
        self._scratch_bytes = factory.image.scratch_bytes
        self._undefined = factory.image.undefined

    def close(self) -> None:
        """Dispose of the VM; closing twice is harmless."""
        self.instance.close()

    def limit_memory(self, memory_limit_bytes: int) -> None:
        """Cap what the program may allocate, on top of what the guest itself holds."""
        limit = self._factory.image.heap_bytes + memory_limit_bytes
        self.instance.call("qjs_set_memory_limit", limit)

    def define_functions(self, names: bytes) -> None:
        """Give the program global functions that send requests; `names` is a JSON array."""
        with self._while_running:
            self._call_with_text("defineFunctions", names)

    def define_catalog(self) -> None:
        """Give the program what is made of its shared data, as far as that needs names now."""
        names = self.shared.text("globals") if self.shared is not None else None
        with self._while_running:
            self._call_with_text("defineCatalog", names or b"[]")

    def start(self, source: bytes, *, file_name: str) -> None:
        """Compile the program and run it until it has nothing left to do."""
        with self._while_running:
            main = self._compile(source, file_name)
            self._free(self._call_entry("start", main), main)
            self._drain_jobs()

    def deliver(self, settlements: bytes) -> None:
        """Settle requests, `[[id, succeeded, value], ...]` in JSON, and run what that sets free."""
        with self._while_running:
            self._call_with_text("deliver", settlements)
            self._drain_jobs()

    def fire_timers(self) -> None:
        """Run every timer that is due, and the promise jobs after each."""
        with self._while_running:
            while True:
                fired = self._call_entry("fireTimer")
                is_fired = self.instance.call("qjs_get_bool", fired)
                self._free(fired)
                self._drain_jobs()
                if not is_fired:
                    return

    def ms_until_next_timer(self) -> float | None:
        """How long until the next timer is due; None without timers."""
        if not self.may_have_timers:
            return None
        with self._while_running:
            handle = self._call_entry("untilNextTimer")
            left = self.number(handle)
            self._free(handle)
        self.may_have_timers = left >= 0
        return left if self.may_have_timers else None

    def is_out_of_memory(self) -> bool:
        """Whether the program has used up what it may allocate, or tried to, as far as one can see.

        Where not even an error object fits, the engine throws null; so can a program.
        """
        self.instance.call("qjs_compute_memory_usage", self._scratch)
        usage = self.instance.read(self._scratch, 16)
        used, limit = int.from_bytes(usage[:8], "little"), int.from_bytes(usage[8:], "little")
        image = self._factory.image
        grown = self.instance.current_memory_bytes() - image.memory_bytes
        allowed = limit - image.heap_bytes
        return used - image.heap_bytes > allowed * 3 // 4 or grown > allowed // 4

    def unhandled_failure(self) -> bytes | None:
        """The description of the first rejection that nobody has handled, if there is one."""
        first = next(iter(self.rejections.values()), None)
        if first is None:
            return None
        with self._while_running:
            return self.text(self._call_entry("describeFailure", first[1]))

    def snapshot(self) -> Iterator[bytes]:
        """The pages that differ from the image, in pieces."""
        return self._factory.base_memory.changed_pages(self.instance)

    # What host calls use while the guest runs.

    def text(self, handle: int) -> bytes:
        """A string value as UTF-8."""
        start = self.instance.call("qjs_get_string_len", handle, self._scratch)
        if not start:
            raise OutOfMemory
        size = int.from_bytes(self.instance.read(self._scratch, 4), "little")
        data = self.instance.read(start, size)
        self.instance.call("qjs_free_cstring", start)
        return data

    def number(self, handle: int) -> float:
        """A number value."""
        return self.instance.call_for_f64("qjs_get_float64", handle)

    def new_undefined(self) -> int:
        """A handle of its own: the engine frees what a host call returns."""
        return self.instance.call("qjs_get_undefined")

    def new_string(self, data: bytes) -> int:
        """A string value; raises OutOfMemory where it does not fit."""
        is_short = len(data) <= self._scratch_bytes - _SCRATCH_TEXT
        at = self._scratch + _SCRATCH_TEXT if is_short else self._malloc(len(data))
        self.instance.write(at, data)
        handle = self.instance.call("qjs_new_string", at, len(data))
        if not is_short:
            self.instance.call("wasm_free", at)
        if not handle or self._is_exception(handle):
            raise OutOfMemory
        return handle

    def new_bytes(self, data: bytes) -> int:
        """A Uint8Array with a copy of `data`."""
        at = self._malloc(len(data))
        self.instance.write(at, data)
        handle = self.instance.call("qjs_new_uint8_array", at, len(data))
        self.instance.call("wasm_free", at)
        return handle

    def throw(self, message: str) -> None:
        """Throw an Error in the guest from inside a host call."""
        error = self.instance.call("qjs_new_error")
        key = self._new_c_string(b"message")
        text = self.new_string(message.encode())
        self.instance.call("qjs_set_prop_string", error, key, text)
        self.instance.call("wasm_free", key)
        self.instance.call("qjs_throw", error)
        self._free(error, text)

    def note_rejection(self, promise: int, reason: int, *, is_handled: bool) -> None:
        """Keep track of rejected promises without a handler; both handles are ours to free."""
        address = self.instance.call("qjs_get_value_ptr", promise)
        if is_handled:
            self._free(promise, reason)
            self._free(*self.rejections.pop(address, ()))
        else:
            # Held until it is handled, so that the address cannot come to mean another promise.
            self.rejections[address] = (promise, reason)
            self.listener.on_rejected(len(self.rejections))

    # Driving the engine.

    def _compile(self, source: bytes, file_name: str) -> int:
        """The program as an async function; its first line is line 1 of `file_name`."""
        code = b"(async () => {\n\n" + source + b"\n})"
        code_at = self._new_c_string(code)
        name_at = self._new_c_string(file_name.encode())
        options = self._malloc(16)
        # The two lines of the wrapper come out as -1 and 0; the engine takes 0 itself for "unset".
        fields = (_EVAL_OPTIONS_VERSION, 0, name_at, 0xFFFFFFFF)
        self.instance.write(options, b"".join(field.to_bytes(4, "little") for field in fields))
        context = self.instance.call("qjs_get_context_ptr")
        value = self.instance.call_for_i64("JS_Eval2", context, code_at, len(code), options)
        for at in (code_at, name_at, options):
            self.instance.call("wasm_free", at)
        if value.to_bytes(8, "little")[4:] == _EXCEPTION_TAG:
            raise self._pending_exception()
        slot = self._malloc(8)
        self.instance.write(slot, value.to_bytes(8, "little"))
        return slot

    def _call_entry(self, entry: str, *arguments: int) -> int:
        """Call an entry of the guest; the arguments stay the caller's to free."""
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
            # Not even the error could be described: there is no memory left to do it in.
            raise OutOfMemory
        return GuestError(self.text(described))

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


def _random_seed() -> bytes:
    # Zero is the one state an xorshift generator never leaves.
    return (int.from_bytes(os.urandom(8), "little") | 1).to_bytes(8, "little")
