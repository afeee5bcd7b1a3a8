"""Memory, time, output and snapshot limits of a cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.config.code_mode import LIMITS
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from nacre.config.code_mode import CodeModeConfig

# Requests of a cell beyond `max_pending_tool_calls` wait their turn. A program that has this many
# waiting is a runaway loop: the cell fails before any request of that burst is sent.
MAX_REQUEST_BACKLOG: Final = 4096

# The answer to one request, as JSON. A larger one rejects the program's promise.
MAX_ANSWER_BYTES: Final = 16 << 20

# An item of output costs the host more than its text: a million empty ones are a flood, too.
OUTPUT_ITEM_BYTES: Final = 16

# A program can throw an error as large as its memory; a model needs the beginning.
MAX_ERROR_CHARACTERS: Final = 8192


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one cell may use; the defaults are those of `tools.codeMode`."""

    timeout_ms: int = LIMITS["timeout_ms"].default
    memory_limit_bytes: int = LIMITS["memory_limit_bytes"].default
    max_output_bytes: int = LIMITS["max_output_bytes"].default
    max_snapshot_bytes: int = LIMITS["max_snapshot_bytes"].default
    max_pending_tool_calls: int = LIMITS["max_pending_tool_calls"].default

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value: object = getattr(self, name)
            if type(value) is not int:
                limit = LIMITS[name]
                allowed = f"whole numbers from {limit.least} to {limit.most}"
                raise ConfigError(name, f"is {value!r}; allowed: {allowed}")
            # Frozen, so this is how: a number out of range is clamped, as in the config.
            object.__setattr__(self, name, LIMITS[name].clamp(value))

    @classmethod
    def from_config(cls, config: CodeModeConfig) -> Limits:
        return cls(
            timeout_ms=config.timeout_ms,
            memory_limit_bytes=config.memory_limit_bytes,
            max_output_bytes=config.max_output_bytes,
            max_snapshot_bytes=config.max_snapshot_bytes,
            max_pending_tool_calls=config.max_pending_tool_calls,
        )
