"""Values that fight back while they become JSON: on return, in output, requests and errors."""

import pytest

from nacre.json_types import JsonValue
from nacre.sandbox import HostRequest, Limits, Sandbox
from tests.security.attacks import AMPLE, SHORT, TIMED_OUT, attack, completed, verdict

# Each is an expression that never gives its JSON away.
LOOPING = {
    "to_json": "{toJSON() { for (;;); }}",
    "getter": "{get a() { for (;;); }}",
    "proxy_keys": "new Proxy({}, {ownKeys() { for (;;); }})",
    "proxy_get": "new Proxy({}, {get() { for (;;); }})",
    "proxy_prototype": "new Proxy({}, {getPrototypeOf() { for (;;); }})",
    "proxy_own_prototype": "(p => p = new Proxy({}, {getPrototypeOf: () => p}))()",
    "proxy_length": "new Proxy([], {get: (_, key) => key === 'length' ? 1e308 : undefined})",
    "proxy_length_object": (
        "new Proxy([], {get: (_, key) => key === 'length' ? {valueOf() { for (;;); }} : undefined})"
    ),
    "to_string_tag": "{get [Symbol.toStringTag]() { for (;;); }}",
    "wide_graph": (
        "(function grow(n) { return n ? (g => [g, g])(grow(n - 1)) : {toJSON: () => 1} })(40)"
    ),
}

THROWING = {
    "to_json": "{toJSON() { throw new TypeError('trap') }}",
    "getter": "{get a() { throw new TypeError('trap') }}",
    "nested_getter": "[[{a: {get a() { throw new TypeError('trap') }}}]]",
    "proxy_keys": "new Proxy({}, {ownKeys() { throw new TypeError('trap') }})",
    "proxy_get": "new Proxy({}, {get() { throw new TypeError('trap') }})",
    "proxy_prototype": "new Proxy({}, {getPrototypeOf() { throw new TypeError('trap') }})",
    "to_string_tag": "{get [Symbol.toStringTag]() { throw new TypeError('trap') }}",
    "map_key": "new Map([[{toJSON() { throw new TypeError('trap') }}, 1]])",
}

ENDLESS = {
    "to_json_of_its_own_kind": "(function make() { return {toJSON: make} })()",
    "getter_of_its_own_kind": "(function make() { return {get a() { return make() }} })()",
    "proxy_of_its_own_kind": (
        "(function make() { return new Proxy({}, {ownKeys: () => ['a'], "
        "getOwnPropertyDescriptor: () => ({enumerable: true, configurable: true}), "
        "get: (_, key) => key === 'a' ? make() : undefined}) })()"
    ),
}

SINKS = {
    "returned": "const trap = () => (VALUE);\nreturn trap()",
    "text": "text(VALUE)",
    "json": "json(VALUE)",
    "request": "await echo(VALUE)",
}


@pytest.mark.parametrize("value", LOOPING.values(), ids=LOOPING.keys())
@pytest.mark.parametrize("sink", SINKS.values(), ids=SINKS.keys())
async def test_a_value_that_never_serialises_is_stopped_at_the_time_budget(
    sandbox: Sandbox, sink: str, value: str
) -> None:
    asked: list[JsonValue] = []

    async def record(request: HostRequest) -> JsonValue:
        asked.append(request.payload)
        return None

    code = sink.replace("VALUE", value)
    assert await attack(sandbox, code, limits=SHORT, handler=record) == TIMED_OUT
    assert asked == []


@pytest.mark.parametrize("value", THROWING.values(), ids=THROWING.keys())
@pytest.mark.parametrize("sink", SINKS.values(), ids=SINKS.keys())
async def test_a_value_that_throws_while_it_is_serialised_fails_the_cell_with_its_error(
    sandbox: Sandbox, sink: str, value: str
) -> None:
    result = await attack(sandbox, sink.replace("VALUE", value))
    assert verdict(result) == ("failed", "internal_error", "guest_error")
    assert str(result["error"]).startswith("TypeError: trap\n    at ")
    assert "output" not in result


@pytest.mark.parametrize("value", THROWING.values(), ids=THROWING.keys())
@pytest.mark.parametrize("call", ["text", "json", "await echo"])
async def test_a_program_can_catch_what_its_own_value_throws(
    sandbox: Sandbox, call: str, value: str
) -> None:
    code = f"try {{ {call}({value}) }} catch (error) {{ return error.message }}"
    assert await attack(sandbox, code) == completed("trap")


