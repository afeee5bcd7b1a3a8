"""The budget of a run: model calls, tokens and time."""

from pathlib import Path

import anyio
import pytest

from nacre.agent.turn_context import BudgetExceededError, RunBudget
from nacre.config.agents import AgentConfig
from nacre.messages import Usage


def budget(**settings: float) -> RunBudget:
    agent = AgentConfig(id="main", name="", model="a/b", workspace=Path("/w"), **settings)  # pyright: ignore[reportArgumentType]
    return RunBudget(agent)


def test_steps_are_counted_before_they_are_made() -> None:
    limited = budget(max_steps=2)
    limited.take_step()
    limited.take_step()
    with pytest.raises(BudgetExceededError, match="`maxSteps` of the agent main is 2"):
        limited.take_step()
    assert limited.steps == 2


def test_tokens_are_those_that_were_read_and_written() -> None:
    limited = budget(max_tokens=10)
    limited.add(Usage(input_tokens=6))
    limited.take_step()
    limited.add(Usage(output_tokens=4))
    with pytest.raises(BudgetExceededError, match="the run has used 10 tokens"):
        limited.take_step()


def test_only_written_limits_count_for_calls_of_another_program() -> None:
    unlimited = budget(max_steps=1, max_tokens=10)
    assert unlimited.note_native_call(Usage(input_tokens=11)) is None
    assert (unlimited.steps, unlimited.usage.total_tokens) == (1, 11)
    limited = budget(max_steps=2, has_own_max_steps=True)
    assert limited.note_native_call(Usage()) is None
    assert "`maxSteps` of the agent main is 2" in str(limited.note_native_call(Usage()))
    limited = budget(max_tokens=10, has_own_max_tokens=True)
    assert "`maxTokens` of the agent main is 10" in str(
        limited.note_native_call(Usage(output_tokens=10))
    )


async def test_time_that_is_used_up_is_told_with_its_setting() -> None:
    limited = budget(timeout_seconds=0.01)
    limited.set_running(True)
    with anyio.fail_after(5):
        assert "`timeoutSeconds` of the agent main" in await limited.time_is_up()


async def test_time_stands_still_while_somebody_else_is_waited_for() -> None:
    limited = budget(timeout_seconds=0.05)
    limited.set_running(True)
    limited.set_running(False)
    with anyio.move_on_after(0.2) as waited:
        await limited.time_is_up()
    assert waited.cancelled_caught
    limited.set_running(True)
    with anyio.fail_after(5):
        await limited.time_is_up()
