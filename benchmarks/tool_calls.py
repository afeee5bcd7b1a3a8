"""Nested tool calls with hooks and trajectory, and a whole task."""

from typing import Any

from benchmarks.generated_tools import generated_tools
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.runtimes import costs, value_of, warm_runtime, warm_up
from nacre import AfterToolCall, BeforeToolCall, CodeModeRun, Runtime, Tool, ToolCall, Waiting
from nacre.json_types import JsonObject

_CALLS = 100
_SEQUENCE = f"""
let sum = 0;
for (let i = 0; i < {_CALLS}; i++) sum += (await tools.call("openclaw:core:add_one", {{ i }})).i;
return sum;
"""
_TASK = """
const [found] = await tools.search("list hourly temperatures of a city");
const { parameters } = await tools.describe(found.id);
const input = Object.fromEntries(parameters.required.map((name) => [name, "Oslo"]));
const { hours } = await tools.call(found.id, input);
return Math.max(...hours.map((hour) => hour.celsius));
"""
_WARMEST = 21
_BACKGROUND_TOOLS = 500


class _CountingHooks:
    """One hook before and one after each call, which count their calls."""

    def __init__(self) -> None:
        self.before = 0
        self.after = 0

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        self.before += event.tool_kind == "tool"

    async def after_tool_call(self, event: AfterToolCall) -> None:
        self.after += event.tool_kind == "tool"


async def measure(effort: Effort) -> list[Figure]:
    count = effort.times(60, quick=15)
    async with warm_runtime() as runtime:
        plain, _ = await _sequence_costs(runtime.run(tools=[_adder()]), count)
        hooks = _CountingHooks()
        run = runtime.run(tools=[_adder()], hooks=[hooks])
        cpu, wall = await _sequence_costs(run, count)
        _check(run, hooks)
        calls = await _model_calls(runtime)
    details = {"programs": float(count), "withoutHooksMs": plain}
    return [
        Figure(name="tool_calls_cpu", value=cpu, details=details),
        Figure(name="tool_calls_p50", value=wall),
        Figure(name="task_model_calls", value=calls),
    ]


async def _sequence_costs(run: CodeModeRun, count: int) -> tuple[float, float]:
    await warm_up(run)
    expected = _CALLS * (_CALLS + 1) // 2
    await costs(run, _SEQUENCE, expected=expected, count=3)
    return await costs(run, _SEQUENCE, expected=expected, count=count)


def _check(run: CodeModeRun, hooks: _CountingHooks) -> None:
    """Check that both hooks and the trajectory saw every call."""
    kinds = [event.kind for event in run.trajectory.events if event.parent_id]
    seen = {hooks.before, hooks.after, kinds.count("call.started"), kinds.count("call.ended")}
    if len(seen) != 1 or hooks.before % _CALLS:
        raise RuntimeError(f"hooks and record do not agree on the calls: {sorted(seen)}")


async def _model_calls(runtime: Runtime) -> int:
    """The number of model calls to search, describe, call and transform."""
    run = runtime.run(tools=[*generated_tools(_BACKGROUND_TOOLS), _thermometer()])
    calls = 1
    result = await run.exec(_TASK)
    while isinstance(result, Waiting):
        calls += 1
        result = await run.wait(result.cell_id)
    value = value_of(result)
    if value != _WARMEST:
        raise RuntimeError(f"the task returned {value!r}, not {_WARMEST}")
    return calls


def _adder() -> Tool:
    async def add_one(given: dict[str, Any], _call: ToolCall) -> object:
        return {"i": given["i"] + 1}

    return Tool(
        name="add_one",
        description="Add one to a number",
        parameters=_one_property("i", "integer"),
        execute=add_one,
    )


def _thermometer() -> Tool:
    async def list_temperatures(_given: dict[str, Any], _call: ToolCall) -> object:
        hours = [{"hour": hour, "celsius": _WARMEST - abs(hour - 14)} for hour in range(24)]
        return {"hours": hours}

    return Tool(
        name="list_hourly_temperatures",
        description="List the temperatures of a city for every hour of today",
        parameters=_one_property("city", "string"),
        owner="birch-weather",
        execute=list_temperatures,
    )


def _one_property(name: str, kind: str) -> JsonObject:
    return {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
