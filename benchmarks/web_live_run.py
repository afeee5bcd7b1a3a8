"""A run of 10,000 events at full speed under an open page: its tasks, CPU time and memory."""

from collections.abc import Sequence
from typing import Any, Final

from benchmarks.gateway_model import Spoken
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.web_browser import (
    Tasks,
    WebApp,
    Window,
    find_chromium,
    open_web_app,
    share_of,
    to_figure,
    unavailable,
)
from nacre.testing.script import Call, Say

_PROGRAMS: Final = 5
_CALLS: Final = 720
"""Nested calls of each program. A call has two events; some are followed by an event of output."""
_PROGRAM: Final = """
let sum = 0;
for (let i = 0; i < %d; i += 16) {
  const batch = Array.from({ length: 16 }, (_, j) => tools.add({ a: i, b: j }));
  for (const value of await Promise.all(batch)) sum += value;
  for (let j = 0; j < 5; j += 1) console.log(`${i + j}: ${sum}`);
}
return sum;
"""
_PARAGRAPH: Final = (
    "The model says **something** about `tools.add`, and goes on for a while, so that there is "
    "much to draw.\n\n- one item\n- another, with [a link](https://example.com/)\n\n"
    "```python\ndef add(a: int, b: int) -> int:\n    return a + b\n```\n\n"
)
_PARAGRAPHS: Final = 8
_POLLING_MS: Final = 200
_HAS_PROGRAMS: Final = "(count) => document.querySelectorAll('section.cell').length === count"
_NAMES: Final = (
    "web_live_task",
    "web_live_task_cpu",
    "web_live_cpu",
    "web_live_share",
    "web_live_growth",
    "web_live_growth_late",
    "web_live_replay_task",
    "web_live_replay_task_cpu",
)


def _script(request: dict[str, Any]) -> Sequence[Spoken]:
    """A text and a program, again and again; then the end, or a call that does not end."""
    messages = request["messages"]
    asked = max(i for i, message in enumerate(messages) if message["role"] == "user")
    done = sum(message["role"] == "tool" for message in messages[asked:])
    kind, _, calls = str(messages[asked]["content"]).partition(" ")
    if kind == "begin" or (kind == "run" and done == _PROGRAMS):
        return [Say("Finished.")]
    if done == _PROGRAMS:
        return [Call("exec", {"code": "return await tools.hold()"})]
    return [Say(_PARAGRAPH * _PARAGRAPHS), Call("exec", {"code": _PROGRAM % int(calls)})]


async def measure(effort: Effort) -> list[Figure]:
    program = find_chromium()
    if program is None:
        return unavailable(_NAMES)
    async with open_web_app(program, _script) as app:
        calls = effort.times(_CALLS, quick=160)
        rounds = effort.times(5, quick=1)
        heaps = [await _watch_heap(app, calls, effort) for _ in range(rounds)]
        tasks = [await _trace_run(app, calls) for _ in range(rounds)]
        replays = [await _trace_replay(app, calls) for _ in range(rounds)]
    return [
        to_figure("web_live_task", [max(each.wall) for each in tasks]),
        to_figure("web_live_task_cpu", [max(each.cpu) for each in tasks]),
        to_figure("web_live_cpu", [sum(each.cpu) for each in tasks]),
        to_figure(
            "web_live_share",
            share_of([sum(each.cpu) for each in tasks], [sum(each.wall) for each in tasks]),
        ),
        to_figure("web_live_growth", [end - start for start, _, end in heaps]),
        to_figure("web_live_growth_late", [end - middle for _, middle, end in heaps]),
        to_figure("web_live_replay_task", [max(each.wall) for each in replays]),
        to_figure("web_live_replay_task_cpu", [max(each.cpu) for each in replays]),
    ]


async def _trace_run(app: WebApp, calls: int) -> Tasks:
    """The tasks of a page during a run."""
    async with app.window() as window:
        session_id = await _open_session(app, window)
        async with app.trace(window) as tasks:
            await _start(app, session_id, f"run {calls}")
            await _wait_for_turns(window, 2)
        return tasks


async def _watch_heap(app: WebApp, calls: int, effort: Effort) -> tuple[float, float, float]:
    """The heap before a run, in its middle, and after it."""
    async with app.window() as window:
        session_id = await _open_session(app, window)
        before = await window.heap_mb()
        run_id = await _start(app, session_id, f"run {calls}")
        await window.page.wait_for_function(
            _HAS_PROGRAMS, arg=_PROGRAMS // 2 + 1, polling=_POLLING_MS
        )
        middle = await window.heap_mb()
        await _wait_for_turns(window, 2)
        after = await window.heap_mb()
    count = await _read_events(app, run_id)
    effort.say(f"  {count} events: {before:.1f}, {middle:.1f}, {after:.1f} MB")
    return before, middle, after


async def _trace_replay(app: WebApp, calls: int) -> Tasks:
    """The tasks of a page that is opened when a run has all its events."""
    session_id = await _begin(app)
    run_id = await _start(app, session_id, f"hold {calls}")
    await _read_events(app, run_id, until_tool="hold")
    async with app.window() as window, app.trace(window) as tasks:
        await window.open(f"/sessions/{session_id}")
        await window.page.wait_for_function(_HAS_PROGRAMS, arg=_PROGRAMS + 1, polling=_POLLING_MS)
    async with app.client() as client:
        await client.post(f"/api/runs/{run_id}/abort", {})
    return tasks


async def _begin(app: WebApp) -> str:
    """A new session with one short turn; returns its id."""
    async with app.client() as client:
        started = await client.post("/api/runs", {"text": "begin"})
    await _read_events(app, started["runId"])
    return started["sessionId"]


async def _open_session(app: WebApp, window: Window) -> str:
    session_id = await _begin(app)
    await window.open(f"/sessions/{session_id}")
    await _wait_for_turns(window, 1)
    return session_id


async def _start(app: WebApp, session_id: str, text: str) -> str:
    """Start a run and return its id."""
    async with app.client() as client:
        started = await client.post("/api/runs", {"text": text, "sessionId": session_id})
    return started["runId"]


async def _read_events(app: WebApp, run_id: str, *, until_tool: str = "") -> int:
    """Read the events of a run to their end, or to the call of a tool; return their number."""
    count = 0
    async with app.client() as client:
        async for event in client.events(run_id):
            count += 1
            if until_tool and event["data"].get("toolName") == until_tool:
                break
    return count


async def _wait_for_turns(window: Window, count: int) -> None:
    """Wait until the page shows so many turns, all of which have ended."""
    # Looks at little, and rarely: the queries of Playwright would be part of what is measured.
    await window.page.wait_for_function(
        """(count) => {
          const turns = document.querySelectorAll("article.turn");
          return turns.length === count && [...turns].every((turn) => turn.ariaBusy === "false");
        }""",
        arg=count,
        polling=_POLLING_MS,
    )
