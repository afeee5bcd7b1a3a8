"""Transforms TypeScript to JavaScript in a worker, with swc.

If possible, types are replaced by spaces, so that all lines and columns stay the same. Enums,
namespaces, parameter properties and `<T>x` need a full transform: the program is printed again, and
a source map maps its positions.

swc was compiled with wasm-bindgen for a JavaScript host. It refers to JavaScript values by their
index in a table of the host, and imports a function for each operation on them. A transform uses
sixteen of these imports; a call of any other traps.
"""

import json
import struct
import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

from nacre.sandbox.source_map import MAX_MAPPINGS_LENGTH, decode_segment, encode_segment
from nacre.sandbox.worker.host_calls import MODULES_DISABLED
from nacre.sandbox.worker.wasm_runtime import HostFunction, Imports, Instance, Runtime, WasmTrap
from nacre.sandbox.worker_protocol import Command, Event, WorkerConnection, encode_frame

# A program is the body of an async function. The head is a separate line, so columns do not change.
_HEAD: Final = b"(async()=>{\n"
_TAIL: Final = b"\n})"
# The same function as swc prints it.
_PRINTED_HEAD: Final = b"async ()=>{"
_PRINTED_TAIL: Final = b"};\n"
_MODULE_SYNTAX: Final = (
    "'import', and 'export' cannot be used outside of module code",
    "'import.meta' cannot be used outside of module code",
    "ESM-style module declarations are not permitted in a namespace",
    "Import declarations in a namespace cannot reference a module",
)

_MAX_MEMORY_BYTES: Final = 256 << 20
_TAB_COLUMNS: Final = 4


class Transformed(NamedTuple):
    """A program in JavaScript."""

    code: bytes
    # The `mappings` of a source map; None where every line and column is that of the source.
    mappings: str | None


class TransformRefused(Exception):
    """The program is invalid, or uses modules. The position, from 1, is in the source."""

    def __init__(self, message: str, *, line: int, column: int, is_module_syntax: bool) -> None:
        super().__init__(message, line, column)
        self.message = message
        self.line = line
        self.column = column
        self.is_module_syntax = is_module_syntax


class TypeScriptTransformer:
    """Transforms programs, one at a time. Create it before the process is hardened."""

    def __init__(self, runtime: Runtime, module: int) -> None:
        self._runtime = runtime
        self._host = _Host(runtime)
        self._prepared = self._host.imports.prepare(module, trap_unknown=True)
        # wasmtime creates the file of the initial memory with the first instance.
        self._instance().close()

    def transform(self, source: bytes) -> Transformed:
        """Transform the body of an async function to JavaScript.

        Raises `TransformRefused`, or `WasmTrap` if swc crashes. swc cannot be interrupted, so the
        supervisor enforces the deadline.
        """
        program = _Program(source)
        instance = self._instance()
        try:
            self._host.begin(instance)
            output, problem = self._host.transform(program.wrapped, _STRIP)
            if problem is None:
                return program.strip_types(output)
            if problem.get(b"code") != b"UnsupportedSyntax":
                raise program.build_refusal(problem)
            output, problem = self._host.transform(program.wrapped, _PRINT)
            if problem is None:
                return program.print_program(output)
            raise program.build_refusal(problem)
        finally:
            self._host.end()
            instance.close()

    def _instance(self) -> Instance:
        return Instance(self._runtime, self._prepared, max_memory_bytes=_MAX_MEMORY_BYTES)


