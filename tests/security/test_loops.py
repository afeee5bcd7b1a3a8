"""Programs that never end: each is stopped at its time budget, whatever it is busy with."""

import anyio
import pytest

from nacre.sandbox import CellState, Limits, Sandbox
from tests.contract.requirements import requirement
from tests.security.attacks import (
    BOUND_SECONDS,
    SHORT,
    TIMED_OUT,
    attack,
    completed,
    echo,
    expect_neighbour_to_work,
    verdict,
)

ENDLESS = {
    "loop": "for (;;);",
    "loop_with_catch": "for (;;) { try { for (;;); } catch {} finally { for (;;); } }",
    "microtask_chain": "(function next() { Promise.resolve().then(next) })(); return 1",
    "await_chain": "for (;;) await null",
    "generator": "function* all() { for (let n = 0; ; n++) yield n } for (const n of all());",
    "async_generator": "async function* all() { for (;;) yield 1 } for await (const n of all());",
    "own_iterator": "for (const n of {[Symbol.iterator]: () => ({next: () => ({})})});",
    "iterator_that_never_closes": (
        "const [one] = {[Symbol.iterator]: () => ({next: () => ({}), return() { for (;;); }})}"
    ),
    "thenable_of_itself": "const own = {then(settle) { settle(own) }}; return own",
    "timer_that_arms_itself": (
        "(function again() { setTimeout(again, 0) })(); await new Promise(() => {})"
    ),
    "loop_in_a_timer": "setTimeout(() => { for (;;); }, 0); await new Promise(() => {})",
    "loop_after_an_answer": "await echo(1); for (;;);",
    "loop_in_a_getter": "return {get value() { for (;;); }}.value",
    "loop_in_a_finaliser": (
        "new FinalizationRegistry(() => { for (;;); }).register({}, 1); await null; for (;;);"
    ),
}

BACKTRACKING = {
    "nested_quantifiers": "/^(a+)+$/.test('a'.repeat(40) + 'b')",
    "two_quantifiers": "/(x+x+)+y/.exec('x'.repeat(60))",
    "caught": "(() => { try { /^(a+)+$/.test('a'.repeat(40) + 'b') } catch { for (;;); } })()",
    "unicode": r"/(\p{L}+)+$/u.test('é'.repeat(50) + '!')",
    "lookahead": "/(?=(a+)+b)/.test('a'.repeat(50))",
    "back_reference": r"/(a*)\1*\1*\1*\1*b/.test('a'.repeat(3000))",
    "split": "('a'.repeat(40) + 'b').split(/(a+)+$/)",
    "replace": "('a'.repeat(40) + 'b').replace(/(a+)+$/, '')",
}

