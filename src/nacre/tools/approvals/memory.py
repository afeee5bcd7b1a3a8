"""Remembers what was allowed for always, by exact match only."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext

_MAX_REMEMBERED: Final = 1024


class ApprovalMemory:
    """What was allowed for always: a tool with just one input, for one agent in one session."""

    def __init__(self, max_remembered: int = _MAX_REMEMBERED) -> None:
        self._max_remembered = max_remembered
        self._keys: OrderedDict[str, None] = OrderedDict()

    def remember(self, *, tool_id: str, input: JsonObject, context: RunContext) -> None:
        """Remember it; beyond the limit, what was used longest ago is asked about again."""
        self._keys[_memory_key(tool_id, input, context)] = None
        if len(self._keys) > self._max_remembered:
            self._keys.popitem(last=False)

    def holds(self, *, tool_id: str, input: JsonObject, context: RunContext) -> bool:
        key = _memory_key(tool_id, input, context)
        is_held = key in self._keys
        if is_held:
            self._keys.move_to_end(key)
        return is_held


def _memory_key(tool_id: str, input: JsonObject, context: RunContext) -> str:
    exactly = [context.session_id, context.session_key, context.agent_id, tool_id, input]
    return hashlib.sha256(json.dumps(exactly, sort_keys=True).encode()).hexdigest()
