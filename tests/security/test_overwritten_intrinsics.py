"""Programs that replace what the language gives them: they break themselves and nobody else."""

import pytest

from nacre.errors import HostRequestError
from nacre.json_types import JsonValue
from nacre.sandbox import HostRequest, Sandbox
from tests.security.attacks import attack, completed, verdict

SABOTAGE = {
    "json": "JSON.stringify = JSON.parse = () => { throw 'sabotage' }; globalThis.JSON = null;",
    "promise": (
        "Promise.resolve = Promise.reject = Promise.all = () => { throw 'sabotage' };"
        "globalThis.Promise = function () { throw 'sabotage' };"
    ),
    "array_prototype": (
        "for (const name of Object.getOwnPropertyNames(Array.prototype))"
        "  if (name !== 'length') Array.prototype[name] = () => { throw 'sabotage' };"
        "Array.prototype[Symbol.iterator] = () => { throw 'sabotage' };"
    ),
    "object": (
        "for (const name of Object.getOwnPropertyNames(Object))"
        "  try { Object[name] = () => { throw 'sabotage' } } catch {}"
    ),
    "object_prototype": (
        "Object.prototype.toString = Object.prototype.valueOf = () => { throw 'sabotage' };"
    ),
    "string": (
        "for (const name of Object.getOwnPropertyNames(String.prototype))"
        "  if (name !== 'length') String.prototype[name] = () => { throw 'sabotage' };"
        "globalThis.String = () => { throw 'sabotage' };"
    ),
    "map_and_set": (
        "for (const type of [Map, Set, WeakMap, WeakSet])"
        "  for (const name of ['get', 'set', 'has', 'add', 'delete', 'forEach'])"
        "    type.prototype[name] = () => { throw 'sabotage' };"
    ),
    "function": (
        "Function.prototype.call = Function.prototype.apply = Function.prototype.bind ="
        "  () => { throw 'sabotage' };"
    ),
    "reflect": (
        "for (const name of Object.getOwnPropertyNames(Reflect)) Reflect[name] = () => "
        "{ throw 'sabotage' };"
    ),
    "errors": (
        "Error.prepareStackTrace = () => { throw 'sabotage' }; Error.stackTraceLimit = -1;"
        "Error.captureStackTrace = () => { throw 'sabotage' };"
        "globalThis.Error = globalThis.TypeError = globalThis.RangeError = () => { "
        "throw 'sabotage' };"
    ),
    "numbers_and_dates": (
        "globalThis.Number = globalThis.BigInt = globalThis.Symbol = null;"
        "Date.now = () => { throw 'sabotage' }; globalThis.Date = null;"
    ),
    "setters": (
        "for (const key of [0, 1, 2, 'resolve', 'reject', 'id', 'message', 'stack', "
        "'next', 'value'])"
        "  Object.defineProperty(Object.prototype, key,"
        "    {__proto__: null, set() { throw 'sabotage' }, get() { throw 'sabotage' }});"
        "Object.defineProperty(Array.prototype, 0, {__proto__: null, set() { throw 'sabotage' }});"
    ),
    "to_json": (
        "for (const type of [Object, Array, String, Number, Boolean, BigInt, Function])"
        "  Object.defineProperty(type.prototype, 'toJSON', {get: () => undefined});"
    ),
    "global_this": "const self = globalThis; self.globalThis = null; self.undefined = 1;",
    "own_api": (
        "globalThis.text = globalThis.json = globalThis.console = globalThis.setTimeout = null;"
    ),
    "frozen": (
        "for (const type of [Object, Array, Promise, Function, Error]) { "
        "Object.freeze(type); Object.freeze(type.prototype) }"
    ),
    "deleted": (
        "const self = globalThis; for (const name of Object.getOwnPropertyNames(self)) "
        "if (!keep.has(name)) delete self[name];"
    ),
}

KEEP = "const keep = new Set(['echo', 'yield_control']); const {text: say} = globalThis;\n"