class _Program:
    """A program inside the async function that swc sees. Adds and removes the function."""

    def __init__(self, source: bytes) -> None:
        try:
            # swc does not check that a text is UTF-8.
            self._source = source.decode()
        except UnicodeDecodeError as error:
            self._source = source[: error.start].decode()
            raise self._build_refusal_at_end(f"the program is not UTF-8: {error.reason}") from None
        self.wrapped = _HEAD + source + _TAIL

    def strip_types(self, output: "_JsObject") -> Transformed:
        body = self._between(output.text(b"code"), _HEAD, _TAIL)
        return Transformed(code=body, mappings=None)

    def print_program(self, output: "_JsObject") -> Transformed:
        body = self._between(output.text(b"code"), _PRINTED_HEAD, _PRINTED_TAIL)
        mappings = json.loads(output.text(b"map"))["mappings"]
        # Nothing follows the head on its line, unless the program closes the function itself.
        if is_head_alone := body.startswith(b"\n"):
            body = body[1:].removesuffix(b"\n")
        lines = _mappings_below_head(mappings)
        if not is_head_alone:
            lines.insert(0, "")
        joined = ";".join(lines[: body.count(b"\n") + 1])
        if len(joined) > MAX_MAPPINGS_LENGTH:
            # In a huge program, later positions are mapped to the last line of the map.
            joined = joined[:MAX_MAPPINGS_LENGTH].rpartition(";")[0]
        return Transformed(code=body, mappings=joined)

    def build_refusal(self, problem: "_JsObject") -> TransformRefused:
        message = problem.text(b"message").decode(errors="replace")
        is_module_syntax = message.startswith(_MODULE_SYNTAX)
        if is_module_syntax:
            message = f"{MODULES_DISABLED}: {message}"
        line, column = self._position(
            problem.integer(b"startLine"), problem.integer(b"startColumn")
        )
        return TransformRefused(
            message, line=line, column=column, is_module_syntax=is_module_syntax
        )

    def _between(self, code: bytes, head: bytes, tail: bytes) -> bytes:
        if not (code.startswith(head) and code.endswith(tail)):
            # The program closes the function and opens something else at its end.
            raise self._build_refusal_at_end("the program closes a bracket that it did not open")
        return code[len(head) : -len(tail)]

    def _build_refusal_at_end(self, message: str) -> TransformRefused:
        lines = self._source.split("\n")
        return TransformRefused(
            message, line=len(lines), column=len(lines[-1]) + 1, is_module_syntax=False
        )

    def _position(self, wrapped_line: int, shown_column: int) -> tuple[int, int]:
        """Convert a position of swc: line from 1, column from 0 in terminal columns."""
        lines = self._source.split("\n")
        line = max(wrapped_line - _HEAD.count(b"\n"), 1)
        if line > len(lines):
            return len(lines), len(lines[-1]) + 1
        column = 0
        for character in lines[line - 1]:
            shown_column -= _shown_columns(character)
            if shown_column < 0:
                break
            column += 1
        return line, column + 1


def _shown_columns(character: str) -> int:
    """Return the columns that swc counts for a character: its width, plus one beyond 16 bits."""
    if " " <= character <= "~":
        return 1
    if character == "\t":
        return _TAB_COLUMNS
    is_wide = unicodedata.east_asian_width(character) in "WF"
    is_shown = unicodedata.category(character) not in {"Cc", "Cf", "Me", "Mn"}
    return is_shown + is_wide + (character > "\uffff")


def _mappings_below_head(mappings: str) -> list[str]:
    """Return the mappings of all printed lines except the head, for a source without the head."""
    # Segments are relative to the segment before, so the offsets of removed segments are added to
    # the first one that is left.
    head, *lines = mappings.split(";")
    moved: Sequence[int] = (0, -_HEAD.count(b"\n"), 0)
    for segment in filter(None, head.split(",")):
        moved = _sum(moved, decode_segment(segment)[1:4])
    for number, line in enumerate(lines):
        segments = line.split(",")
        for index, segment in enumerate(segments):
            column, *origin = decode_segment(segment) if segment else (0,)
            if origin:
                segments[index] = encode_segment([column, *_sum(moved, origin[:3]), *origin[3:]])
                lines[number] = ",".join(segments)
                return lines
    return lines


def _sum(left: Sequence[int], right: Sequence[int]) -> Sequence[int]:
    return [a + b for a, b in zip(left, right, strict=True)] if right else left


