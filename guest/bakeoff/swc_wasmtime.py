"""Drive @swc/wasm-typescript with wasmtime, without its JavaScript glue, and time it on the corpus.

Run `python swc_wasmtime.py` after `npm ci`, with PyPI `wasmtime` installed.
The module speaks wasm-bindgen: values of the host live in a table, the guest holds their indices.
`transformSync` needs 15 of the 61 imports; any other one fails the call.
"""

import base64
import json
import re
import statistics
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wasmtime

HERE = Path(__file__).parent
PACKAGE = HERE / "node_modules" / "@swc" / "wasm-typescript"
HEAD, TAIL = "(async function(){", "\n})"
NO_DEADLINE = 1 << 40


class Undefined:
    """JavaScript's undefined; None is null."""


UNDEFINED = Undefined()


class TransformError(Exception):
    """The module refused the source: `details` has code, message, startLine, startColumn (from 0)."""

    def __init__(self, details: Any) -> None:
        super().__init__(details["message"] if isinstance(details, dict) else details)
        self.details = details


def wasm_bytes() -> bytes:
    """The module, which the npm package carries as base64 text in its one script."""
    text = (PACKAGE / "wasm.js").read_text()
    found = re.search(r"Buffer\.from\('([A-Za-z0-9+/=]+)', 'base64'\)", text)
    assert found is not None
    return base64.b64decode(found[1])


