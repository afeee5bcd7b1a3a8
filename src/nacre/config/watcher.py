"""Watches the config file, reads and checks each change, and passes it on."""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
from anyio import to_thread

from nacre.config.config_file import read_config_file
from nacre.config.sections import CoreToolsConfig
from nacre.config.system import SECTIONS, system_config_from
from nacre.config.tools import ToolsConfig
from nacre.errors import ConfigError, NacreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from nacre.config.agents import AgentsConfig
    from nacre.config.config_file import ConfigFile
    from nacre.config.system import SystemConfig


logger = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS: Final = 1.0
_READ_SECONDS: Final = 30.0

_Look: TypeAlias = tuple[int, int, int, int] | None
"""Differs after a change of the file; None if the file is missing or empty."""
_Looks: TypeAlias = tuple[_Look, ...]
"""The config file first, then the files of tokens."""
# Compared as written: an agent has the settings of both, merged.
_MERGED: Final = ("agents", "tools")


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigChange:
    """A valid configuration that replaces another one."""

    old: SystemConfig
    new: SystemConfig

    @property
    def sections(self) -> tuple[str, ...]:
        return changed_sections(self.old, self.new)

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """The changed settings that take effect only at the next start."""
        settings = {
            "gateway.host": (self.old.gateway.host, self.new.gateway.host),
            "gateway.port": (self.old.gateway.port, self.new.gateway.port),
            "sandbox.executor": (self.old.ray is None, self.new.ray is None),
            "sandbox.maxSuspendedCells": (
                self.old.max_suspended_cells,
                self.new.max_suspended_cells,
            ),
            "sandbox.ray": (self.old.ray, self.new.ray),
            "sandbox.require": (self.old.required_protections, self.new.required_protections),
            "sandbox.snapshotKeys": (self.old.snapshot_keys, self.new.snapshot_keys),
            "storage.url": (self.old.storage.url, self.new.storage.url),
            # Turning it off has an effect on the next turns.
            "tools.codeMode.durable": (False, self.new.is_durable and not self.old.is_durable),
        }
        return tuple(path for path, (old, new) in settings.items() if old != new)


class ConfigWatcher:
    """Checks the config file and the files of tokens once a second, in a thread. A change is used
    when two checks in a row find the same files.

    The configuration stays as it is if the file is invalid, missing or empty, or if `on_change`
    raises a NacreError. Each problem is logged once, and so is its end.
    """

    def __init__(
        self,
        file: ConfigFile,
        on_change: Callable[[ConfigChange], Awaitable[None]],
        *,
        current: SystemConfig,
        environment: Mapping[str, str],
        look_every_seconds: float = _LOOK_EVERY_SECONDS,
        read_seconds: float = _READ_SECONDS,
    ) -> None:
        self.current = current
        """The configuration in use."""
        self._file = file
        self._on_change = on_change
        self._environment = environment
        self._look_every_seconds = look_every_seconds
        self._read_seconds = read_seconds
        # The file may have changed since it was read for `current`, so it is read once more.
        self._handled: _Looks | None = None
        self._unsettled: _Looks | None = None
        self._reported = ""

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await anyio.sleep(self._look_every_seconds)
            await self.look()

    async def look(self) -> None:
        """Check the files once."""
        paths = (self._file.path, *self.current.gateway.token_files)
        seen = await to_thread.run_sync(lambda: tuple(map(_look_at, paths)))
        has_settled, self._unsettled = seen == self._unsettled, seen
        if seen == self._handled or not has_settled:
            return
        was_there = self._handled is not None and self._handled[0] is not None
        self._handled = seen
        try:
            if seen[0] is not None:
                await self._take_over()
            elif was_there:
                raise ConfigError(str(self._file.path), "is gone, or empty; for all defaults: {}")
        except NacreError as problem:
            self._report(problem)
        except Exception:
            # An error of ours must not end the process.
            self._reported = "it cannot be applied"
            logger.exception("the configuration stays as it was: %s", self._reported)

    async def _take_over(self) -> None:
        new = await self._read_in_time()
        change = ConfigChange(old=self.current, new=new)
        if change.sections:
            await self._on_change(change)
        if self._reported:
            logger.info("the configuration is valid again: %s is used", self._file.path)
        self.current, self._reported = new, ""

    async def _read_in_time(self) -> SystemConfig:
        # The file of a secret may be a pipe, and reading it may never end.
        with anyio.move_on_after(self._read_seconds):
            return await to_thread.run_sync(self._read, abandon_on_cancel=True)
        raise ConfigError(
            str(self._file.path),
            f"names a file that takes over {self._read_seconds:g} seconds to read; is it a pipe?",
        )

    def _read(self) -> SystemConfig:
        return system_config_from(
            # A pipe would block the watcher forever.
            read_config_file(self._file, may_be_special=False),
            environment=self._environment,
            folder=self._file.path.absolute().parent,
            # Only runs that need a missing secret should fail.
            may_lack_secrets=True,
        )

    def _report(self, problem: NacreError) -> None:
        text = str(problem)
        if text != self._reported:
            logger.error("the configuration stays as it was: %s", text)
        self._reported = text


def changed_sections(old: SystemConfig, new: SystemConfig) -> tuple[str, ...]:
    """The sections of the document whose settings differ."""
    typed = {
        "models": old.models != new.models,
        "agents": _own_settings(old.agents) != _own_settings(new.agents),
        "mcp": old.mcp_servers != new.mcp_servers,
        "plugins": (old.plugins, old.codex) != (new.plugins, new.codex),
        "sandbox": _sandbox_settings(old) != _sandbox_settings(new),
        "messages": old.queue != new.queue,
        "gateway": old.gateway != new.gateway,
        "storage": old.storage != new.storage,
    }
    written = {name: old.document.get(name) != new.document.get(name) for name in _MERGED}
    return tuple(name for name in SECTIONS if typed.get(name, False) or written.get(name, False))


def _sandbox_settings(config: SystemConfig) -> tuple[object, ...]:
    return (
        config.required_protections,
        config.snapshot_keys,
        config.max_suspended_cells,
        config.ray,
    )


def _own_settings(agents: AgentsConfig) -> AgentsConfig:
    """Without their tools, which are compared in the document."""
    core_tools, tools = CoreToolsConfig(), ToolsConfig()
    bare = {
        name: replace(agent, core_tools=core_tools, tools=tools)
        for name, agent in agents.by_id.items()
    }
    return replace(agents, by_id=bare)


def _look_at(path: Path) -> _Look:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(found.st_mode) and not found.st_size:
        # An editor that finds the disk full leaves an empty file, which is not meant as a change.
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
