"""A minimal interface to wasmtime: its C library through ctypes. No other module uses wasmtime.

The `wasmtime` package contains the library and a Python interface. That interface takes 30 us per
call and 60 ms to import; these calls take 0.8 us and 12 ms. Workers start often and make many
calls, so they use the library directly. Errors and traps of wasmtime are raised as `WasmError` and
`WasmTrap`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from nacre.sandbox.image import WasmError

# The native stack for WebAssembly frames. QuickJS limits the shadow stack of the module, whose
# frames are much smaller. With this size, the RangeError of QuickJS always comes first.
MAX_WASM_STACK_BYTES: Final = 32 << 20

_PAGE_BYTES: Final = 65536
_RAW_VALUE_BYTES: Final = 16
_MAX_ARGUMENTS: Final = 8
_EXTERN_UNION_OFFSET: Final = 8

HostFunction = Callable[..., int | None]


class WasmTrap(Exception):
    """WebAssembly code trapped, or a host function stopped it."""

    def __init__(self, message: str, *, stack_exhausted: bool) -> None:
        super().__init__(message)
        self.stack_exhausted = stack_exhausted


class StopGuest(Exception):
    """Raised by a host function to stop the WebAssembly code that called it."""


class _ByteVector(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]


# trap* callback(env, caller, args_and_results, count)
_HostCallback = ctypes.CFUNCTYPE(
    ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class _Library:
    """The C functions that are used, with their types."""

    def __init__(self, path: str) -> None:
        dll = ctypes.CDLL(path)
        pointer, size, u64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64

        def function(
            name: str, result: type[Any] | None, *arguments: type[Any]
        ) -> Callable[..., int]:
            found = dll[name]
            found.restype = result
            found.argtypes = arguments
            return found

        self.config_new = function("wasm_config_new", pointer)
        self.config_max_stack = function("wasmtime_config_max_wasm_stack_set", None, pointer, size)
        self.config_async_stack = function(
            "wasmtime_config_async_stack_size_set", None, pointer, u64
        )
        self.engine_new = function("wasm_engine_new_with_config", pointer, pointer)
        self.module_new = function(
            "wasmtime_module_new", pointer, pointer, ctypes.c_char_p, size, pointer
        )
        self.module_serialize = function("wasmtime_module_serialize", pointer, pointer, pointer)
        self.module_deserialize_file = function(
            "wasmtime_module_deserialize_file", pointer, pointer, ctypes.c_char_p, pointer
        )
        self.linker_new = function("wasmtime_linker_new", pointer, pointer)
        self.linker_define = function(
            "wasmtime_linker_define_func_unchecked",
            pointer, pointer, ctypes.c_char_p, size, ctypes.c_char_p, size,
            pointer, _HostCallback, pointer, pointer,
        )  # fmt: skip
        self.linker_trap_unknown = function(
            "wasmtime_linker_define_unknown_imports_as_traps", pointer, pointer, pointer
        )
        self.linker_pre = function(
            "wasmtime_linker_instantiate_pre", pointer, pointer, pointer, pointer
        )
        self.pre_instantiate = function(
            "wasmtime_instance_pre_instantiate", pointer, pointer, pointer, pointer, pointer
        )
        self.store_new = function("wasmtime_store_new", pointer, pointer, pointer, pointer)
        self.store_context = function("wasmtime_store_context", pointer, pointer)
        self.store_limiter = function(
            "wasmtime_store_limiter", None, pointer, *[ctypes.c_int64] * 5
        )
        self.store_delete = function("wasmtime_store_delete", None, pointer)
        self.export_get = function(
            "wasmtime_instance_export_get",
            ctypes.c_bool, pointer, pointer, ctypes.c_char_p, size, pointer,
        )  # fmt: skip
        self.func_call = function(
            "wasmtime_func_call_unchecked", pointer, size, size, size, size, size
        )
        self.memory_data = function("wasmtime_memory_data", pointer, pointer, pointer)
        self.memory_data_size = function("wasmtime_memory_data_size", size, pointer, pointer)
        self.memory_grow = function("wasmtime_memory_grow", pointer, pointer, pointer, u64, pointer)
        self.trap_new = function("wasmtime_trap_new", pointer, ctypes.c_char_p, size)
        self.trap_code = function("wasmtime_trap_code", ctypes.c_bool, pointer, pointer)
        self.trap_message = function("wasm_trap_message", None, pointer, pointer)
        self.trap_delete = function("wasm_trap_delete", None, pointer)
        self.error_message = function("wasmtime_error_message", None, pointer, pointer)
        self.error_delete = function("wasmtime_error_delete", None, pointer)
        self.byte_vec_delete = function("wasm_byte_vec_delete", None, pointer)
        self.valtype_new = function("wasm_valtype_new", pointer, ctypes.c_uint8)
        self.functype_new = function("wasm_functype_new", pointer, pointer, pointer)
        self.valtype_vec_new = function("wasm_valtype_vec_new", None, pointer, size, pointer)


class Runtime:
    """The wasmtime engine of this process. It is never freed."""

    def __init__(self, library: str, *, max_stack_bytes: int = MAX_WASM_STACK_BYTES) -> None:
        self.lib = _Library(library)
        config = self.lib.config_new()
        # wasmtime requires that the stack of its (unused) fibers is at least as large.
        self.lib.config_async_stack(config, max_stack_bytes)
        self.lib.config_max_stack(config, max_stack_bytes)
        self.engine = self.lib.engine_new(config)

    def compile(self, wasm: bytes) -> bytes:
        """Compile a module to the format that `load` reads in a millisecond."""
        module = ctypes.c_void_p()
        self.check(self.lib.module_new(self.engine, wasm, len(wasm), ctypes.addressof(module)))
        vector = _ByteVector()
        self.check(self.lib.module_serialize(module, ctypes.addressof(vector)))
        return self._take_bytes(vector)

    def load(self, path: str) -> int:
        """Load a compiled module. It contains native code, so the caller must trust the file."""
        module = ctypes.c_void_p()
        self.check(
            self.lib.module_deserialize_file(self.engine, path.encode(), ctypes.addressof(module))
        )
        return module.value or 0

    def check(self, error: int | None) -> None:
        """Raise WasmError if a call returned an error."""
        if error:
            raise WasmError(self.take_message(error))

    def take_message(self, error: int) -> str:
        """Return the message of an error and free the error."""
        vector = _ByteVector()
        self.lib.error_message(error, ctypes.addressof(vector))
        self.lib.error_delete(error)
        return _summary(self._take_bytes(vector))

    def trap_from(self, trap: int) -> WasmTrap:
        """Convert a trap to an exception and free the trap."""
        code = ctypes.c_uint8(255)
        has_code = self.lib.trap_code(trap, ctypes.addressof(code))
        vector = _ByteVector()
        self.lib.trap_message(trap, ctypes.addressof(vector))
        message = _summary(self._take_bytes(vector))
        self.lib.trap_delete(trap)
        return WasmTrap(message, stack_exhausted=bool(has_code) and code.value == 0)

    def _take_bytes(self, vector: _ByteVector) -> bytes:
        data = ctypes.string_at(vector.data, vector.size) if vector.size else b""
        self.lib.byte_vec_delete(ctypes.addressof(vector))
        return data

    def function_type(self, parameters: Sequence[str], results: Sequence[str]) -> int:
        """Create a C function type. `parameters` and `results` are i32, i64 or f64."""
        vectors: list[_ByteVector] = []
        for names in (parameters, results):
            kinds = (ctypes.c_void_p * max(len(names), 1))()
            for index, name in enumerate(names):
                kinds[index] = self.lib.valtype_new({"i32": 0, "i64": 1, "f64": 3}[name])
            vector = _ByteVector()
            self.lib.valtype_vec_new(ctypes.addressof(vector), len(names), ctypes.addressof(kinds))
            vectors.append(vector)
        return self.lib.functype_new(ctypes.addressof(vectors[0]), ctypes.addressof(vectors[1]))


def _summary(message: bytes) -> str:
    """Extract the cause from a message, without the addresses of WebAssembly frames."""
    text = message.decode(errors="replace").rstrip("\0")
    _, found, causes = text.partition("Caused by:\n")
    # The last of several numbered causes names the kind of error.
    line = causes.strip().splitlines()[-1] if found and causes.strip() else text.partition("\n")[0]
    return line.strip().lstrip("0123456789").lstrip(": ").rstrip("\0")


class Imports:
    """The host functions of all instances in this process.

    The callbacks are created once, because a hardened worker cannot create more.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._linker = runtime.lib.linker_new(runtime.engine)
        self._keep_alive: list[object] = []

    def define(
        self,
        module: str,
        name: str,
        function: HostFunction,
        *,
        parameters: Sequence[str],
        results: Sequence[str] = ("i32",),
    ) -> None:
        """Define an import. `function` gets numbers, returns an integer, may raise `StopGuest`."""
        lib = self._runtime.lib
        callback = _HostCallback(_host_callback(lib, function, parameters))
        self._keep_alive.append(callback)
        kind = self._runtime.function_type(parameters, results)
        names = (module.encode(), len(module), name.encode(), len(name))
        self._runtime.check(lib.linker_define(self._linker, *names, kind, callback, None, None))

    def prepare(self, module: int, *, trap_unknown: bool = False) -> int:
        """Link a loaded module once, for any number of instances.

        With `trap_unknown`, an import that was not defined traps when it is called.
        """
        if trap_unknown:
            self._runtime.check(self._runtime.lib.linker_trap_unknown(self._linker, module))
        prepared = ctypes.c_void_p()
        self._runtime.check(
            self._runtime.lib.linker_pre(self._linker, module, ctypes.addressof(prepared))
        )
        return prepared.value or 0


