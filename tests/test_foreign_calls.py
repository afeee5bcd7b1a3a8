"""What foreign code raised: whether it is for somebody else, and how it is told."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from nacre.foreign_calls import call_in_own_task, describe_error, passes_through


class Panic(BaseException):
    """What extension modules raise when they have lost their way."""


class Speechless(Exception):
    """Fails to say what it is."""

    def __init__(self, failure: BaseException) -> None:
        super().__init__()
        self._failure = failure

    def __str__(self) -> str:
        raise self._failure


class Mumbling(Exception):
    """Says what it is in something that is no text."""

    def __str__(self) -> str:
        return 7  # pyright: ignore[reportReturnType]


async def verdict_on(foreign: Callable[[], Awaitable[object]]) -> bool:
    """Whether what this raises passes through."""
    try:
        await foreign()
    except BaseException as error:
        return passes_through(error, caller=current_task())
    raise AssertionError("nothing was raised")


def current_task() -> "asyncio.Task[object]":
    task = asyncio.current_task()
    assert task is not None
    return task


async def raise_cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SystemExit(2),
        Panic("x"),
        BaseExceptionGroup("x", [Panic("x"), asyncio.CancelledError()]),
        TimeoutError(),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_foreign_code_raises_is_its_own(error: BaseException) -> None:
    assert not passes_through(error, caller=current_task())


async def test_ctrl_c_is_for_somebody_else() -> None:
    assert passes_through(KeyboardInterrupt(), caller=current_task())


async def test_the_end_of_a_coroutine_is_for_whoever_closes_it() -> None:
    """Closed from another task than the one that ran it."""
    assert passes_through(GeneratorExit(), caller=None)


async def test_a_cancellation_that_nobody_asked_for_is_foreign() -> None:
    assert not await verdict_on(raise_cancelled)


async def test_a_cancelled_scope_is_for_whoever_cancelled_it() -> None:
    verdicts: list[bool] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        verdicts.append(await verdict_on(anyio.sleep_forever))
    assert verdicts == [True]


async def test_a_cancelled_scope_further_out_counts_as_well() -> None:
    verdicts: list[bool] = []
    with anyio.CancelScope() as outer, anyio.CancelScope():
        outer.cancel()
        verdicts.append(await verdict_on(anyio.sleep_forever))
    assert verdicts == [True]


async def test_behind_a_shield_a_cancellation_is_foreign() -> None:
    verdicts: list[bool] = []
    with anyio.CancelScope() as outer, anyio.CancelScope(shield=True):
        outer.cancel()
        verdicts.append(await verdict_on(raise_cancelled))
    assert verdicts == [False]


async def test_a_task_that_asyncio_cancelled_is_cancelled() -> None:
    """anyio knows nothing of it: `asyncio.wait_for` and `Task.cancel` go around its scopes."""
    verdicts: list[bool] = []

    async def cancelled() -> None:
        current_task().cancel()
        verdicts.append(await verdict_on(anyio.sleep_forever))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancelled)
    assert verdicts == [True]


async def test_a_cancellation_that_was_taken_back_counts_no_more() -> None:
    verdicts: list[bool] = []

    async def cancelled_and_forgiven() -> None:
        current_task().cancel()
        with pytest.raises(asyncio.CancelledError):
            await anyio.sleep_forever()
        current_task().uncancel()
        verdicts.append(await verdict_on(raise_cancelled))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancelled_and_forgiven)
    assert verdicts == [False]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no such page"), "no such page"),
        (ValueError(), "ValueError"),
        (Panic("lost"), "lost"),
        (SystemExit(2), "2"),
        (SystemExit(), "SystemExit"),
        (GeneratorExit(), "GeneratorExit"),
        (asyncio.CancelledError(), "it was cancelled"),
        (asyncio.CancelledError("a secret of the caller"), "it was cancelled"),
        (Speechless(RuntimeError("no words")), "Speechless"),
        (Mumbling(), "Mumbling"),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "two (2 sub-exceptions)"),
    ],
    ids=repr,
)
async def test_an_error_is_told_in_its_words_or_by_its_type(
    error: BaseException, words: str
) -> None:
    assert describe_error(error) == words


@pytest.mark.parametrize("failure", [SystemExit(2), Panic("x")], ids=repr)
async def test_an_error_that_ends_the_process_when_it_is_read_is_told_by_its_type(
    failure: BaseException,
) -> None:
    try:
        words = describe_error(Speechless(failure))
    except BaseException as error:
        # Kept here, as it would end the test runner.
        words = repr(error)
    assert words == "Speechless"


async def test_a_call_in_a_task_of_its_own_gives_what_it_returns() -> None:
    async def foreign() -> asyncio.Task[object]:
        return current_task()

    assert await call_in_own_task(foreign) is not current_task()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(2), Panic("x"), GeneratorExit()])
async def test_a_call_in_a_task_of_its_own_raises_what_it_raises(error: BaseException) -> None:
    async def foreign() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        await call_in_own_task(foreign)
    assert raised.value is error


async def test_a_call_that_cancels_its_own_task_does_not_cancel_its_caller() -> None:
    async def foreign() -> None:
        current_task().cancel()
        await anyio.lowlevel.checkpoint()

    with pytest.raises(asyncio.CancelledError):
        await call_in_own_task(foreign)
    assert not current_task().cancelling()
    await anyio.lowlevel.checkpoint()
