"""Programs that reach for modules are refused by the engine; the mere word is nothing to refuse."""

import pytest

from nacre.sandbox import Sandbox
from tests.contract.requirements import requirement
from tests.security.attacks import attack, completed, verdict

DENIED = "module access is disabled in cells"

STATIC = {
    "default": ("import fs from 'fs'", 1, 8),
    "named": ("import {a} from 'x'", 1, 8),
    "namespace": ("import * as x from 'x'", 1, 8),
    "bare": ("import 'x'", 1, 8),
    "second_line": ("const a = 1\nimport 'x'", 2, 8),
    "behind_a_statement": ("const a = 1; import x from 'y'", 1, 21),
    "in_a_function": ("function f() { import x from 'y' }", 1, 23),
    "in_a_block": ("{ import x from 'y' }", 1, 10),
    "as_a_label": ("import: for (;;) break", 1, 7),
    "export": ("export const a = 1", 1, 1),
    "export_default": ("export default 5", 1, 1),
    "export_all": ("export * from 'x'", 1, 1),
    "export_behind_a_statement": ("const a = 1; export {a}", 1, 14),
    "meta": ("return import.meta", 1, 15),
    "meta_url": ("return import.meta.url", 1, 15),
    "meta_with_a_comment": ("return import /* x */ . meta", 1, 25),
}


@pytest.mark.parametrize(("code", "line", "column"), STATIC.values(), ids=STATIC.keys())
@requirement("validation:no-modules")
async def test_a_module_statement_is_refused_before_anything_runs(
    sandbox: Sandbox, code: str, line: int, column: int
) -> None:
    result = await attack(sandbox, code)
    assert verdict(result) == ("failed", "invalid_input", "module_access_denied")
    assert str(result["error"]).startswith(f"{DENIED}: SyntaxError: ")
    assert (result["line"], result["column"]) == (line, column)


async def test_nothing_of_a_program_with_a_module_statement_runs(sandbox: Sandbox) -> None:
    assert "output" not in await attack(sandbox, "text('ran')\nimport 'x'")


DYNAMIC = {
    "import": "await import('fs')",
    "node": "const {readFileSync} = await import('node:fs')",
    "data_url": "await import('data:text/javascript,export default 1')",
    "file_url": "await import('file:///etc/passwd')",
    "with_options": "await import('x', {with: {type: 'json'}})",
    "not_awaited": "import('fs'); return 1",
    "in_eval": "await eval(\"import('fs')\")",
    "in_a_function": "await new Function(\"return import('fs')\")()",
    "in_an_async_function": "await (async () => {}).constructor(\"return import('fs')\")()",
    "by_a_constructor": "await (() => {}).constructor.constructor(\"return import('fs')\")()",
    "in_a_timer": "setTimeout(() => import('fs'), 0); await new Promise(r => setTimeout(r, 20))",
    "require": "require('fs')",
    "require_of_anything": "require({a: 1})",
    "require_aliased": "const load = require; load('child_process')",
}


@pytest.mark.parametrize("code", DYNAMIC.values(), ids=DYNAMIC.keys())
@requirement("validation:no-modules")
async def test_a_module_asked_for_at_run_time_is_refused(sandbox: Sandbox, code: str) -> None:
    result = await attack(sandbox, code)
    assert verdict(result) == ("failed", "invalid_input", "module_access_denied")
    assert str(result["error"]).startswith(f"Error: {DENIED}")


@pytest.mark.parametrize("load", ["await import('fs')", "require('fs')"])
async def test_a_program_can_catch_the_refusal_and_has_nothing_of_it(
    sandbox: Sandbox, load: str
) -> None:
    code = f"try {{ {load} }} catch (error) {{ return error.message.startsWith('{DENIED}') }}"
    assert await attack(sandbox, code) == completed(True)


@pytest.mark.parametrize(
    "text",
    ["import fs from 'fs'", "export default 1", "import.meta"],
    ids=["import", "export", "meta"],
)
@pytest.mark.parametrize("run", ["eval", "new Function", "(async () => {}).constructor"])
async def test_module_statements_do_not_compile_inside_eval_either(
    sandbox: Sandbox, run: str, text: str
) -> None:
    code = f'try {{ {run}("{text}") }} catch (error) {{ return error.name }}'
    assert await attack(sandbox, code) == completed("SyntaxError")


async def test_a_specifier_that_throws_is_the_programs_own_error(sandbox: Sandbox) -> None:
    result = await attack(sandbox, "await import({toString() { throw new Error('mine') }})")
    assert verdict(result) == ("failed", "internal_error", "guest_error")


ONLY_WORDS = {
    "string": ("return 'import x; export default'", "import x; export default"),
    "comments": ("// import x from 'y'\n/* export default 1; import.meta */ return 1", 1),
    "jsdoc": ("/** @type {import('x').Y} */ const a = 1; return a", 1),
    "template": ("return `import ${1} from 'x' export`", "import 1 from 'x' export"),
    "regex": (r"return /import\s+x|export|import.meta/.test('import x')", True),
    "properties": ("const o = {import: 1, export: 2}; return o.import + o.export", 3),
    "methods": (
        "class A { import(x) { return x } export() { return 2 } static require() { return 3 } }"
        "return [new A().import(1), new A().export(), A.require()]",
        [1, 2, 3],
    ),
    "optional_call": ("const o = {import: x => x}; return o?.import(5)", 5),
    "call_on_the_next_line": ("const o = {import: x => x}; return o\n.import(5)", 5),
    "names": ("const imported = 1, $import = 2; return imported + $import", 3),
    "label": ("imports: for (;;) { break imports } return 1", 1),
    "destructuring": ("const {import: a, export: b} = {import: 1, export: 2}; return a + b", 3),
    "computed_key": ("return {['import']: 1}['import']", 1),
    "private_name": ("class A { #import = 1; a() { return this.#import } } return new A().a()", 1),
    "own_require": ("const require = name => name; return require('mine')", "mine"),
    "replaced_require": ("globalThis.require = () => 42; return require('fs')", 42),
}  # fmt: skip


@pytest.mark.parametrize(("code", "value"), ONLY_WORDS.values(), ids=ONLY_WORDS.keys())
async def test_the_words_of_modules_pass_where_they_are_only_words(
    sandbox: Sandbox, code: str, value: object
) -> None:
    assert await attack(sandbox, code) == {"status": "completed", "value": value}


BROKEN = {
    "behind_a_string": 'const s = "import" foo',
    "behind_a_comment": "/* import */ foo bar",
    "behind_a_property": "const o = {import: 1}; o.import foo",
    "behind_an_exported_string": "const s = 'export' oops",
    "a_variable_named_import": "var import = 1",
    "cut_off": "const s = 'import '; return s +",
}


@pytest.mark.parametrize("code", BROKEN.values(), ids=BROKEN.keys())
async def test_other_mistakes_near_the_words_of_modules_are_syntax_errors(
    sandbox: Sandbox, code: str
) -> None:
    assert verdict(await attack(sandbox, code)) == ("failed", "invalid_input", "syntax_error")
