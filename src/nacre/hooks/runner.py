"""Asks the hooks of every event of a run; made once per run."""

from nacre.hooks.tool_call_hooks import ToolCallHooks
from nacre.hooks.turn_hooks import TurnHooks


class HookRunner(ToolCallHooks, TurnHooks):
    """The hooks around tool calls, and those around the model and the turn."""