class SwcModule:
    """The compiled module with its imports bound; makes instances."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module) -> None:
        self.engine, self.module = engine, module

    def instance(self) -> "Swc":
        return Swc(self)


class Swc:
    """One instance. After a trap it must be thrown away."""

    def __init__(self, parent: SwcModule) -> None:
        self.store = wasmtime.Store(parent.engine)
        self.store.set_epoch_deadline(NO_DEADLINE)
        self.store.set_limits(memory_size=64 << 20)
        # Index 128 to 131 are fixed by wasm-bindgen.
        self.values: dict[int, Any] = {128: UNDEFINED, 129: None, 130: True, 131: False}
        self.unused: list[int] = []
        handlers = self._handlers()
        imports = [
            wasmtime.Func(self.store, i.type, self._handler(handlers, i.name or ""))
            for i in parent.module.imports
        ]
        exports = wasmtime.Instance(self.store, parent.module, imports).exports(self.store)
        self.memory: Any = exports["memory"]
        self._transform: Any = exports["transformSync"]
        self._malloc: Any = exports["__wbindgen_export_2"]
        self._move_stack: Any = exports["__wbindgen_add_to_stack_pointer"]

    def transform(self, source: str, options: dict[str, Any]) -> dict[str, Any]:
        out = self._move_stack(self.store, -16)
        self._transform(self.store, out, self._add(source), self._add(options))
        result, error, failed = struct.unpack("<iii", self.memory.read(self.store, out, out + 12))
        self._move_stack(self.store, 16)
        if failed:
            raise TransformError(self._take(error))
        return self._take(result)

    @staticmethod
    def _handler(handlers: dict[str, Callable[..., Any]], name: str) -> Callable[..., Any]:
        # Names end in a hash that changes with every build: `__wbg_set_3f1d0b984ed272ed`.
        found = handlers.get(name) or handlers.get(re.sub(r"_[0-9a-f]{16}$", "", name))
        if found is not None:
            return found

        def missing(*_: Any) -> None:
            raise NotImplementedError(name)

        return missing

    def _add(self, value: Any) -> int:
        index = self.unused.pop() if self.unused else 132 + len(self.values) - 4
        self.values[index] = value
        return index

    def _take(self, index: int) -> Any:
        if index < 132:
            return self.values[index]
        self.unused.append(index)
        return self.values.pop(index)

    def _text(self, pointer: int, length: int) -> str:
        return bytes(self.memory.read(self.store, pointer, pointer + length)).decode()

    def _handlers(self) -> dict[str, Callable[..., Any]]:
        values = self.values

        def string_get(out: int, index: int) -> None:
            pointer, data = 0, b""
            if isinstance(values[index], str):
                data = values[index].encode()
                pointer = self._malloc(self.store, len(data), 1)
                self.memory.write(self.store, data, pointer)
            self.memory.write(self.store, struct.pack("<ii", pointer, len(data)), out)

        def boolean_get(index: int) -> int:
            return int(values[index]) if isinstance(values[index], bool) else 2

        def set_property(target: int, key: int, value: int) -> None:
            values[target][self._take(key)] = self._take(value)

        def loose_equal(a: int, b: int) -> int:
            left, right = values[a], values[b]
            nothing = (None, UNDEFINED)
            return int(left == right or (left in nothing and right in nothing))

        def drop(index: int) -> None:
            self._take(index)

        return {
            "__wbindgen_string_get": string_get,
            "__wbindgen_string_new": lambda p, n: self._add(self._text(p, n)),
            "__wbindgen_number_new": self._add,
            "__wbindgen_boolean_get": boolean_get,
            "__wbindgen_is_undefined": lambda i: int(values[i] is UNDEFINED),
            "__wbindgen_is_falsy": lambda i: int(values[i] is UNDEFINED or not values[i]),
            "__wbindgen_is_object": lambda i: int(isinstance(values[i], dict)),
            "__wbindgen_is_string": lambda i: int(isinstance(values[i], str)),
            "__wbindgen_in": lambda key, i: int(values[key] in values[i]),
            "__wbindgen_jsval_loose_eq": loose_equal,
            "__wbindgen_object_clone_ref": lambda i: self._add(values[i]),
            "__wbindgen_object_drop_ref": drop,
            "__wbg_getwithrefkey": lambda i, key: self._add(values[i].get(values[key], UNDEFINED)),
            "__wbg_new": lambda *_: self._add({}),
            "__wbg_set": set_property,
        }


def transform_cell(swc: Swc, source: str) -> dict[str, Any]:
    """Strip where that is enough, else transform with a source map for positions."""
    text = HEAD + source + TAIL
    try:
        return swc.transform(text, {"mode": "strip-only"})
    except TransformError as error:
        if error.details["code"] != "UnsupportedSyntax":
            raise
    return swc.transform(text, {"mode": "transform", "sourceMap": True})


def timed(action: Callable[[], Any], rounds: int) -> float:
    times: list[float] = []
    for _ in range(rounds):
        start = time.process_time()
        action()
        times.append((time.process_time() - start) * 1000)
    return statistics.median(times)


def main() -> None:
    config = wasmtime.Config()
    config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    start = time.perf_counter()
    module = wasmtime.Module(engine, wasm_bytes())
    compile_s = time.perf_counter() - start
    cached = module.serialize()
    print(f"module {len(wasm_bytes()) / 1e6:.2f} MB, compile {compile_s:.2f} s, serialized {len(cached) / 1e6:.2f} MB")
    print(f"deserialize {timed(lambda: wasmtime.Module.deserialize(engine, cached), 5):.2f} ms")
    parent = SwcModule(engine, module)
    print(f"instantiate {timed(parent.instance, 9):.2f} ms")
    swc = parent.instance()
    outcomes: dict[str, Any] = {}
    for path in sorted(HERE.glob("*/[0-9][0-9][0-9]-*.ts")):
        try:
            outcomes[f"{path.parent.name}/{path.name}"] = transform_cell(swc, path.read_text())["code"]
        except TransformError as error:
            outcomes[f"{path.parent.name}/{path.name}"] = error.details
    if "--dump" in sys.argv:
        print(json.dumps(outcomes))
        return
    cells = {path: path.read_text() for path in sorted((HERE / "cells").glob("*.ts"))}
    times = {p: timed(lambda s=s: transform_cell(swc, s), 5) for p, s in cells.items()}
    longer = [t for p, t in times.items() if cells[p].count("\n") >= 21]
    for label, group in (("all cells", list(times.values())), ("20-60 lines", longer)):
        ordered = sorted(group)
        print(f"{label}: median {ordered[len(ordered) // 2]:.2f} ms, p95 {ordered[int(len(ordered) * 0.95)]:.2f} ms")
    print(f"memory {swc.memory.data_len(swc.store) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