# Builtins that run for ages without asking the engine whether they may.
BUILTINS = {
    "index_of_on_a_sparse_array": "new Array(2 ** 32 - 1).indexOf(5)",
    "includes_on_an_array_like": "Array.prototype.includes.call({length: 2 ** 53 - 1}, 5)",
    "reverse_of_an_array_like": "Array.prototype.reverse.call({length: 2 ** 53 - 1})",
    "join_of_a_sparse_array": "new Array(2 ** 28).join('xx')",
    "copy_within": "Array.prototype.copyWithin.call({length: 2 ** 53 - 1}, 0, 1, 2 ** 53 - 2)",
    "concat": "(a => a.concat(a))(new Array(2 ** 31))",
    "sort_with_a_loop": "[3, 2, 1].sort(() => { for (;;); })",
    "sort_of_texts": (
        "(a => { for (;;) a.sort().reverse() })"
        "(Array.from({length: 50000}, (_, i) => String(i * 7919 % 50021)))"
    ),
    "typed_array_sort": "(a => { for (;;) a.map((_, i) => -i).sort() })(new Float64Array(200000))",
    "bigint_power": "(() => { for (;;) 7n ** 300000n })()",
    "bigint_to_text": "(1n << 1000000n).toString()",
    "replace_all": "'a'.repeat(2 ** 24).replaceAll('a', '')",
    "text_search": "'a'.repeat(2 ** 23).indexOf('a'.repeat(2 ** 22) + 'b')",
    "upper_case": "(s => { for (;;) s.toUpperCase() })('ß'.repeat(2 ** 20))",
    "stringify": "(a => { for (;;) JSON.stringify(a) })(new Array(200000).fill({a: 1}))",
    "stringify_of_a_nested_array": (
        "JSON.stringify((() => { let a = []; for (let i = 0; i < 40000; i++) a = [a]; "
        "return a })())"
    ),
    "date_to_locale_string": "(() => { for (;;) new Date().toLocaleString() })()",
    "set_union_with_an_endless_set": (
        "new Set([1]).union({size: 1, has: () => true, keys: () => ({next: () => ({value: 1})})})"
    ),
    "base64": "(s => { for (;;) btoa(s) })('x'.repeat(2 ** 20))",
    "url_with_many_labels": "new URL('http://' + 'é.'.repeat(20000) + 'b/')",
}


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS.keys())
@requirement("validation:endless-loops-end", "security:outside-the-event-loop")
async def test_a_program_that_never_ends_is_stopped_at_its_time_budget(
    sandbox: Sandbox, code: str
) -> None:
    assert await attack(sandbox, code, limits=SHORT) == TIMED_OUT


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS.keys())
@requirement("security:outside-the-event-loop")
async def test_others_are_served_while_a_program_that_never_ends_still_runs(
    sandbox: Sandbox, code: str
) -> None:
    """By the order of events alone: the neighbour is done, and the other one is not."""
    started = anyio.Event()
    cell = sandbox.cell(
        f"text('in'); {code}",
        limits=Limits(timeout_ms=60_000),
        functions=("echo",),
        handler=echo,
        on_output=lambda _: started.set(),
        owner="attacker",
    )
    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cell.run)
            await started.wait()
            await expect_neighbour_to_work(sandbox)
            assert cell.state is CellState.RUNNING
            await cell.abort()


@pytest.mark.parametrize("expression", BACKTRACKING.values(), ids=BACKTRACKING.keys())
async def test_a_backtracking_regular_expression_is_stopped_at_its_time_budget(
    sandbox: Sandbox, expression: str
) -> None:
    assert await attack(sandbox, f"return {expression}", limits=SHORT) == TIMED_OUT


@pytest.mark.parametrize("expression", BUILTINS.values(), ids=BUILTINS.keys())
@requirement("security:interrupts-and-wall-clock")
async def test_a_builtin_that_never_asks_is_stopped_at_the_time_budget(
    sandbox: Sandbox, expression: str
) -> None:
    assert await attack(sandbox, f"return {expression}", limits=SHORT) == TIMED_OUT


async def test_output_before_an_endless_loop_is_kept(sandbox: Sandbox) -> None:
    code = "text('first'); json([2]); for (;;);"
    assert await attack(sandbox, code, limits=SHORT) == {
        **TIMED_OUT,
        "output": [{"type": "text", "text": "first"}, {"type": "json", "value": [2]}],
    }


async def test_an_endless_spread_ends_at_the_memory_or_the_time_limit(sandbox: Sandbox) -> None:
    result = await attack(
        sandbox,
        "function* all() { for (;;) yield 1 } return [...all()]",
        limits=Limits(timeout_ms=5000, memory_limit_bytes=4 << 20),
    )
    assert verdict(result) == ("failed", "internal_error", "memory_limit_exceeded")


async def test_an_endless_interval_only_waits_and_can_be_aborted(sandbox: Sandbox) -> None:
    cell = sandbox.cell("setInterval(() => {}, 1); await new Promise(() => {})", limits=SHORT)
    waiting = await cell.run()
    assert (type(waiting).__name__, cell.state.value) == ("Waiting", "waiting")
    await cell.abort()
    assert (cell.state.value, cell.snapshot) == ("aborted", None)


@pytest.mark.parametrize("name", ["Atomics", "WebAssembly", "Worker", "importScripts"])
async def test_a_program_has_nothing_to_block_or_to_start_threads_with(
    sandbox: Sandbox, name: str
) -> None:
    assert await attack(sandbox, f"return typeof {name}") == completed("undefined")