@pytest.mark.parametrize("value", THROWING.values(), ids=THROWING.keys())
async def test_the_console_never_throws(sandbox: Sandbox, value: str) -> None:
    assert await attack(sandbox, f"console.log('a', {value}, 'b'); return 1") == {
        **completed(1),
        "output": [{"type": "text", "text": "a a value that cannot be shown b"}],
    }


@pytest.mark.parametrize("value", ENDLESS.values(), ids=ENDLESS.keys())
@pytest.mark.parametrize("sink", SINKS.values(), ids=SINKS.keys())
async def test_a_value_without_a_bottom_is_refused_by_its_depth(
    sandbox: Sandbox, sink: str, value: str
) -> None:
    result = await attack(sandbox, sink.replace("VALUE", value), limits=Limits(timeout_ms=5000))
    assert verdict(result) == ("failed", "internal_error", "guest_error")
    assert str(result["error"]).startswith("RangeError: value is nested deeper than 240 levels")


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (
            "const m = new Map(); m.set(1, {toJSON() { m.set({}, this); return 1 }}); return m",
            [[1, 1]],
        ),
        (
            "const s = new Set(); s.add({toJSON() { s.add({}); s.add([]); return 1 }}); return s",
            [1],
        ),
        ("const a = [{toJSON() { a.push(this); return 1 }}]; return a", [1]),
    ],
    ids=["map", "set", "array"],
)
async def test_a_collection_that_grows_while_it_is_read_gives_what_it_held(
    sandbox: Sandbox, code: str, value: JsonValue
) -> None:
    assert await attack(sandbox, code) == completed(value)


async def test_a_graph_that_leads_back_to_itself_is_marked_in_place(sandbox: Sandbox) -> None:
    code = "const o = {toJSON: () => [o, o], a: 1}; const c = []; c.push(c, o); return c"
    assert await attack(sandbox, code) == completed(["[Circular]", ["[Circular]", "[Circular]"]])


REVOKED = "(({proxy, revoke}) => (revoke(), proxy))(Proxy.revocable(TARGET, {}))"


@pytest.mark.parametrize("target", ["{}", "[]", "() => {}", "new Error('x')", "new Date()"])
async def test_a_revoked_proxy_is_an_ordinary_error(sandbox: Sandbox, target: str) -> None:
    result = await attack(sandbox, f"return [{REVOKED.replace('TARGET', target)}]")
    if target == "() => {}":
        # Its name cannot be asked for; that it is a function is known without asking.
        assert result == completed(["[Function]"])
    else:
        assert verdict(result) == ("failed", "internal_error", "guest_error")
        assert "revoked proxy" in str(result["error"])


THROWN = {
    "null": ("null", "thrown: null"),
    "undefined": ("undefined", "thrown: undefined"),
    "symbol": ("Symbol('s')", "thrown: Symbol(s)"),
    "trapping_proxy": (
        "new Proxy({}, {get() { throw 1 }, getPrototypeOf() { throw 2 }})",
        "thrown: a value that cannot be shown",
    ),
    "proxy_of_an_error": (
        "new Proxy(new Error('x'), {get() { throw 1 }, getPrototypeOf() { throw 2 }})",
        "thrown: a value that cannot be shown",
    ),
    "revoked_proxy": (REVOKED.replace("TARGET", "{}"), "thrown: a value that cannot be shown"),
    "throwing_message": (
        "Object.defineProperty(new Error('x'), 'message', {get() { throw 1 }})",
        "Error",
    ),
    "half_a_surrogate_pair": ("'\\ud800'", "thrown: \ufffd"),
}


@pytest.mark.parametrize(("thrown", "error"), THROWN.values(), ids=THROWN.keys())
@pytest.mark.parametrize("how", ["throw", "Promise.reject"])
async def test_anything_can_be_thrown(sandbox: Sandbox, how: str, thrown: str, error: str) -> None:
    result = await attack(sandbox, f"{how}({thrown})")
    reason = "guest_error" if how == "throw" else "unhandled_rejection"
    assert verdict(result) == ("failed", "internal_error", reason)
    assert str(result["error"]).partition("\n")[0] == error


