"""The model of `plugins.entries.codex` and `agentRuntime` in the config document."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from nacre.config.codex import (
    ApprovalPolicy,
    AppServerConfig,
    CodexMode,
    CodexSandbox,
    HookRelayConfig,
    RelayEvent,
    RuntimeId,
    ToolsLoading,
)
from nacre.config.sections import (
    Number,
    PathText,
    Reference,
    SecretText,
    Section,
    Text,
    TextMap,
    Whole,
    allowed,
)

_SERVER: Final = AppServerConfig()
_RELAY: Final = HookRelayConfig()
_IGNORED: Final = "Accepted for files of OpenClaw; it has no effect."
_STDIO: Final = "Nacre talks to the app-server over stdio"
_NOT_IDLE: Final = "an idle turn is not ended; `timeoutSeconds` of the agent is its limit"
_MAX_TIMEOUT_MS: Final = 86_400_000


class RuntimeSection(Section):
    """`agentRuntime`."""

    id: RuntimeId | None = Field(
        default=None,
        description="Which harness runs the turns: Codex, the built-in one (`openclaw`), or "
        "`auto`: Codex for models of OpenAI if `plugins.entries.codex.enabled` is true.",
    )


class ModelUseSection(Section):
    """An entry of `agents.defaults.models`."""

    agent_runtime: RuntimeSection = Field(
        default_factory=RuntimeSection, description="Which harness runs the turns of this model."
    )


class DiscoverySection(Section):
    """`plugins.entries.codex.config.discovery`."""

    is_enabled: bool = Field(default=True, description="Whether Codex is asked for its models.")
    timeout_ms: Whole = Field(
        default=2500, ge=100, le=_MAX_TIMEOUT_MS, description="Time limit of that question."
    )


class CodexPluginsSection(Section):
    """`plugins.entries.codex.config.codexPlugins`."""

    unused_fields: ClassVar[Mapping[str, str]] = {
        "allow_destructive_actions": "elicitations of native plugins are declined",
        "plugins": "Codex has its own list of plugins, in its CODEX_HOME",
    }

    is_enabled: bool = Field(
        default=False, description="Whether threads have the native plugins and apps of Codex."
    )
    allow_destructive_actions: bool | Literal["auto", "ask"] = Field(
        default=True, alias="allow_destructive_actions", description=_IGNORED
    )
    plugins: dict[str, Any] = Field(default={}, description=_IGNORED)


class AppServerSection(Section):
    """`plugins.entries.codex.config.appServer`."""

    unused_fields: ClassVar[Mapping[str, str]] = {
        "url": _STDIO,
        "auth_token": _STDIO,
        "headers": _STDIO,
        "remote_workspace_root": _STDIO,
        "turn_completion_idle_timeout_ms": _NOT_IDLE,
        "post_tool_raw_assistant_completion_idle_timeout_ms": _NOT_IDLE,
        "experimental": "native commands run as `sandbox` says",
        "loop_detection_pre_tool_use_relay": "Nacre has no loop detection",
        "network_proxy": "set the variables of your proxy, such as HTTPS_PROXY",
    }

    transport: Literal["stdio", "websocket", "unix"] = Field(
        default="stdio", description="Only `stdio` is used."
    )
    command: Reference = Field(
        default="",
        description="The program `codex`; empty for that of the package openai-codex-cli-bin.",
        json_schema_extra=allowed("a program or a path"),
    )
    args: list[str] = Field(default=list(_SERVER.args), description="Its arguments.")
    url: Reference = Field(default="", description=_IGNORED)
    auth_token: SecretText = Field(default="", description=_IGNORED)
    headers: TextMap = Field(default={}, description=_IGNORED)
    clear_env: list[Text] = Field(
        default=[],
        description="Environment variables that the app-server does not get; never CODEX_HOME "
        "and HOME.",
        json_schema_extra=allowed("names of variables"),
    )
    code_mode_only: bool = Field(
        default=_SERVER.is_code_mode_only,
        description="Whether the model calls tools only from programs of Codex's own code mode.",
    )
    request_timeout_ms: Whole = Field(
        default=round(_SERVER.request_timeout_seconds * 1000),
        ge=100,
        le=_MAX_TIMEOUT_MS,
        description="Time limit of requests to the app-server; turns have that of their agent.",
    )
    turn_completion_idle_timeout_ms: Whole = Field(
        default=60_000, ge=0, le=_MAX_TIMEOUT_MS, description=_IGNORED
    )
    post_tool_raw_assistant_completion_idle_timeout_ms: Whole = Field(
        default=300_000, ge=0, le=_MAX_TIMEOUT_MS, description=_IGNORED
    )
    mode: CodexMode | None = Field(
        default=None,
        description="`yolo`: no approvals and no sandbox; `guardian`: Codex reviews what leaves "
        "the sandbox of the workspace. By default `yolo`.",
    )
    approval_policy: ApprovalPolicy | None = Field(
        default=None, description="When Codex asks for approvals; by default as the mode says."
    )
    sandbox: CodexSandbox | None = Field(
        default=None, description="Where native commands may write; by default as the mode says."
    )
    approvals_reviewer: Literal["user", "auto_review", "guardian_subagent"] | None = Field(
        default=None, description="Who reviews requests first; by default as the mode says."
    )
    service_tier: Literal["priority", "flex", "fast"] | None = Field(
        default=None, description="The service tier of OpenAI; `fast` means `priority`."
    )
    default_workspace_dir: PathText = Field(
        default="",
        description="The working directory of threads; empty for the workspace of the agent.",
    )
    home_scope: Literal["agent", "user"] = Field(
        default="agent",
        description="Whether each agent has a CODEX_HOME of its own, or uses yours.",
    )
    experimental: dict[str, Any] = Field(default={}, description=_IGNORED)
    remote_workspace_root: PathText = Field(default="", description=_IGNORED)
    loop_detection_pre_tool_use_relay: bool = Field(default=True, description=_IGNORED)
    network_proxy: dict[str, Any] = Field(default={}, description=_IGNORED)


class HookRelaySection(Section):
    """`plugins.entries.codex.config.nativeHookRelay`."""

    is_enabled: bool = Field(
        default=_RELAY.is_enabled,
        description="Whether hooks of plugins see the native tools of Codex. Rules for tools hold "
        "for them in any case.",
    )
    events: list[RelayEvent] | None = Field(
        default=None,
        description="The events; null for all, but `permission_request` only if Codex never asks "
        "for approvals.",
    )
    hook_timeout_sec: Number = Field(
        default=_RELAY.hook_timeout_seconds,
        ge=1,
        le=600,
        description="The upper limit of `gatewayTimeoutMs`; late hooks are answered that long.",
    )
    gateway_timeout_ms: Whole = Field(
        default=round(_RELAY.answer_timeout_seconds * 1000),
        ge=100,
        le=600_000,
        description="How long Nacre may be silent before a hook counts as unanswered; at most 90% "
        "of `hookTimeoutSec`.",
    )
    ttl_ms: Whole = Field(
        default=round(_RELAY.ttl_seconds * 1000),
        ge=60_000,
        le=_MAX_TIMEOUT_MS,
        description="How long the relay of a turn is valid without a sign of life.",
    )


class CodexSection(Section):
    """`plugins.entries.codex.config`."""

    unused_fields: ClassVar[Mapping[str, str]] = {
        "computer_use": "Nacre does not install plugins of Codex",
        "session_catalog": "Nacre has its own sessions",
        "supervision": "Nacre does not supervise other sessions of Codex",
        "cyber_failover": "a failed turn is not repeated with another model",
    }

    discovery: DiscoverySection = Field(
        default_factory=DiscoverySection, description="The models of Codex."
    )
    codex_dynamic_tools_loading: ToolsLoading = Field(
        default="searchable",
        description="Whether Codex's tool search finds Nacre's tools, or the model sees them all.",
    )
    codex_dynamic_tools_exclude: list[Text] = Field(
        default=[], description="Tools that Codex does not get."
    )
    codex_plugins: CodexPluginsSection = Field(
        default_factory=CodexPluginsSection, description="Native plugins of Codex."
    )
    computer_use: dict[str, Any] = Field(default={}, description=_IGNORED)
    app_server: AppServerSection = Field(
        default_factory=AppServerSection, description="The process that runs the turns."
    )
    native_hook_relay: HookRelaySection = Field(
        default_factory=HookRelaySection, description="Hooks around the native tools of Codex."
    )
    session_catalog: dict[str, Any] = Field(default={}, description=_IGNORED)
    supervision: dict[str, Any] = Field(default={}, description=_IGNORED)
    cyber_failover: dict[str, Any] = Field(default={}, description=_IGNORED)


class CodexEntrySection(Section):
    """`plugins.entries.codex`, which is built in."""

    enabled: bool | None = Field(
        default=None,
        description="Whether turns with models of OpenAI run in Codex; if false, none may.",
    )
    config: CodexSection = Field(
        default_factory=CodexSection, description="Settings of the Codex harness."
    )
