"""Programs that look for a way out: they find the guest's own globals and nothing of a host."""

import os

import pytest

from nacre.errors import HostRequestError
from nacre.json_types import JsonValue
from nacre.sandbox import HostRequest, Sandbox
from tests.contract.requirements import requirement
from tests.security.attacks import AMPLE, SHORT, TIMED_OUT, attack, completed, verdict

GLOBALS = {
    "constructor_of_an_array": "[].constructor.constructor('return this')()",
    "constructor_of_a_function": "(() => {}).constructor('return this')()",
    "constructor_of_the_api": "echo.constructor('return this')()",
    "constructor_of_text": "text.constructor.constructor('return this')()",
    "constructor_of_the_console": "console.log.constructor('return this')()",
    "constructor_of_an_answer": "(await echo({a: []})).a.constructor.constructor('return this')()",
    "constructor_of_a_promise": "echo(1).constructor.constructor('return this')()",
    "function": "Function('return this')()",
    "async_function": "await (async () => {}).constructor('return this')()",
    "generator_function": "(function* () {}).constructor('return this')().next().value",
    "async_generator": "(await (async function* () {}).constructor('return this')().next()).value",
    "indirect_eval": "(0, eval)('this')",
    "direct_eval": "eval('globalThis')",
    "sloppy_this": "(function () { return this })()",
    "timer_this": (
        "await new Promise(done => setTimeout(function () { done(this ?? globalThis) }, 0))"
    ),
}


@pytest.mark.parametrize("expression", GLOBALS.values(), ids=GLOBALS.keys())
async def test_every_way_to_the_global_object_leads_to_the_programs_own(
    sandbox: Sandbox, expression: str
) -> None:
    assert await attack(sandbox, f"return {expression} === globalThis") == completed(True)


HOST_NAMES = [
    "process", "Deno", "Bun", "window", "self", "global", "module", "exports", "__dirname",
    "__filename", "std", "os", "bjson", "fetch", "XMLHttpRequest", "WebSocket", "Worker",
    "EventSource", "navigator", "document", "print", "scriptArgs", "gc", "load", "loadFile",
    "WebAssembly", "Atomics", "host", "install", "__openclaw", "__host", "__nacre", "Python",
]  # fmt: skip


@requirement("validation:no-files-network-environment", "security:no-host-objects")
async def test_nothing_of_a_host_is_among_the_globals(sandbox: Sandbox) -> None:
    code = f"return {HOST_NAMES!r}.filter(name => name in globalThis)"
    assert await attack(sandbox, code) == completed([])


async def test_no_global_hides_behind_an_underscore_or_a_symbol(sandbox: Sandbox) -> None:
    code = """
        const all = Reflect.ownKeys(globalThis);
        const expected = key =>
            typeof key === 'symbol' ? key === Symbol.toStringTag : !key.startsWith('_');
        return all.filter(key => !expected(key)).map(String)
    """
    assert await attack(sandbox, code) == completed([])


async def test_the_guests_functions_do_not_show_what_they_are_made_of(sandbox: Sandbox) -> None:
    """Neither properties nor callers of the guest's functions lead into its closures."""
    code = """
        const found = [];
        for (const f of [echo, text, json, yield_control, setTimeout, console.log, require]) {
            for (const key of Reflect.ownKeys(f)) {
                if (['length', 'name', 'prototype'].includes(key)) continue;
                found.push(f.name + '.' + String(key));
            }
            try { if (f.caller || f.arguments) found.push(f.name + '.caller') } catch {}
        }
        return found
    """
    assert await attack(sandbox, code) == completed([])


async def test_a_callback_does_not_see_its_caller(sandbox: Sandbox) -> None:
    code = """
        let seen = 'nothing';
        await echo({toJSON: function trap() {
            try { seen = String(trap.caller ?? 'nothing') } catch (error) { seen = 'nothing' }
            return 1;
        }});
        return seen
    """
    assert await attack(sandbox, code) == completed("nothing")


async def test_structured_stack_frames_give_no_functions_of_the_guest(sandbox: Sandbox) -> None:
    code = """
        const leaks = [];
        Error.prepareStackTrace = (_, frames) => {
            for (const frame of Array.isArray(frames) ? frames : []) {
                for (const get of ['getFunction', 'getThis']) {
                    const found = typeof frame[get] === 'function' ? frame[get]() : undefined;
                    if (found !== undefined && found !== globalThis) leaks.push(String(found));
                }
            }
            return '';
        };
        await echo({toJSON() { return String(new Error('x').stack).length }});
        return leaks
    """
    assert await attack(sandbox, code) == completed([])


