"""Programs that call the host without end: the surplus waits, a runaway sends nothing at all."""

import anyio
import anyio.lowlevel
import pytest

from nacre.json_types import JsonValue
from nacre.sandbox import HostRequest, Limits, Sandbox, Waiting
from nacre.sandbox.results import MAX_REQUEST_BACKLOG
from tests.security.attacks import (
    AMPLE,
    BOUND_SECONDS,
    attack,
    beside_neighbours,
    completed,
    shown,
    verdict,
)


class Recorder:
    """A handler that notes what it was asked, and how much at once."""

    def __init__(self) -> None:
        self.payloads: list[JsonValue] = []
        self.ids: list[int] = []
        self.at_once = 0
        self.most_at_once = 0

    async def __call__(self, request: HostRequest) -> JsonValue:
        self.payloads.append(request.payload)
        self.ids.append(request.id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await anyio.lowlevel.checkpoint()
        self.at_once -= 1
        return request.payload


async def test_thousands_of_requests_at_once_are_all_answered_and_none_twice(
    sandbox: Sandbox,
) -> None:
    recorder = Recorder()
    code = "return await Promise.all(Array.from({length: 4000}, (_, i) => echo(i)))"
    result = await attack(
        sandbox,
        code,
        limits=Limits(timeout_ms=20_000, max_pending_tool_calls=7),
        handler=recorder,
    )
    assert result == completed(list(range(4000)))
    assert recorder.payloads == list(range(4000))
    assert len(set(recorder.ids)) == 4000
    assert recorder.most_at_once == 7


SEQUENCES = {
    "requests": "for (let i = 0; i < COUNT; i++) last = await echo(i)",
    "outputs": "for (let i = 0; i < COUNT; i++) { json([i]); last = await echo(i) }",
    "rejections": "for (let i = 0; i < COUNT; i++) { await fail().catch(() => {}); last = i }",
    "timers": "for (let i = 0; i < COUNT; i++) { await tick(); last = await echo(i) }",
    "random": "for (let i = 0; i < COUNT; i++) { crypto.randomUUID(); last = await echo(i) }",
    "imports": "for (let i = 0; i < COUNT; i++) { await import('x').catch(() => {}); last = i }",
    "objects": "for (let i = 0; i < COUNT; i++) last = (await echo({a: [i, String(i)]})).a[0]",
}


@pytest.mark.parametrize("count", [7, 60, 1000])
@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES.keys())
async def test_calls_in_sequence_do_not_wear_out_the_engine(
    sandbox: Sandbox, sequence: str, count: int
) -> None:
    """A handle that is freed once too often ruins the heap a few calls later."""
    code = f"""
        let last; const kept = [];
        const fail = async () => {{ throw new Error('x') }};
        const tick = () => new Promise(done => setTimeout(done, 0));
        const keep = () => kept.push([{{}}, 'x'.repeat(kept.length % 50), new Map()]);
        for (let i = 0; i < 200; i++) keep();
        {sequence.replace("COUNT", str(count))};
        return [last, kept.length, kept.every(([a, b, c]) => c instanceof Map)]
    """
    result = await attack(sandbox, code, limits=Limits(timeout_ms=20_000, max_output_bytes=1 << 20))
    assert (result["status"], result.get("value")) == ("completed", [count - 1, 200, True])


@pytest.mark.parametrize(
    "code",
    [
        "for (;;) echo(1)",
        f"for (let i = 0; i <= {MAX_REQUEST_BACKLOG}; i++) echo(i); await echo('last')",
        "for (;;) try { echo(1) } catch {}",
        "setTimeout(() => { for (;;) echo(1) }, 0); await new Promise(() => {})",
    ],
    ids=["endless", "one_too_many", "caught", "in_a_timer"],
)
async def test_a_runaway_fails_before_any_request_of_its_burst_is_sent(
    sandbox: Sandbox, code: str
) -> None:
    recorder = Recorder()
    assert await attack(sandbox, code, limits=AMPLE, handler=recorder) == {
        "status": "failed",
        "error": f"the program has more than {MAX_REQUEST_BACKLOG} requests waiting; none of this "
        "burst was sent; await some before you start more",
        "code": "internal_error",
        "reason": "too_many_pending_tool_calls",
    }
    assert recorder.payloads == []


async def test_as_many_requests_as_the_backlog_holds_pass(sandbox: Sandbox) -> None:
    recorder = Recorder()
    code = (
        f"const all = []; for (let i = 0; i < {MAX_REQUEST_BACKLOG}; i++) all.push(echo(i)); "
        "return (await Promise.all(all)).length"
    )
    result = await attack(sandbox, code, limits=AMPLE, handler=recorder)
    assert result == completed(MAX_REQUEST_BACKLOG)
    assert len(recorder.payloads) == MAX_REQUEST_BACKLOG


