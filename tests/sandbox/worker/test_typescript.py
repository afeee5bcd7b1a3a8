"""The TypeScript transform, on the corpus that chose it and on programs that mean harm."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nacre.sandbox.image import ImageKind, library_path, load_image
from nacre.sandbox.source_map import MAX_MAPPINGS_LENGTH, PositionMap
from nacre.sandbox.worker.cell_worker import Burst, BurstFailure, run_guest
from nacre.sandbox.worker.host_calls import MODULES_DISABLED, HostCalls
from nacre.sandbox.worker.typescript import Transformed, TransformRefused, TypeScriptTransformer
from nacre.sandbox.worker.vm import VmFactory
from nacre.sandbox.worker.wasm_runtime import Runtime, WasmTrap
from tests.compiled_modules import compiled_module

CORPUS = Path(__file__).parents[3] / "guest" / "bakeoff"
# The main thread's stack has 8 MiB; a worker can have more.
MAX_STACK_BYTES = 4 << 20
MEMORY_LIMIT_BYTES = 64 << 20
BURST = {
    "budgetMs": 5000,
    "maxRequests": 0,
    "outputBytesLeft": 1 << 20,
    "maxOutputBytes": 1 << 20,
    "imageBytesLeft": 0,
    "hasReturned": False,
}

DECORATORS = "swc leaves decorators as they are, and QuickJS has none"
WRONG_CELLS = {
    "028-namespace-merging": "merged namespaces do not see each other's names",
    "049-class-accessor-keyword": "swc leaves `accessor` as it is, and QuickJS has none",
    "123-decorator-class-simple": DECORATORS,
    "124-decorator-method-wrap": DECORATORS,
    "125-decorator-factory-and-field": DECORATORS,
    "157-parameter-properties-order": "fields are initialised after parameter defaults",
    "177-asi-class-members": "a field's value and the next line's `[` become one expression",
}
ELSEWHERE_BROKEN = {
    "005-unterminated-template": "reported inside the template, not at its end",
    "052-break-out-of-body": "reported behind the bracket that is too many",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A transformed program that has been run."""

    value: str | None
    failure: BurstFailure | None
    position: tuple[int, int] | None


class Sandbox:
    """What a worker has, in this process."""

    def __init__(self) -> None:
        self._runtime = Runtime(str(library_path()), max_stack_bytes=MAX_STACK_BYTES)
        self.transformer = TypeScriptTransformer(self._runtime, self._module("typescript"))
        self._factory = VmFactory(
            self._runtime, HostCalls(self._runtime), load_image("cell"), self._module("cell")
        )

    def _module(self, kind: ImageKind) -> int:
        return self._runtime.load(str(compiled_module(kind)))

    def transform(self, source: str) -> Transformed:
        return self.transformer.transform(source.encode())

    def refusal(self, source: str) -> TransformRefused:
        with pytest.raises(TransformRefused) as refused:
            self.transform(source)
        return refused.value

    def run(self, source: str) -> Cell:
        transformed = self.transform(source)
        burst = Burst(BURST, send=lambda _: None, is_cancelled=lambda: False)
        vm = self._factory.create(burst, memory_limit_bytes=MEMORY_LIMIT_BYTES)
        failure = run_guest(
            burst,
            lambda: vm.start(transformed.code, file_name="cell.ts"),
            source=transformed.code,
        )
        vm.close()
        failure = failure or burst.failure
        position = _position(failure.stack, transformed.mappings) if failure else None
        fields, tail = burst.report()
        value = tail.decode() if "valueBytes" in fields else None
        return Cell(value=value, failure=failure, position=position)


def _position(stack: str, mappings: str | None) -> tuple[int, int] | None:
    found = re.search(r"cell\.ts:(\d+):(\d+)", stack)
    if found is None:
        return None
    line, column = int(found[1]), int(found[2])
    if mappings is None:
        return line, column
    return PositionMap.from_mappings(mappings).original(line, column)


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return Sandbox()