class _JsObject(dict[bytes, object]):
    """A JavaScript object. Strings are UTF-8."""

    def text(self, key: bytes) -> bytes:
        value = self.get(key)
        if not isinstance(value, bytes):
            raise _broken(f"returned no {key.decode()}")
        return value

    def integer(self, key: bytes) -> int:
        value = self.get(key)
        return int(value) if isinstance(value, float) else 0


_STRIP: Final = _JsObject({b"mode": b"strip-only"})
# A map for a named file does not repeat the source.
_PRINT: Final = _JsObject({b"mode": b"transform", b"sourceMap": True, b"filename": b"cell.ts"})

_UNDEFINED: Final = object()
# The indices that wasm-bindgen assigns to these values.
_FIXED_VALUES: Final[dict[int, object]] = {128: _UNDEFINED, 129: None, 130: True, 131: False}
_FIRST_FREE_INDEX: Final = 132


class _Host:
    """The table of JavaScript values of the current transform, and the imports that use it."""

    def __init__(self, runtime: Runtime) -> None:
        self.imports = Imports(runtime)
        self._instance: Instance | None = None
        self._values: dict[int, object] = {}
        self._next_index = _FIRST_FREE_INDEX
        self._define()

    def begin(self, instance: Instance) -> None:
        """Start to serve this instance."""
        self._instance = instance
        self._values = dict(_FIXED_VALUES)
        self._next_index = _FIRST_FREE_INDEX

    def end(self) -> None:
        """Drop the instance and its values."""
        self._instance = None
        self._values = {}

    def transform(self, text: bytes, options: _JsObject) -> tuple[_JsObject, _JsObject | None]:
        """Call swc. Returns its output, and the problem if there is one."""
        instance = self._running()
        out = instance.call("__wbindgen_add_to_stack_pointer", -16)
        instance.call("transformSync", out, self._add(text), self._add(options))
        output, problem, is_problem = struct.unpack("<III", instance.read(out, 12))
        instance.call("__wbindgen_add_to_stack_pointer", 16)
        if is_problem:
            return _JsObject(), self._object(problem)
        return self._object(output), None

    def _define(self) -> None:
        # Some names end in a hash that changes with each version of the module.
        used: list[tuple[str, HostFunction, int, int]] = [
            ("__wbindgen_string_get", self._string_get, 2, 0),
            ("__wbindgen_string_new", self._string_new, 2, 1),
            ("__wbindgen_boolean_get", self._boolean_get, 1, 1),
            ("__wbindgen_is_undefined", self._is_undefined, 1, 1),
            ("__wbindgen_is_falsy", self._is_falsy, 1, 1),
            ("__wbindgen_is_object", self._is_object, 1, 1),
            ("__wbindgen_is_string", self._is_string, 1, 1),
            ("__wbindgen_in", self._in, 2, 1),
            ("__wbindgen_jsval_loose_eq", self._loose_equal, 2, 1),
            ("__wbindgen_object_clone_ref", self._clone, 1, 1),
            ("__wbindgen_object_drop_ref", self._drop, 1, 0),
            ("__wbindgen_throw", self._throw, 2, 0),
            ("__wbg_getwithrefkey_1dc361bd10053bfe", self._get_property, 2, 1),
            ("__wbg_new_405e22f390576ce2", self._new_object, 0, 1),
            ("__wbg_set_3f1d0b984ed272ed", self._set_property, 3, 0),
        ]
        for name, function, parameters, results in used:
            self._define_one(name, function, ["i32"] * parameters, results)
        self._define_one("__wbindgen_number_new", self._add, ["f64"], 1)

    def _define_one(
        self, name: str, function: HostFunction, parameters: list[str], results: int
    ) -> None:
        self.imports.define(
            "__wbindgen_placeholder__",
            name,
            function,
            parameters=parameters,
            results=["i32"] * results,
        )

    def _running(self) -> Instance:
        if self._instance is None:
            raise RuntimeError("no transform is running")
        return self._instance

    # The table.

    def _add(self, value: object) -> int:
        index = self._next_index
        self._next_index += 1
        self._values[index] = value
        return index

    def _get(self, index: int) -> object:
        try:
            return self._values[index]
        except KeyError:
            raise _broken(f"used the invalid value index {index}") from None

    def _object(self, index: int) -> _JsObject:
        value = self._get(index)
        if not isinstance(value, _JsObject):
            raise _broken("used a value that is not an object as an object")
        return value

    def _key(self, index: int) -> bytes:
        value = self._get(index)
        if not isinstance(value, bytes):
            raise _broken("used a value that is not a string as a name")
        return value

    def _drop(self, index: int) -> None:
        if index >= _FIRST_FREE_INDEX:
            self._values.pop(index, None)

    # Imports of the module.

    def _string_get(self, out: int, index: int) -> None:
        instance, value = self._running(), self._get(index)
        at = size = 0
        if isinstance(value, bytes):
            size = len(value)
            at = instance.call("__wbindgen_export_2", size, 1)
            instance.write(at, value)
        instance.write(out, struct.pack("<II", at, size))

    def _string_new(self, at: int, size: int) -> int:
        return self._add(self._running().read(at, size))

    def _boolean_get(self, index: int) -> int:
        value = self._get(index)
        return int(value) if isinstance(value, bool) else 2

    def _is_undefined(self, index: int) -> int:
        return self._get(index) is _UNDEFINED

    def _is_falsy(self, index: int) -> int:
        value = self._get(index)
        return value is _UNDEFINED or (not value and not isinstance(value, _JsObject))

    def _is_object(self, index: int) -> int:
        return isinstance(self._get(index), _JsObject)

    def _is_string(self, index: int) -> int:
        return isinstance(self._get(index), bytes)

    def _in(self, key: int, target: int) -> int:
        return self._key(key) in self._object(target)

    def _loose_equal(self, left: int, right: int) -> int:
        nothing = (None, _UNDEFINED)
        a, b = self._get(left), self._get(right)
        return a == b or (a in nothing and b in nothing)

    def _clone(self, index: int) -> int:
        return self._add(self._get(index))

    def _get_property(self, target: int, key: int) -> int:
        return self._add(self._object(target).get(self._key(key), _UNDEFINED))

    def _new_object(self) -> int:
        return self._add(_JsObject())

    def _set_property(self, target: int, key: int, value: int) -> None:
        self._object(target)[self._key(key)] = self._get(value)
        self._drop(key)
        self._drop(value)

    def _throw(self, at: int, size: int) -> None:
        raise _broken(self._running().read(at, size).decode(errors="replace"))


