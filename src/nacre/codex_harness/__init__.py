"""The Codex harness: turns of agents inside the app-server of OpenAI's Codex."""

from nacre.codex_harness.account import CodexHealth, examine_codex
from nacre.codex_harness.app_server import MIN_VERSION, AppServers, plan_launch
from nacre.codex_harness.client import (
    AppServerClient,
    ThreadListener,
    Version,
    refuse_request,
)
from nacre.codex_harness.codex_turn import SURFACE
from nacre.codex_harness.commands import CodexCommands
from nacre.codex_harness.feedback import CodexFeedback, FeedbackCommand
from nacre.codex_harness.harness import CodexHarness, open_codex_harness

__all__ = [
    "MIN_VERSION",
    "SURFACE",
    "AppServerClient",
    "AppServers",
    "CodexCommands",
    "CodexFeedback",
    "CodexHarness",
    "CodexHealth",
    "FeedbackCommand",
    "ThreadListener",
    "Version",
    "examine_codex",
    "open_codex_harness",
    "plan_launch",
    "refuse_request",
]