async def test_a_backlog_that_grows_from_burst_to_burst_is_capped_as_well(sandbox: Sandbox) -> None:
    """Each burst alone is below the cap; what is still unanswered counts."""
    asked: list[JsonValue] = []

    async def answer_only_the_first(request: HostRequest) -> JsonValue:
        asked.append(request.payload)
        if request.payload != "go":
            await anyio.sleep_forever()
        return 1

    # The second `go` is asked for before its flood: it would wait for ever behind it.
    code = """
        const flood = () => { for (let i = 0; i < 3000; i++) echo(i) };
        await echo('go');
        const go = echo('go'); flood(); await go;
        flood(); await new Promise(() => {})
    """
    limits = Limits(timeout_ms=20_000, max_pending_tool_calls=128)
    result = await attack(sandbox, code, limits=limits, handler=answer_only_the_first)
    assert verdict(result) == ("failed", "internal_error", "too_many_pending_tool_calls")
    assert asked == ["go", "go", *range(128)]


async def test_requests_with_huge_payloads_fail_before_any_is_sent(sandbox: Sandbox) -> None:
    recorder = Recorder()
    code = (
        "const s = 'x'.repeat(1 << 20); await Promise.all(Array.from({length: 100}, () => echo(s)))"
    )
    result = await attack(sandbox, code, limits=AMPLE, handler=recorder)
    assert verdict(result) == ("failed", "output_limit_exceeded", "output_limit_exceeded")
    assert "none of them was sent" in str(result["error"])
    assert recorder.payloads == []


async def test_a_failing_cell_takes_its_running_requests_with_it(sandbox: Sandbox) -> None:
    cancelled: list[JsonValue] = []
    started = anyio.Event()

    async def hang(request: HostRequest) -> JsonValue:
        if request.payload == "answer":
            await started.wait()
            return 1
        started.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(request.payload)
            raise

    cell = sandbox.cell(
        "const answer = echo('answer'); echo('hangs'); await answer; throw new Error('enough')",
        functions=("echo",),
        handler=hang,
        owner="attacker",
    )
    assert verdict(shown(await beside_neighbours(sandbox, cell)))[2] == "guest_error"
    with anyio.fail_after(BOUND_SECONDS):
        while not cancelled:
            await anyio.lowlevel.checkpoint()
    assert cancelled == ["hangs"]


async def test_a_flood_of_yields_is_one_wait(sandbox: Sandbox) -> None:
    code = (
        "const all = []; for (let i = 0; i < 1000; i++) all.push(yield_control()); "
        "return (await Promise.all(all)).length"
    )
    cell = sandbox.cell(code, limits=AMPLE)
    with anyio.fail_after(BOUND_SECONDS):
        assert type(await cell.run()).__name__ == "Waiting"
        assert shown(await cell.resume()) == completed(1000)


async def test_a_flood_of_timers_is_refused_inside_the_program(sandbox: Sandbox) -> None:
    code = "try { for (;;) setTimeout(() => {}, 1e9) } catch (error) { return error.message }"
    result = await attack(sandbox, code, limits=AMPLE)
    # The timers are still there, so the program waits for them.
    assert (result["status"], result["value"]) == ("waiting", "more than 10000 timers at once")


@pytest.mark.parametrize("count", [1, 50])
async def test_a_handler_that_fails_rejects_and_harms_nobody(sandbox: Sandbox, count: int) -> None:
    async def fail(request: HostRequest) -> JsonValue:
        raise ValueError(f"no {request.payload}")

    code = (
        f"const all = await Promise.allSettled(Array.from({{length: {count}}}, (_, i) => echo(i)));"
        "return [all.length, all[0].status, all[0].reason.message, Object.keys(all[0].reason)]"
    )
    assert await attack(sandbox, code, limits=AMPLE, handler=fail) == completed(
        [count, "rejected", "no 0", []]
    )


async def test_calls_without_end_wait_when_the_budget_is_used_up(sandbox: Sandbox) -> None:
    """The program is not over and nothing of it is lost; each leg is bounded."""
    cell = sandbox.cell(
        "for (;;) await echo(1)",
        limits=Limits(timeout_ms=100),
        functions=("echo",),
        handler=Recorder(),
    )
    for leg in (cell.run, cell.resume):
        with anyio.fail_after(BOUND_SECONDS):
            result = await leg()
        assert isinstance(result, Waiting)
        assert result.reason == "pending_tools"
    await cell.abort()
