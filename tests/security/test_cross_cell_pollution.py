"""What one cell does to its globals, prototypes and random numbers is not there in the next."""

import anyio
import anyio.lowlevel
import pytest

from nacre.sandbox import Completed, Limits, Sandbox, SandboxOptions
from tests.security.attacks import AMPLE, BOUND_SECONDS, assert_completed, attack, completed

POLLUTION = {
    "global": ("globalThis.marker = 1", "typeof marker", "undefined"),
    "var_by_eval": ("(0, eval)('var marker = 1')", "typeof marker", "undefined"),
    "object_prototype": ("Object.prototype.polluted = 1", "String({}.polluted)", "undefined"),
    "array_prototype": ("Array.prototype.map = () => 'polluted'", "[1].map(x => x + 1)", [2]),
    "promise": ("Promise.resolve = () => 'polluted'", "await Promise.resolve(3)", 3),
    "json": ("JSON.stringify = () => 'polluted'", "JSON.stringify([4])", "[4]"),
    "output_function": ("globalThis.text = () => {}", "String(typeof text)", "function"),
    "console": ("console.log = 'polluted'", "typeof console.log", "function"),
    "registered_symbol": (
        "Object.prototype[Symbol.for('x')] = 1",
        "String({}[Symbol.for('x')])",
        "undefined",
    ),
    "frozen": ("Object.freeze(Object.prototype)", "Object.isFrozen(Object.prototype)", False),
    "timer": ("setInterval(() => { globalThis.marker = 1 }, 0)", "typeof marker", "undefined"),
    "regexp_statics": ("/(secret)/.exec('secret')", "String(RegExp.$1 ?? '')", ""),
    "host_function": ("globalThis.echo = () => 'polluted'", "await echo(5)", 5),
}


@pytest.mark.parametrize(("pollute", "look", "expected"), POLLUTION.values(), ids=POLLUTION.keys())
async def test_pollution_is_not_seen_by_the_next_cell(
    one_worker: SandboxOptions, pollute: str, look: str, expected: object
) -> None:
    async with Sandbox(one_worker) as sandbox:
        # A program with an interval runs until its time is up.
        limits = Limits(timeout_ms=300) if "setInterval" in pollute else AMPLE
        await attack(sandbox, f"{pollute}; return 1", limits=limits)
        pid = (await sandbox.check()).workers
        assert await attack(sandbox, f"return {look}") == {"status": "completed", "value": expected}
        # In the same process, or this would prove nothing.
        assert set(pid) <= set((await sandbox.check()).workers)


async def test_pollution_of_a_suspended_cell_stays_with_it(one_worker: SandboxOptions) -> None:
    async with Sandbox(one_worker) as sandbox:
        cell = sandbox.cell("Object.prototype.mine = 1; await yield_control(); return {}.mine")
        assert type(await cell.run()).__name__ == "Waiting"
        assert await attack(sandbox, "return String({}.mine)") == completed("undefined")
        assert assert_completed(await cell.resume()).value == 1


async def test_memory_of_the_last_cell_is_not_in_the_next(one_worker: SandboxOptions) -> None:
    """Fresh buffers are zero: nothing of another session shines through."""
    async with Sandbox(one_worker) as sandbox:
        await attack(sandbox, "globalThis.kept = new Uint8Array(8 << 20).fill(0xab); return 1")
        code = "return new Uint8Array(8 << 20).indexOf(0xab)"
        assert await attack(sandbox, code) == completed(-1)


async def test_random_numbers_differ_between_cells(sandbox: Sandbox) -> None:
    code = (
        "return [Math.random(), Math.random(), crypto.randomUUID(), "
        "...crypto.getRandomValues(new Uint32Array(2))]"
    )
    results: list[object] = []

    async def run() -> None:
        results.append(tuple(str(assert_completed(await sandbox.cell(code).run()).value)))

    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(run)
    assert len(set(results)) == 20


async def test_a_resumed_cell_goes_on_with_its_own_random_numbers(sandbox: Sandbox) -> None:
    code = "const a = Math.random(); await yield_control(); return [a, Math.random()]"
    cells = [sandbox.cell(code) for _ in range(4)]
    values: set[str] = set()
    for cell in cells:
        await cell.run()
    for cell in cells:
        result = await cell.resume()
        assert isinstance(result, Completed)
        values |= {
            str(number) for number in (result.value if isinstance(result.value, list) else [])
        }
    assert len(values) == 8


async def test_a_cell_cannot_settle_the_request_of_another(sandbox: Sandbox) -> None:
    """Both ask under the same id; each gets its own answer."""
    results: dict[str, object] = {}

    async def run(owner: str) -> None:
        async def answer(request: object) -> str:
            await anyio.lowlevel.checkpoint()
            return f"for {owner}"

        cell = sandbox.cell("return await ask(1)", functions=("ask",), handler=answer, owner=owner)
        results[owner] = assert_completed(await cell.run()).value

    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            for owner in ("a", "b", "c"):
                tasks.start_soon(run, owner)
    assert results == {"a": "for a", "b": "for b", "c": "for c"}