def _broken(problem: str) -> WasmTrap:
    return WasmTrap(f"the TypeScript transform {problem}", stack_exhausted=False)


class TransformWorker:
    """Answers TRANSFORM commands with TRANSFORMED or FAILED."""

    def __init__(self, connection: WorkerConnection, transformer: TypeScriptTransformer) -> None:
        self._connection = connection
        self._transformer = transformer

    def serve(self) -> NoReturn:
        """Serve commands until the socket closes, which ends the process."""
        while True:
            frame = self._connection.receive()
            if frame.kind != Command.TRANSFORM:
                raise ValueError(f"not a command for a transform worker: {frame.kind}")
            self._connection.send(self._transform(frame.tail))

    def _transform(self, source: bytes) -> bytes:
        try:
            done = self._transformer.transform(source)
        except TransformRefused as refused:
            reason = "typescript_transform_failed"
            if refused.is_module_syntax:
                reason = "module_access_denied"
            # In the format of the engine's stack frames.
            stack = f"    at cell.ts:{refused.line}:{refused.column}"
            message = refused.message
        except (WasmTrap, MemoryError):
            reason, stack = "typescript_transform_failed", ""
            message = "the program is too large or too deeply nested to transform; split it up"
        else:
            return encode_frame(Event.TRANSFORMED, {"mappings": done.mappings}, done.code)
        fields = {"reason": reason, "message": message, "stack": stack}
        return encode_frame(Event.FAILED, fields)
