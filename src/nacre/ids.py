"""Distinct types for run, session, cell, tool-call and plugin ids, and how new ones are made."""

import os
from typing import NewType

RunId = NewType("RunId", str)
SessionId = NewType("SessionId", str)
CellId = NewType("CellId", str)
ToolCallId = NewType("ToolCallId", str)
PluginId = NewType("PluginId", str)
"""Given by the plugin's author in its manifest, so there is no function that makes one."""

# Knowing a run id is part of being allowed to resume it, so ids must not be guessable.
_RANDOM_BYTES = 16


def new_run_id() -> RunId:
    return RunId(f"run_{_random_hex()}")


def new_session_id() -> SessionId:
    return SessionId(f"session_{_random_hex()}")


def new_cell_id() -> CellId:
    return CellId(f"cell_{_random_hex()}")


def new_tool_call_id() -> ToolCallId:
    return ToolCallId(f"call_{_random_hex()}")


def _random_hex() -> str:
    # What `secrets.token_hex` and `uuid4` come down to, without importing either.
    return os.urandom(_RANDOM_BYTES).hex()
