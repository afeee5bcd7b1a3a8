"""A session of 2,000 messages in the web app: until it is shown, and the tasks while it scrolls."""

from collections.abc import Sequence
from typing import Any, Final

from benchmarks.gateway_model import Spoken
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.web_browser import (
    WebApp,
    Window,
    find_chromium,
    open_web_app,
    share_of,
    to_figure,
    unavailable,
)
from nacre.testing.script import Call, Say

_MESSAGES: Final = 2_000
# Programs per turn, by the number of the turn: on average a turn has four messages.
_PROGRAMS: Final = (0, 1, 1, 2)
_MESSAGES_PER_TURN: Final = 4
_PROGRAM: Final = """// Adds the parts of an order, then the totals of all orders.
interface Order { id: number; parts: number[] }
const orders: Order[] = [1, 2].map((id) => ({ id, parts: [id, 2 * id] }));
const totals = await Promise.all(
  orders.map(async (order) => {
    const [first, second] = order.parts;
    const total = await tools.add({ a: first, b: second });
    console.log(`order ${order.id}: ${total}`);
    return total;
  }),
);
const sum = await tools.add({ a: totals[0], b: totals[1] });
return { totals, sum, label: "the sum of all orders" };"""
_ANSWER: Final = """The orders of turn **{turn}** are complete. See [the list](https://example.com/).

| order | parts | total |
|---|---|---|
| 1 | 1, 2 | 3 |
| 2 | 2, 4 | 6 |

1. `tools.add` was called for each order.
2. The sum is *nine*.

```python
def total(orders: list[Order]) -> int:
    # The sum of all parts.
    return sum(part for order in orders for part in order.parts)
```

> Ask again if an order is missing."""
_NAMES: Final = (
    "web_transcript_load",
    "web_transcript_open",
    "web_transcript_cpu",
    "web_transcript_share",
    "web_transcript_scroll_task",
    "web_transcript_scroll_task_cpu",
    "web_transcript_scroll_long",
    "web_transcript_nodes",
)
# Returns when a turn is in the page, and was drawn.
_WAIT_FOR_TURN: Final = """
(text) => new Promise((resolve) => {
  const look = () => {
    const turns = document.querySelectorAll("article.turn");
    const last = turns[turns.length - 1];
    if (last === undefined || !last.textContent.includes(text)) return;
    observer.disconnect();
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => resolve(performance.now());
      channel.port2.postMessage(null);
    });
  };
  const observer = new MutationObserver(look);
  observer.observe(document, { childList: true, subtree: true, characterData: true });
  look();
})
"""
_OPEN_FROM_LIST: Final = f"""
async ([sessionId, text]) => {{
  const waitForTurn = {_WAIT_FOR_TURN.strip()};
  const started = performance.now();
  document.querySelector(`a[href$="/sessions/${{sessionId}}"]`).click();
  return (await waitForTurn(text)) - started;
}}
"""
_IS_AT_START: Final = """
() => document.querySelector(".chat-scroll").scrollTop === 0
  && document.querySelector("article.turn .prompt").textContent === "turn 1"
"""
_SCROLL_PIXELS: Final = 20_000
_SCROLL_PIXELS_PER_SECOND: Final = 20_000


def _script(request: dict[str, Any]) -> Sequence[Spoken]:
    """The program of the turn, as often as the turn needs it, then a text."""
    messages = request["messages"]
    asked = max(i for i, message in enumerate(messages) if message["role"] == "user")
    turn = int(messages[asked]["content"].split()[1])
    done = sum(message["role"] == "tool" for message in messages[asked:])
    if done < _PROGRAMS[turn % len(_PROGRAMS)]:
        return [Call("exec", {"code": _PROGRAM, "language": "typescript"})]
    return [Say(_ANSWER.format(turn=turn))]


async def measure(effort: Effort) -> list[Figure]:
    program = find_chromium()
    if program is None:
        return unavailable(_NAMES)
    async with open_web_app(program, _script) as app:
        turns = effort.times(_MESSAGES, quick=400) // _MESSAGES_PER_TURN
        effort.say(f"  a session of {turns} turns")
        session_id = await _talk(app, turns)
        expected = f"The orders of turn {turns}"
        loads: list[float] = []
        opens: list[float] = []
        cpu: list[float] = []
        for number in range(effort.times(11, quick=3) + 1):
            async with app.window() as window:
                load = await _load(window, session_id, expected)
                load_cpu = await window.cpu_ms()
            async with app.window() as window:
                opened = await _open(window, session_id, expected)
            if number > 0:  # The first one warms up the gateway.
                loads.append(load)
                cpu.append(load_cpu)
                opens.append(opened)
        scrolls = [await _scroll(app, session_id) for _ in range(effort.times(3, quick=1))]
    wall, task_cpu, long, nodes = zip(*scrolls, strict=True)
    return [
        to_figure("web_transcript_load", loads),
        to_figure("web_transcript_cpu", cpu),
        to_figure("web_transcript_share", share_of(cpu, loads)),
        to_figure("web_transcript_open", opens),
        to_figure("web_transcript_scroll_task", wall),
        to_figure("web_transcript_scroll_task_cpu", task_cpu),
        to_figure("web_transcript_scroll_long", long),
        to_figure("web_transcript_nodes", nodes),
    ]


async def _talk(app: WebApp, turns: int) -> str:
    """A session with so many turns; returns its id."""
    async with app.client() as client:
        for turn in range(1, turns + 1):
            await client.chat(f"turn {turn}", user="transcript")
        page = await client.get("/api/sessions?limit=1")
    return page["sessions"][0]["id"]


async def _load(window: Window, session_id: str, expected: str) -> float:
    """From the start of the navigation until the last turn is drawn."""
    await window.open(f"/sessions/{session_id}")
    return float(await window.page.evaluate(_WAIT_FOR_TURN, expected))


async def _open(window: Window, session_id: str, expected: str) -> float:
    """From the click on the session in the list until its last turn is drawn."""
    await window.open("/")
    await window.page.locator(f'a[href$="/sessions/{session_id}"]').wait_for()
    return float(await window.page.evaluate(_OPEN_FROM_LIST, [session_id, expected]))


async def _scroll(app: WebApp, session_id: str) -> tuple[float, float, int, int]:
    """Scroll to the first turn and back to the last; returns facts about the tasks meanwhile."""
    async with app.window() as window:
        await window.open(f"/sessions/{session_id}")
        await window.page.locator("article.turn").last.wait_for()
        async with app.trace(window) as tasks:
            while not await window.page.evaluate(_IS_AT_START):
                await _wheel(window, _SCROLL_PIXELS)
            nodes = await window.node_count()
            await _wheel(window, -5 * _SCROLL_PIXELS)
        return max(tasks.wall), max(tasks.cpu), tasks.count_over(50), nodes


async def _wheel(window: Window, pixels: int) -> None:
    await window.send(
        "Input.synthesizeScrollGesture",
        x=640,
        y=300,
        yDistance=pixels,
        speed=_SCROLL_PIXELS_PER_SECOND,
        gestureSourceType="mouse",
    )