def _host_callback(
    lib: _Library, function: HostFunction, parameters: Sequence[str]
) -> Callable[[int, int, int, int], int]:
    # A value takes 16 bytes, whatever its type.
    formats = {"i32": "I12x", "i64": "q8x", "f64": "d8x"}
    arguments = struct.Struct("<" + "".join(formats[name] for name in parameters))
    buffer_type = ctypes.c_char * max(arguments.size, _RAW_VALUE_BYTES)
    result_format = struct.Struct("<I")
    stopped = b"stopped by the host\0"

    def callback(_env: int, _caller: int, values: int, _count: int) -> int:
        try:
            buffer = buffer_type.from_address(values)
            result = function(*arguments.unpack_from(buffer))
            if result is not None:
                result_format.pack_into(buffer, 0, result & 0xFFFFFFFF)
        except BaseException as error:
            # No exception may pass through the C frames. The trap stops the guest, and the reason
            # is stored in the VM or below.
            record_failure(error)
            return lib.trap_new(stopped, len(stopped))
        return 0

    return callback


def record_failure(error: BaseException) -> None:
    """Store an exception other than `StopGuest`, to raise it when the current call returns."""
    if not isinstance(error, StopGuest):
        _failures.append(error)


_failures: list[BaseException] = []


class Instance:
    """One instance of a module: a store, its memory and its functions."""

    def __init__(self, runtime: Runtime, prepared: int, *, max_memory_bytes: int) -> None:
        lib = runtime.lib
        self._runtime = runtime
        self._store = lib.store_new(runtime.engine, None, None)
        lib.store_limiter(self._store, max_memory_bytes, -1, 1, -1, 1)
        self._context = lib.store_context(self._store)
        # The functions refer to them by address.
        self._exports: list[object] = []
        self._instance = ctypes.create_string_buffer(32)
        self._functions: dict[str, Callable[[], int]] = {}
        self._values = (ctypes.c_uint32 * (_MAX_ARGUMENTS * 4))()
        self._values_at = ctypes.addressof(self._values)
        self._trap = ctypes.c_size_t()
        self._trap_at = ctypes.addressof(self._trap)
        try:
            runtime.check(
                lib.pre_instantiate(prepared, self._context, self._instance, self._trap_at)
            )
            self._memory, self._memory_at = self._export("memory")
        except BaseException:
            self.close()
            raise
        # The whole address range is reserved at the start, so the memory never moves.
        self.base = lib.memory_data(self._context, self._memory_at)
        self.memory_bytes: int = 0
        self.current_memory_bytes()

    def close(self) -> None:
        """Free the instance. Can be called twice."""
        if self._store:
            self._runtime.lib.store_delete(self._store)
            self._store = 0

    def call(self, name: str, *arguments: int) -> int:
        """Call an exported function with 32-bit values. Returns its 32-bit result, unsigned."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._bind(name)
        values = self._values
        index = 0
        for argument in arguments:
            values[index] = argument
            index += 4
        error = function()
        if error or self._trap.value:
            self._raise(error)
        return values[0]

    def _bind(self, name: str) -> Callable[[], int]:
        """Return a function that calls the export with the values in `_values`."""
        export, at = self._export(name)
        self._exports.append(export)
        arguments = (self._context, at, self._values_at, _MAX_ARGUMENTS, self._trap_at)
        return partial(self._runtime.lib.func_call, *arguments)

    def call_for_i64(self, name: str, *arguments: int) -> int:
        """Call an exported function with a 64-bit result."""
        self.call(name, *arguments)
        return ctypes.c_uint64.from_address(self._values_at).value

    def call_for_f64(self, name: str, *arguments: int) -> float:
        """Call an exported function with a floating-point result."""
        self.call(name, *arguments)
        return ctypes.c_double.from_address(self._values_at).value

    def read(self, at: int, size: int) -> bytes:
        """Copy guest memory. Raises WasmTrap for a range outside of it."""
        self._check_range(at, size)
        return self._memory_view[at : at + size].tobytes()

    def view(self, at: int, size: int) -> memoryview:
        """Return guest memory without a copy. Raises WasmTrap for a range outside of it."""
        self._check_range(at, size)
        return self._memory_view[at : at + size]

    def write(self, at: int, data: bytes) -> None:
        """Write guest memory. Raises WasmTrap for a range outside of it."""
        size = len(data)
        self._check_range(at, size)
        self._memory_view[at : at + size] = data

    def current_memory_bytes(self) -> int:
        """Return the current size of the memory."""
        size = self._runtime.lib.memory_data_size(self._context, self._memory_at)
        if size != self.memory_bytes:
            self.memory_bytes = size
            # Faster than `ctypes.string_at` and `ctypes.memmove`.
            memory = (ctypes.c_ubyte * size).from_address(self.base)
            self._memory_view = memoryview(memory).cast("B")
        return size

    def grow_to(self, size: int) -> None:
        """Grow the memory to `size` bytes, a whole number of WebAssembly pages."""
        missing = size - self.current_memory_bytes()
        if missing > 0:
            previous = ctypes.c_uint64()
            self._runtime.check(
                self._runtime.lib.memory_grow(
                    self._context,
                    self._memory_at,
                    missing // _PAGE_BYTES,
                    ctypes.addressof(previous),
                )
            )
            self.current_memory_bytes()

    def _check_range(self, at: int, size: int) -> None:
        end = at + size
        if at < 0 or (end > self.memory_bytes and end > self.current_memory_bytes()):
            raise WasmTrap(
                f"the guest passed a range outside its memory: {size} bytes at {at}",
                stack_exhausted=False,
            )

    def has_export(self, name: str) -> bool:
        """Whether the module exports this function."""
        return self._find_export(name) is not None

    def _export(self, name: str) -> tuple[object, int]:
        found = self._find_export(name)
        if found is None:
            raise WasmError(f"the module does not export {name}")
        return found

    def _find_export(self, name: str) -> tuple[object, int] | None:
        buffer = ctypes.create_string_buffer(64)
        encoded = name.encode()
        is_found = self._runtime.lib.export_get(
            self._context, self._instance, encoded, len(encoded), ctypes.addressof(buffer)
        )
        return (buffer, ctypes.addressof(buffer) + _EXTERN_UNION_OFFSET) if is_found else None

    def _raise(self, error: int) -> NoReturn:
        trap, self._trap.value = self._trap.value, 0
        if _failures:
            failure = _failures[0]
            _failures.clear()
            if trap:
                self._runtime.lib.trap_delete(trap)
            if error:
                self._runtime.lib.error_delete(error)
            raise failure
        if trap:
            raise self._runtime.trap_from(trap)
        # A trap of a host function is returned as an error.
        raise WasmTrap(self._runtime.take_message(error), stack_exhausted=False)
