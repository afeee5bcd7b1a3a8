"""Sessions, turns, and the loop between a model and its tools."""

from nacre.agent.approval_log import approval_to_json
from nacre.agent.model_step import ProviderSource
from nacre.agent.run import (
    AgentRun,
    ClientTool,
    PendingClientCall,
    RunEnding,
    RunFinish,
    RunResult,
    RunState,
)
from nacre.agent.service import AgentService, TurnRequest
from nacre.agent.transcript import FailedTurnWrites
from nacre.agent.turn_context import Harness, ServiceContext, ToolSource, TurnContext, TurnOutput
from nacre.agent.turn_loop import BuiltInHarness, planned_surface
from nacre.trajectory import RUN_EVENT_KINDS, RunEvent, RunEventKind, RunEventLog

__all__ = [
    "RUN_EVENT_KINDS",
    "AgentRun",
    "AgentService",
    "BuiltInHarness",
    "ClientTool",
    "FailedTurnWrites",
    "Harness",
    "PendingClientCall",
    "ProviderSource",
    "RunEnding",
    "RunEvent",
    "RunEventKind",
    "RunEventLog",
    "RunFinish",
    "RunResult",
    "RunState",
    "ServiceContext",
    "ToolSource",
    "TurnContext",
    "TurnOutput",
    "TurnRequest",
    "approval_to_json",
    "planned_surface",
]
