"""Programs that exhaust the stack: a RangeError that they can catch, never a trap of the engine."""

import pytest

from nacre.sandbox import Sandbox
from tests.security.attacks import AMPLE, SHORT, attack, completed, verdict

RECURSIONS = {
    "function": "(function deeper() { return deeper() + 1 })()",
    "getter": "(o => o.a)({get a() { return this.a }})",
    "to_string": "(o => { o.toString = () => '' + o; return '' + o })({})",
    "constructor": "new (class Deeper { constructor() { new Deeper() } })()",
    "apply": "(function deeper() { return Reflect.apply(deeper, null, []) })()",
    "sort": "(function deeper() { [2, 1].sort(deeper); return 0 })()",
    "replace": "(function deeper() { return 'a'.replace(/a/, deeper) })()",
    "eval": "(function deeper() { return eval('deeper()') })()",
    "new_function": "(function deeper() { return new Function('f', 'return f()')(deeper) })()",
    "to_json": "(o => { o.toJSON = () => JSON.stringify(o); return JSON.stringify(o) })({})",
    "proxies": (
        "(() => { let p = {}; for (let i = 0; i < 50000; i++) p = new Proxy(p, {}); return p.a })()"
    ),
    "structured_clone": "structuredClone(nested(50000))",
    "flat": "nested(50000).flat(Infinity)",
    "array_to_text": "String(nested(50000))",
    "parse_json_arrays": "JSON.parse('['.repeat(100000) + ']'.repeat(100000))",
    "parse_json_objects": "JSON.parse('{\"a\":'.repeat(100000) + '1' + '}'.repeat(100000))",
    "parse_arrays": "eval('['.repeat(100000) + ']'.repeat(100000))",
    "parse_parentheses": "eval('('.repeat(100000) + '1' + ')'.repeat(100000))",
    "parse_operators": "eval('!'.repeat(100000) + '1')",
    "parse_functions": "eval('() =>'.repeat(30000) + '1')",
}

NESTED = "function nested(depth) { let a = []; while (depth--) a = [a]; return a }\n"


@pytest.mark.parametrize("expression", RECURSIONS.values(), ids=RECURSIONS.keys())
async def test_a_program_can_catch_its_own_recursion(sandbox: Sandbox, expression: str) -> None:
    code = (
        f"{NESTED} try {{ {expression} }} catch (error) {{ return [error instanceof "
        f"RangeError, error.message] }}"
    )
    assert await attack(sandbox, code, limits=AMPLE) == completed(
        [True, "Maximum call stack size exceeded"]
    )


async def test_endless_recursion_that_nobody_catches_fails_the_cell(sandbox: Sandbox) -> None:
    result = await attack(sandbox, "function deeper() { return deeper() + 1 }\nreturn deeper()")
    assert result == {
        "status": "failed",
        "error": "RangeError: Maximum call stack size exceeded"
        + "\n    at deeper cell.js:1:28" * 6,
        "code": "internal_error",
        "reason": "guest_error",
        "line": 1,
        "column": 28,
    }


async def test_endless_async_recursion_rejects(sandbox: Sandbox) -> None:
    code = (
        "async function deeper() { await deeper() } try { await deeper() } catch (e) { "
        "return e.name }"
    )
    assert await attack(sandbox, code, limits=AMPLE) == completed("RangeError")


async def test_recursion_that_goes_on_in_finally_is_stopped_at_the_time_budget(
    sandbox: Sandbox,
) -> None:
    code = "function deeper() { try { deeper() } finally { deeper() } } deeper()"
    assert verdict(await attack(sandbox, code, limits=SHORT)) == ("failed", "timeout", "timeout")


DEEP_SINKS = {
    "returned": "return nested(100000)",
    "thrown_as_text": "text(nested(100000))",
    "json": "json(nested(100000))",
    "request": "await echo(nested(100000))",
    "just_too_deep": "return nested(241)",
    "pairs_of_maps": "let a = 1; for (let i = 0; i < 200; i++) a = new Map([[a, 1]]); return a",
}


@pytest.mark.parametrize("code", DEEP_SINKS.values(), ids=DEEP_SINKS.keys())
async def test_a_value_nested_too_deep_never_reaches_the_host(sandbox: Sandbox, code: str) -> None:
    result = await attack(sandbox, NESTED + code, limits=AMPLE)
    assert verdict(result) == ("failed", "internal_error", "guest_error")
    assert str(result["error"]).startswith("RangeError: value is nested deeper than 240 levels")
    assert "output" not in result


async def test_the_deepest_allowed_value_passes(sandbox: Sandbox) -> None:
    result = await attack(sandbox, f"{NESTED} return await echo(nested(239))")
    value, depth = result["value"], 0
    while isinstance(value, list) and value:
        value, depth = value[0], depth + 1
    assert (value, depth) == ([], 239)


async def test_a_deeply_nested_value_is_freed_without_recursion(sandbox: Sandbox) -> None:
    code = "let a = {}; for (let i = 0; i < 200000; i++) a = {a}; a = null; return 'freed'"
    assert await attack(sandbox, code, limits=AMPLE) == completed("freed")


async def test_a_program_that_is_nested_too_deep_does_not_compile(sandbox: Sandbox) -> None:
    result = await attack(sandbox, "return " + "[" * 100_000 + "]" * 100_000)
    assert (result["status"], "call stack" in str(result["error"])) == ("failed", True)