@requirement("validation:no-files-network-environment")
async def test_the_environment_of_the_supervisor_is_out_of_reach(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_SECRET", "hunter2")
    code = "return JSON.stringify(Reflect.ownKeys(globalThis).map(key => String(globalThis[key])))"
    result = await attack(sandbox, code)
    assert result["status"] == "completed"
    assert "hunter2" not in str(result) and os.getcwd() not in str(result)


@requirement("security:plain-errors")
async def test_errors_of_the_host_cross_as_plain_data(sandbox: Sandbox) -> None:
    async def fail(request: HostRequest) -> JsonValue:
        raise HostRequestError(
            "no", name="Refusal", code="E", data={"__proto__": {"bad": 1}, "a": 1}
        )

    code = """
        try { await echo(1) } catch (error) {
            const {name, code, a, bad, stack} = error;
            return [Object.getPrototypeOf(error) === Error.prototype, name, code, a,
                    bad === undefined, /[.]py|Traceback|site-packages/.test(stack)]
        }
    """
    assert await attack(sandbox, code, handler=fail) == completed(
        [True, "Refusal", "E", 1, True, False]
    )


async def test_a_key_named_proto_in_an_answer_changes_no_prototype(sandbox: Sandbox) -> None:
    async def answer(request: HostRequest) -> JsonValue:
        return {"__proto__": {"polluted": True}, "constructor": {"prototype": {"polluted": True}}}

    code = (
        "const a = await echo(1); return [a.polluted === undefined, {}.polluted === "
        "undefined, Object.keys(a)]"
    )
    assert await attack(sandbox, code, handler=answer) == completed(
        [True, True, ["__proto__", "constructor"]]
    )


BREAKOUTS = {
    "closes_the_function": "}); globalThis.marker = 1; (async () => {",
    "second_expression": "}, text('out'), async () => {",
    "calls_it": "})()\n(async () => {",
    "not_a_function": "}); (5",
    "loops_outside": "}); for (;;); (async () => {",
    "throws_outside": "}); throw new Error('outside'); (async () => {",
    "closes_a_comment": "*/ return 1 /*",
    "opens_a_comment": "return 1 /*",
    "opens_a_template": "`",
    "ends_in_a_comment": "return 1 //",
    "nul": "return 1\0; text('hidden')",
    "super": "super.x",
    "new_target": "return new.target",
    "yield": "yield 1",
    "html_comment": "<!-- x\nreturn 1\n-->",
    "hash_bang": "#!/usr/bin/env node\nreturn 1",
    "empty": "",
    "line_separators": "return 1\u2028; text('x')\u2029",
    "half_a_surrogate_pair": "return '\ud800'",
    "byte_order_mark": "\ufeffreturn 1",
}


@pytest.mark.parametrize("code", BREAKOUTS.values(), ids=BREAKOUTS.keys())
async def test_code_that_breaks_out_of_its_function_stays_in_its_cell(
    sandbox: Sandbox, code: str
) -> None:
    """The neighbour's cell that runs beside and behind it proves the rest."""
    is_endless = code == BREAKOUTS["loops_outside"]
    result = await attack(sandbox, code, limits=SHORT if is_endless else AMPLE)
    if is_endless:
        assert result == TIMED_OUT
    elif result["status"] == "failed":
        assert result["reason"] in ("syntax_error", "guest_error")
    else:
        assert result["status"] == "completed"


NAMES = ["toString", "constructor", "__proto__", "then", "text", "a b", "", "require"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_host_function_of_any_name_is_only_that(sandbox: Sandbox, name: str) -> None:
    async def answer(request: HostRequest) -> JsonValue:
        return [request.method, request.payload]

    cell = sandbox.cell(
        f"return await Reflect.getOwnPropertyDescriptor(globalThis, {name!r}).value(7)",
        functions=(name,),
        handler=answer,
        limits=AMPLE,
    )
    result = await cell.run()
    assert getattr(result, "value", result) == [name, 7]


async def test_a_program_cannot_call_a_host_function_that_it_was_not_given(
    sandbox: Sandbox,
) -> None:
    assert verdict(await attack(sandbox, "return await secret(1)")) == (
        "failed",
        "internal_error",
        "guest_error",
    )
