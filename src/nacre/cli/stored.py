"""Reads what is stored, for commands that run nothing."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, TypeVar

import anyio

from nacre.cli.output import UsageProblem
from nacre.errors import NacreError
from nacre.storage import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nacre.config.system import SystemConfig

_Result = TypeVar("_Result")


def read_stored(config: SystemConfig, read: Callable[[Store], Awaitable[_Result]]) -> _Result:
    """What `read` returns of the configured store; raises UsageProblem and StorageError."""
    gc.enable()
    return anyio.run(_read_from_store, config.storage.url, read)


async def _read_from_store(url: str, read: Callable[[Store], Awaitable[_Result]]) -> _Result:
    done: list[_Result] = []
    problem: Exception | None = None
    async with Store.open(url) as store:
        try:
            done.append(await read(store))
        except (NacreError, UsageProblem) as error:
            # Not through what the store runs, which might wrap it.
            problem = error
    if problem is not None:
        raise problem
    return done[0]
