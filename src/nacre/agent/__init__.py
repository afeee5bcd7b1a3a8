"""Sessions, turns and the loop between a model and its tools; knows no HTTP and no plugins."""

from nacre.agent.client_tools import ClientTool, PendingClientCall
from nacre.agent.model_step import ProviderSource
from nacre.agent.run import AgentRun, RunEnding, RunFinish, RunResult, RunState
from nacre.agent.service import AgentService
from nacre.agent.turn_context import ToolSource
from nacre.agent.turn_request import TurnRequest
from nacre.trajectory import RUN_EVENT_KINDS, RunEvent, RunEventKind, RunEventLog

__all__ = [
    "RUN_EVENT_KINDS",
    "AgentRun",
    "AgentService",
    "ClientTool",
    "PendingClientCall",
    "ProviderSource",
    "RunEnding",
    "RunEvent",
    "RunEventKind",
    "RunEventLog",
    "RunFinish",
    "RunResult",
    "RunState",
    "ToolSource",
    "TurnRequest",
]