@pytest.mark.parametrize("sabotage", SABOTAGE.values(), ids=SABOTAGE.keys())
async def test_the_guest_goes_on_with_its_own_intrinsics(sandbox: Sandbox, sabotage: str) -> None:
    code = f"""{KEEP} {sabotage}
        say({{list: [1, 'two', null]}});
        return {{answer: await echo({{a: [1]}}), date: 5}}
    """
    assert await attack(sandbox, code) == {
        **completed({"answer": {"a": [1]}, "date": 5}),
        "output": [{"type": "text", "text": '{"list":[1,"two",null]}'}],
    }


@pytest.mark.parametrize("sabotage", SABOTAGE.values(), ids=SABOTAGE.keys())
async def test_errors_of_a_saboteur_are_still_told(sandbox: Sandbox, sabotage: str) -> None:
    code = f"{KEEP} const Broken = TypeError; {sabotage}\nthrow new Broken('told')"
    result = await attack(sandbox, code)
    assert verdict(result) == ("failed", "internal_error", "guest_error")
    assert str(result["error"]).startswith("TypeError: told")


@pytest.mark.parametrize("sabotage", SABOTAGE.values(), ids=SABOTAGE.keys())
async def test_errors_of_the_host_still_reach_a_saboteur(sandbox: Sandbox, sabotage: str) -> None:
    async def refuse(request: HostRequest) -> JsonValue:
        raise HostRequestError("refused", name="Refusal", code="E1", data={"toolId": "t"})

    code = f"""{KEEP} {sabotage}
        try {{ await echo(1) }} catch (error) {{
            return error.name + error.message + error.code + error.toolId
        }}
    """
    assert await attack(sandbox, code, handler=refuse) == completed("RefusalrefusedE1t")


@pytest.mark.parametrize("sabotage", SABOTAGE.values(), ids=SABOTAGE.keys())
async def test_a_saboteur_can_be_suspended_and_resumed(sandbox: Sandbox, sabotage: str) -> None:
    cell = sandbox.cell(
        f"{KEEP} {sabotage} let kept = 40; await yield_control(); return kept + 2", owner="attacker"
    )
    assert type(await cell.run()).__name__ == "Waiting"
    resumed = await cell.resume()
    assert getattr(resumed, "value", resumed) == 42


FORGERIES = {
    "another_request": """'1],[77,"secret",{"forged":true}'""",
    "the_same_id_twice": """'1],[1,"echo",2'""",
    "another_field": """'1]],"yields":[1,2],"x":[[1'""",
    "no_json": "'garbage'",
    "no_text": "({})",
    "a_large_number": "'1e999'",
    "nested": "'['.repeat(5000) + ']'.repeat(5000)",
}


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES.keys())
async def test_a_program_cannot_slip_text_of_its_own_into_what_the_guest_writes(
    sandbox: Sandbox, forged: str
) -> None:
    """The engine joins the parts of a template literal by `String.prototype.concat`."""
    asked: list[tuple[str, JsonValue]] = []

    async def record(request: HostRequest) -> JsonValue:
        asked.append((request.method, request.payload))
        return "answer"

    code = f"String.prototype.concat = () => {forged}; json([2]); return [await echo({{a: [1]}})]"
    assert await attack(sandbox, code, handler=record) == {
        **completed(["answer"]),
        "output": [{"type": "json", "value": [2]}],
    }
    assert asked == [("echo", {"a": [1]})]


async def test_an_answer_is_settled_even_if_promises_are_poisoned(sandbox: Sandbox) -> None:
    """A poisoned `then` may swallow the program's own value: the cell fails, it does not hang."""
    code = "Promise.prototype.then = () => { throw new Error('poison') }; return await echo(1)"
    result = await attack(sandbox, code)
    assert result["status"] in ("completed", "failed")
    assert result.get("value", 1) == 1


async def test_an_answer_never_runs_a_then_of_the_program_in_the_host(sandbox: Sandbox) -> None:
    code = """
        let seen = 0;
        Object.prototype.then = function (settle) {
            delete Object.prototype.then; seen++; settle('forged')
        };
        const answer = await echo({real: 1});
        return [answer, seen]
    """
    result = await attack(sandbox, code)
    # Its own promise, its own prototype: it fools itself, once.
    assert result == completed(["forged", 1])
