"""What was allowed for always: exact matches only, so many at most."""

from dataclasses import replace

import pytest

from nacre.json_types import JsonObject
from nacre.run_context import RunContext
from nacre.tools.approvals import ApprovalMemory

CONTEXT = RunContext(agent_id="main", session_id="s1", session_key="k1")
INPUT: JsonObject = {"to": "a", "options": {"b": 1, "c": [True, None]}}


def memory_of_one() -> ApprovalMemory:
    memory = ApprovalMemory()
    memory.remember(tool_id="t", input=INPUT, context=CONTEXT)
    return memory


def test_another_run_of_the_session_finds_it_whatever_the_order_of_keys() -> None:
    again: JsonObject = {"options": {"c": [True, None], "b": 1}, "to": "a"}
    context = replace(CONTEXT, run_id="another", sender="somebody")
    assert memory_of_one().holds(tool_id="t", input=again, context=context)


@pytest.mark.parametrize(
    "context",
    [
        replace(CONTEXT, session_id="s2"),
        replace(CONTEXT, session_key="k2"),
        replace(CONTEXT, agent_id="other"),
    ],
)
def test_another_session_or_agent_does_not_find_it(context: RunContext) -> None:
    assert not memory_of_one().holds(tool_id="t", input=INPUT, context=context)


@pytest.mark.parametrize(
    "input",
    [
        {},
        {**INPUT, "to": "A"},
        {**INPUT, "more": None},
        {**INPUT, "options": {"b": 1.0, "c": [True, None]}},
        {**INPUT, "options": {"b": True, "c": [True, None]}},
        {**INPUT, "options": {"b": 1, "c": [None, True]}},
    ],
)
def test_another_input_is_not_held_however_alike(input: JsonObject) -> None:
    assert not memory_of_one().holds(tool_id="t", input=input, context=CONTEXT)


def test_another_tool_is_not_held() -> None:
    assert not memory_of_one().holds(tool_id="u", input=INPUT, context=CONTEXT)


def test_beyond_the_limit_the_one_used_longest_ago_is_forgotten() -> None:
    memory = ApprovalMemory(max_remembered=2)
    for tool_id in ("a", "b"):
        memory.remember(tool_id=tool_id, input={}, context=CONTEXT)
    assert memory.holds(tool_id="a", input={}, context=CONTEXT)
    memory.remember(tool_id="c", input={}, context=CONTEXT)
    held = [it for it in "abc" if memory.holds(tool_id=it, input={}, context=CONTEXT)]
    assert held == ["a", "c"]
