"""Opens the whole system for one command, and closes it whatever happens."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, cast

import anyio

from nacre.bootstrap import open_system
from nacre.cli.output import STOP_SIGNALS, ExitStatus, UsageProblem, warn
from nacre.cli.runner import Stops
from nacre.errors import ConfigError, NacreError, SessionError
from nacre.telemetry.debug_flags import DEBUG_LOGGER_NAME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nacre.bootstrap import System
    from nacre.cli.agent.screen import Screen
    from nacre.config.system import SystemConfig


def run_with_system(
    config: SystemConfig,
    work: Callable[[System, Stops], Awaitable[ExitStatus]],
    *,
    screen: Screen,
) -> ExitStatus:
    """Do the work and return its status; raises UsageProblem for what the command cannot do."""
    gc.enable()
    notes = _Notes(screen)
    logger = logging.getLogger("nacre")
    logger.addHandler(notes)
    try:
        return anyio.run(_run_work, config, work, screen)
    finally:
        logger.removeHandler(notes)


async def _run_work(
    config: SystemConfig,
    work: Callable[[System, Stops], Awaitable[ExitStatus]],
    screen: Screen,
) -> ExitStatus:
    stops = Stops()
    outcome: list[ExitStatus | NacreError | UsageProblem] = []
    with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stops.watch, signals)
            tasks.start_soon(screen.tick)
            with stops.scope:
                outcome.append(await _run_in_system(config, work, stops))
            screen.close()
            stops.restore_terminal()
            tasks.cancel_scope.cancel()
    return _status_of(outcome[0]) if outcome else stops.status or ExitStatus.INTERRUPTED


async def _run_in_system(
    config: SystemConfig, work: Callable[[System, Stops], Awaitable[ExitStatus]], stops: Stops
) -> ExitStatus | NacreError | UsageProblem:
    done: list[ExitStatus | NacreError | UsageProblem] = []
    try:
        async with open_system(config, workers=1) as system:
            try:
                done.append(await work(system, stops))
            except (NacreError, UsageProblem) as error:
                # Not through the tasks of the system, which would wrap it.
                done.append(error)
    except (NacreError, ExceptionGroup) as error:
        problem = _problem_in(error)
        if problem is None:
            raise
        done.append(problem)
    return done[-1]


def _problem_in(error: BaseException) -> NacreError | None:
    """The one thing that went wrong, however many tasks it came through."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _problem_in(group.exceptions[0]) if len(group.exceptions) == 1 else None
    return error if isinstance(error, NacreError) else None


def _status_of(outcome: ExitStatus | NacreError | UsageProblem) -> ExitStatus:
    match outcome:
        case ExitStatus():
            return outcome
        case UsageProblem():
            raise outcome
        case ConfigError() | SessionError():
            raise UsageProblem(str(outcome))
        case NacreError():
            warn(str(outcome))
            return ExitStatus.FAILED


class _Notes(logging.Handler):
    """Shows on the screen what the system warns of, and what a debug switch asks for."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.INFO)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self._screen.note(f"nacre: {self.format(record)}", "warning")
        elif record.name.startswith(DEBUG_LOGGER_NAME):
            self._screen.note(f"{record.name}: {self.format(record)}", "dim")