@pytest.mark.parametrize("how", ["throw", "Promise.reject"])
@pytest.mark.parametrize(
    "thrown",
    [
        "new Proxy({}, {get() { for (;;); }, getPrototypeOf() { for (;;); }})",
        "Object.defineProperty(new Error('x'), 'message', {get() { for (;;); }})",
        "Object.defineProperty(new Error('x'), 'stack', {get() { for (;;); }})",
    ],
    ids=["proxy", "message", "stack"],
)
async def test_an_error_that_never_tells_its_text_is_stopped_at_the_time_budget(
    sandbox: Sandbox, how: str, thrown: str
) -> None:
    assert await attack(sandbox, f"{how}({thrown})", limits=SHORT) == TIMED_OUT


async def test_an_error_whose_text_exhausts_the_memory_ends_at_the_memory_limit(
    sandbox: Sandbox,
) -> None:
    code = """
        const all = [];
        Promise.reject(Object.defineProperty(new Error('x'), 'message', {
            get() { for (;;) all.push(new Uint8Array(1 << 12)) }
        }));
        return 1
    """
    result = await attack(sandbox, code, limits=Limits(memory_limit_bytes=4 << 20))
    # The throwing getter only costs the message: what matters is that the cell fails for it.
    assert result["status"] == "failed"
    assert result["reason"] in ("unhandled_rejection", "memory_limit_exceeded")


FORGED_STACKS = {
    "endless_number": "'    at f (cell.js:' + '9'.repeat(5000) + ':1)'",
    "endless_column": "'    at f (cell.js:1:' + '9'.repeat(5000) + ')'",
    "zero": "'    at f (cell.js:0:0)'",
    "other_files": "'    at f (/etc/passwd:1:1)\\n    at g (native)'",
    "backtracking": "'    at ' + ' ('.repeat(4000)",
    "other_digits": "'    at f (cell.js:\u0661:\u0662)'",
}


@pytest.mark.parametrize("stack", FORGED_STACKS.values(), ids=FORGED_STACKS.keys())
@pytest.mark.parametrize("how", ["throw", "Promise.reject"])
async def test_a_forged_stack_is_only_text(sandbox: Sandbox, how: str, stack: str) -> None:
    code = f"const error = new Error('forged'); error.stack = {stack}; {how}(error)"
    result = await attack(sandbox, code)
    reason = "guest_error" if how == "throw" else "unhandled_rejection"
    assert verdict(result) == ("failed", "internal_error", reason)
    assert str(result["error"]).startswith("Error: forged")
    assert "passwd" not in str(result["error"])
    assert result.get("line", 1) != 0


async def test_a_request_made_while_another_is_serialised_keeps_its_own_answer(
    sandbox: Sandbox,
) -> None:
    code = """
        let inner;
        const outer = echo({toJSON() { inner = echo('inner'); return 'outer' }});
        return [await outer, await inner]
    """
    assert await attack(sandbox, code) == completed(["outer", "inner"])


THENABLES = {
    "looping": ("{then() { for (;;); }}", ("failed", "timeout", "timeout")),
    "silent": ("{then() {}}", ("failed", "internal_error", "never_settles")),
    "throwing": ("{then() { throw new Error('x') }}", ("failed", "internal_error", "guest_error")),
    "settled_twice": ("{then(a, b) { a(1); a(2); b(3) }}", ("completed", None, None)),
}


@pytest.mark.parametrize(("value", "expected"), THENABLES.values(), ids=THENABLES.keys())
async def test_a_hostile_thenable_as_the_value_ends_cleanly(
    sandbox: Sandbox, value: str, expected: tuple[JsonValue, JsonValue, JsonValue]
) -> None:
    limits = SHORT if value == THENABLES["looping"][0] else AMPLE
    assert verdict(await attack(sandbox, f"return {value}", limits=limits)) == expected


async def test_text_that_is_not_unicode_reaches_the_host_as_unicode(sandbox: Sandbox) -> None:
    code = r"""
        text('a\ud800b'); json('\udc00');
        return [await echo('\udc00\ud800'), {'\ud800': 'nul \0'}]
    """
    assert await attack(sandbox, code) == {
        **completed(["\ufffd\ufffd", {"\ufffd": "nul \0"}]),
        "output": [{"type": "text", "text": "a\ufffdb"}, {"type": "json", "value": "\ufffd"}],
    }