def corpus(folder: str) -> Callable[..., object]:
    """Run a test with every cell of a folder."""
    cells = [pytest.param(path, id=path.stem) for path in cells_in(folder)]
    return pytest.mark.parametrize("path", cells)


def corpus_with_misses(folder: str, misses: dict[str, str]) -> Callable[..., object]:
    """The same, and whether a cell is one that is known to be missed."""
    paths = cells_in(folder)
    assert misses.keys() <= {path.stem for path in paths}
    cells = [pytest.param(path, path.stem in misses, id=path.stem) for path in paths]
    return pytest.mark.parametrize(("path", "is_missed"), cells)


def cells_in(folder: str) -> list[Path]:
    paths = sorted((CORPUS / folder).glob("*.ts"))
    assert paths
    return paths


def expectation(path: Path) -> tuple[str, str]:
    """The program, and what its first line says of it."""
    source = path.read_text(encoding="utf-8")
    return source, source.partition("\n")[0].partition(": ")[2]


@corpus_with_misses("cells", WRONG_CELLS)
def test_cell_returns_what_typescript_makes_it_return(
    sandbox: Sandbox, path: Path, is_missed: bool
) -> None:
    source, expected = expectation(path)
    cell = sandbox.run(source)
    # A miss that is one no longer has to leave the list, and the docs.
    assert (cell.value == expected and cell.failure is None) == (not is_missed), cell


@corpus_with_misses("broken", ELSEWHERE_BROKEN)
def test_broken_cell_is_refused_on_the_line_of_the_mistake(
    sandbox: Sandbox, path: Path, is_missed: bool
) -> None:
    source, expected = expectation(path)
    try:
        cell = sandbox.run(source)
    except TransformRefused as refused:
        line, reason = refused.line, "syntax_error"
        assert not refused.is_module_syntax
    else:
        # What only TypeScript's checker minds, QuickJS's parser finds.
        assert cell.failure and cell.position
        line, reason = cell.position[0], cell.failure.reason
    assert reason == "syntax_error"
    assert (line == int(expected.partition(":")[0])) == (not is_missed)


@corpus("modules")
def test_cell_with_module_syntax_is_refused_for_module_access(sandbox: Sandbox, path: Path) -> None:
    source, _ = expectation(path)
    try:
        cell = sandbox.run(source)
    except TransformRefused as refused:
        assert refused.is_module_syntax
        assert refused.message.startswith(MODULES_DISABLED)
    else:
        # `import()`, `import.meta` and `require()` are no statements: the engine refuses them.
        assert cell.failure
        assert cell.failure.reason == "module_access_denied"


@corpus("positions")
def test_error_is_thrown_on_the_line_of_the_source(sandbox: Sandbox, path: Path) -> None:
    source, expected = expectation(path)
    cell = sandbox.run(source)
    assert cell.failure and cell.position
    assert (cell.failure.reason, cell.position[0]) == ("guest_error", int(expected))


@corpus("cells")
def test_code_keeps_its_lines_or_is_mapped_to_lines_of_the_source(
    sandbox: Sandbox, path: Path
) -> None:
    source, _ = expectation(path)
    transformed = sandbox.transform(source)
    if transformed.mappings is None:
        assert transformed.code.count(b"\n") == source.count("\n")
        return
    positions = PositionMap.from_mappings(transformed.mappings)
    lines = source.split("\n")
    for number, text in enumerate(transformed.code.decode().split("\n"), start=1):
        for column in range(1, len(text) + 1):
            original = positions.original(number, column)
            assert original
            assert original[0] <= len(lines)
            assert original[1] <= len(lines[original[0] - 1]) + 1


