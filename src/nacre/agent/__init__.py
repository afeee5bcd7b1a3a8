"""Sessions, turns, and the loop between a model and its tools."""

from nacre.agent.approvals import approval_to_json
from nacre.agent.chat_commands import (
    COMMAND_SURFACE,
    OWNER_RIGHTS,
    CallerRight,
    ChatCommand,
    ChatCommands,
    CommandCall,
    CommandHandler,
)
from nacre.agent.client_tools import ClientTool, PendingClientCall
from nacre.agent.context_engine import TurnEngine
from nacre.agent.diagnostics import (
    Diagnostics,
    FeedbackThread,
    ThreadFeedback,
    send_feedback,
)
from nacre.agent.heartbeat import (
    HeartbeatReport,
    Heartbeats,
    HeartbeatTurn,
    build_heartbeat_guidance,
    find_last_heartbeat,
    heartbeat_tool,
)
from nacre.agent.input_requests import InputEnding, InputRequest
from nacre.agent.manual_call import EXEC_ID, ManualCall, ManualCalls
from nacre.agent.model_step import ProviderSource
from nacre.agent.prompt_additions import (
    BOOTSTRAP_FILE,
    MEMORY_FILE,
    NO_FILES,
    PROFILE_FILES,
    Skill,
    WorkspaceFile,
    WorkspaceFiles,
    collect_additions,
    format_block,
    format_file,
    format_skills,
    read_workspace,
    read_workspace_files,
)
from nacre.agent.remote_runs import RemoteRun
from nacre.agent.replies import (
    REPLY_RULE,
    ReplyMedia,
    clean_media_name,
    detect_media_type,
    media_to_json,
    media_url,
)
from nacre.agent.run import (
    AgentRun,
    RunEnding,
    RunFinish,
    RunResult,
    RunState,
    ToolBytes,
    tool_bytes_of,
)
from nacre.agent.service import AgentService, ClientResult
from nacre.agent.session_queue import new_run_id
from nacre.agent.shared_sessions import SharedSessions
from nacre.agent.transcript import FailedTurnWrites, estimate_tokens
from nacre.agent.turn import Harnesses
from nacre.agent.turn_context import (
    BudgetExceededError,
    ExternalWaits,
    Harness,
    ServerTools,
    ServiceContext,
    ToolSource,
    TurnContext,
    TurnOutput,
    call_directly,
    list_server_tools,
    make_executor,
)
from nacre.agent.turn_loop import BuiltInHarness, planned_surface
from nacre.agent.turn_request import TurnRequest, new_session_id
from nacre.trajectory import RUN_EVENT_KINDS, RunEvent, RunEventKind, RunEventLog

__all__ = [
    "BOOTSTRAP_FILE",
    "COMMAND_SURFACE",
    "EXEC_ID",
    "MEMORY_FILE",
    "NO_FILES",
    "OWNER_RIGHTS",
    "PROFILE_FILES",
    "REPLY_RULE",
    "RUN_EVENT_KINDS",
    "AgentRun",
    "AgentService",
    "BudgetExceededError",
    "BuiltInHarness",
    "CallerRight",
    "ChatCommand",
    "ChatCommands",
    "ClientResult",
    "ClientTool",
    "CommandCall",
    "CommandHandler",
    "Diagnostics",
    "ExternalWaits",
    "FailedTurnWrites",
    "FeedbackThread",
    "Harness",
    "Harnesses",
    "HeartbeatReport",
    "HeartbeatTurn",
    "Heartbeats",
    "InputEnding",
    "InputRequest",
    "ManualCall",
    "ManualCalls",
    "PendingClientCall",
    "ProviderSource",
    "RemoteRun",
    "ReplyMedia",
    "RunEnding",
    "RunEvent",
    "RunEventKind",
    "RunEventLog",
    "RunFinish",
    "RunResult",
    "RunState",
    "ServerTools",
    "ServiceContext",
    "SharedSessions",
    "Skill",
    "ThreadFeedback",
    "ToolBytes",
    "ToolSource",
    "TurnContext",
    "TurnEngine",
    "TurnOutput",
    "TurnRequest",
    "WorkspaceFile",
    "WorkspaceFiles",
    "approval_to_json",
    "build_heartbeat_guidance",
    "call_directly",
    "clean_media_name",
    "collect_additions",
    "detect_media_type",
    "estimate_tokens",
    "find_last_heartbeat",
    "format_block",
    "format_file",
    "format_skills",
    "heartbeat_tool",
    "list_server_tools",
    "make_executor",
    "media_to_json",
    "media_url",
    "new_run_id",
    "new_session_id",
    "planned_surface",
    "read_workspace",
    "read_workspace_files",
    "send_feedback",
    "tool_bytes_of",
]
