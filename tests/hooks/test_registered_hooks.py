"""What counts as a hook, in which order hooks are asked, and how a plugin's go away."""

from functools import partial

import pytest

from nacre.errors import HookError
from nacre.hooks import AfterToolCall, BeforeToolCall, HookEvent, Hooks, hook


def before_tool_call(event: BeforeToolCall) -> None:
    """Is a hook by its name."""


async def log_result(event: AfterToolCall) -> None:
    """Is no hook by its name."""


@hook("after_tool_call")
def marked(event: AfterToolCall) -> None:
    """Is a hook by its mark."""


class Policy:
    """Is a hook for two events by its methods."""

    async def before_tool_call(self, event: BeforeToolCall) -> None: ...

    def after_tool_call(self, event: AfterToolCall) -> None: ...


class AsyncCallable:
    """An object that can be awaited after it was called."""

    async def __call__(self, event: BeforeToolCall) -> None: ...


def names(hooks: Hooks, event: HookEvent) -> list[str]:
    return [item.name for item in hooks.for_event(event)]


@pytest.mark.parametrize(
    ("item", "before", "after"),
    [
        (before_tool_call, ["before_tool_call"], []),
        (marked, [], ["marked"]),
        (Policy(), ["Policy.before_tool_call"], ["Policy.after_tool_call"]),
        (Policy().before_tool_call, ["Policy.before_tool_call"], []),
        (("after_tool_call", log_result), [], ["log_result"]),
        ({"before_tool_call": AsyncCallable()}, ["AsyncCallable"], []),
        (
            {"before_tool_call": before_tool_call, "after_tool_call": log_result},
            ["before_tool_call"],
            ["log_result"],
        ),
    ],
)
def test_every_form_of_a_hook_is_taken(item: object, before: list[str], after: list[str]) -> None:
    hooks = Hooks([item])
    assert (names(hooks, "before_tool_call"), names(hooks, "after_tool_call")) == (before, after)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (log_result, "the function log_result is not a hook; allowed: an object with a method"),
        (Policy, "Policy is a class; pass an instance of it"),
        (object(), "a object is not a hook; allowed"),
        ("before_tool_call", "a str is not a hook"),
        (None, "a NoneType is not a hook"),
        ({}, "a dict is not a hook"),
        (("before_tool_call",), "a tuple is not a hook"),
        (("before_call", log_result), "no hook event 'before_call'; known: before_tool_call"),
        ({"after": log_result}, "no hook event 'after'"),
        (("before_tool_call", "log"), "the hook for before_tool_call is a str"),
        (("before_tool_call", Policy), "the hook for before_tool_call is a class"),
        (partial(log_result), "a partial is not a hook"),
    ],
)
def test_anything_else_is_refused_with_what_it_was(item: object, problem: str) -> None:
    with pytest.raises(HookError) as caught:
        Hooks([item])
    assert problem in str(caught.value)


def test_a_function_of_any_name_is_taken_for_a_named_event() -> None:
    hooks = Hooks()
    hooks.add(log_result, event="after_tool_call")
    assert names(hooks, "after_tool_call") == ["log_result"]


def test_a_mark_for_an_unknown_event_is_refused() -> None:
    with pytest.raises(HookError, match="no hook event 'after_call'"):
        hook("after_call")  # pyright: ignore[reportArgumentType]


def test_higher_priority_comes_first_and_equal_ones_in_order() -> None:
    hooks = Hooks()
    for owner, priority in (("a", 0), ("b", 10), ("c", 0), ("d", 10), ("e", -1)):
        hooks.add(before_tool_call, owner=owner, priority=priority)
    owners = [item.owner for item in hooks.for_event("before_tool_call")]
    assert owners == ["b", "d", "a", "c", "e"]


def test_the_hooks_of_an_owner_go_together_and_others_stay() -> None:
    hooks = Hooks([before_tool_call])
    hooks.add(Policy(), owner="plugin")
    hooks.add(marked, owner="other")
    hooks.remove_owner("plugin")
    assert names(hooks, "before_tool_call") == ["before_tool_call"]
    assert names(hooks, "after_tool_call") == ["marked of other"]


def test_what_was_handed_out_does_not_change() -> None:
    hooks = Hooks([before_tool_call])
    handed_out = hooks.for_event("before_tool_call")
    hooks.add(before_tool_call)
    assert len(handed_out) == 1


def test_one_bad_part_registers_nothing() -> None:
    hooks = Hooks()
    with pytest.raises(HookError):
        hooks.add({"before_tool_call": before_tool_call, "after_tool_call": 3})
    assert hooks.for_event("before_tool_call") == ()


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (before_tool_call, False),
        (log_result, True),
        (partial(log_result), True),
        (Policy().before_tool_call, True),
        (AsyncCallable(), True),
    ],
)
def test_an_async_function_is_known_as_one(function: object, is_async: bool) -> None:
    hooks = Hooks([("before_tool_call", function)])
    assert [item.is_async for item in hooks.for_event("before_tool_call")] == [is_async]