def test_map_of_a_huge_program_ends_early(sandbox: Sandbox) -> None:
    line = "f(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);\n"
    transformed = sandbox.transform("enum A { B }\n" + line * 15_000)
    assert transformed.mappings
    positions = PositionMap.from_mappings(transformed.mappings)
    assert len(transformed.mappings) > MAX_MAPPINGS_LENGTH * 0.99
    # The enum is printed in four lines.
    assert positions.original(1003, 5) == (1000, 1)
    assert positions.original(15_004, 5) == positions.original(20_000, 5)


@pytest.mark.parametrize("name", [name for name, why in WRONG_CELLS.items() if "QuickJS" in why])
def test_syntax_that_only_the_engine_refuses_is_refused_on_its_line(
    sandbox: Sandbox, name: str
) -> None:
    source = (CORPUS / "cells" / f"{name}.ts").read_text(encoding="utf-8")
    cell = sandbox.run(source)
    assert cell.failure and cell.position
    assert cell.failure.reason == "syntax_error"
    assert re.search(r"@|accessor", source.split("\n")[cell.position[0] - 1])


def test_types_become_spaces(sandbox: Sandbox) -> None:
    assert sandbox.transform("const a: number = 1;\nreturn a as any") == Transformed(
        code=b"const a         = 1;\nreturn a       ", mappings=None
    )


def test_empty_program_stays_empty(sandbox: Sandbox) -> None:
    assert sandbox.transform("") == Transformed(code=b"", mappings=None)
    assert sandbox.transform("const enum A { B }") == Transformed(code=b"", mappings="")


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [
        ("let x = ;", 1, 9),
        ("\n\tlet x = ;", 2, 10),
        ('"\u00e9\U0001f600\u4e2d\u200b"; let x = ;', 1, 17),
        ("function f() {", 1, 15),
        ("function f() {\n", 2, 1),
        ("enum A { B }\nlet x = ;", 2, 9),
    ],
)
def test_position_of_a_mistake_counts_characters_of_the_source(
    sandbox: Sandbox, source: str, line: int, column: int
) -> None:
    refused = sandbox.refusal(source)
    assert (refused.line, refused.column) == (line, column)


def test_source_that_is_not_utf8_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(TransformRefused) as refused:
        sandbox.transformer.transform(b"let a\nlet \xff")
    assert (refused.value.line, refused.value.column) == (2, 5)


@pytest.mark.parametrize(
    "source",
    [
        'namespace A { import x from "y"; export const z = x; }',
        'namespace A { import x = require("y"); export const z = x; }',
        'namespace A { export * from "y"; }',
        'namespace A {}\nenum B {}\nimport x from "y";',
    ],
)
def test_module_statement_beside_other_typescript_is_refused(sandbox: Sandbox, source: str) -> None:
    assert sandbox.refusal(source).is_module_syntax


@pytest.mark.parametrize("rest", ["", "enum A { B }\n"])
@pytest.mark.parametrize(
    "source",
    [
        "}); evil(); (async function(){",
        "}); evil(); (async () => {",
        "}, async () => {",
        "}); (class {",
        "}); let x: ({",
        '}); import x from "y"; (async () => {',
        '}); import type x from "y"; (async () => {',
        "}); export {}; (async () => {",
        "})",
        "}); /*",
        "}); `${",
        "}); //",
    ],
)
def test_program_that_closes_the_function_around_it_fails_or_comes_to_nothing(
    sandbox: Sandbox, source: str, rest: str
) -> None:
    for program in (rest + source, source + rest):
        try:
            cell = sandbox.run(program)
        except TransformRefused as refused:
            assert refused.message
        else:
            assert cell.failure or cell.value == "null"


@pytest.mark.parametrize("source", ["(" * 100_000, "return " + "[" * 20_000 + "]" * 20_000])
def test_deep_nesting_traps_and_the_next_program_is_transformed(
    sandbox: Sandbox, source: str
) -> None:
    with pytest.raises(WasmTrap):
        sandbox.transform(source)
    assert sandbox.transform("let a: A").code == b"let a   "
