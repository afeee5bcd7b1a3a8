"""The Codex harness: the settings of `plugins.entries.codex`, and which harness runs a model."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast, get_args

from nacre.config.folders import home_folder, user_folder
from nacre.config.references import key_path, section_key
from nacre.config.setting_paths import format_value
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.config.codex_sections import AppServerSection, CodexEntrySection, CodexSection
    from nacre.config.plugins import PluginsConfig
    from nacre.config.references import Resolver

RuntimeId = Literal["auto", "codex", "openclaw"]
"""Which harness runs the turns of a model; `openclaw` is the built-in one."""
ToolsLoading = Literal["searchable", "direct"]
CodexMode = Literal["yolo", "guardian"]
ApprovalPolicy = Literal["never", "on-request", "on-failure", "untrusted"]
CodexSandbox = Literal["danger-full-access", "workspace-write", "read-only"]
ApprovalsReviewer = Literal["user", "auto_review"]
ServiceTier = Literal["priority", "flex"]
RelayEvent = Literal["pre_tool_use", "post_tool_use", "permission_request", "before_agent_finalize"]
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh"]

CODEX_PLUGIN_ID: Final = "codex"
CODEX_PATH: Final = "plugins.entries.codex"
_CONFIG_PATH: Final = f"{CODEX_PATH}.config"
_SERVER_PATH: Final = f"{_CONFIG_PATH}.appServer"
_VARIABLES: Final = ("NACRE_CODEX_APP_SERVER_", "OPENCLAW_CODEX_APP_SERVER_")
"""The beginnings of the variables that override settings; the first that is set is used."""

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class AppServerConfig:
    """How the app-server of an agent is started, and with which permissions turns run."""

    command: str = ""
    """Empty for the binary of the package `openai-codex-cli-bin`."""
    args: tuple[str, ...] = ("app-server",)
    clear_env: tuple[str, ...] = ()
    is_code_mode_only: bool = False
    request_timeout_seconds: float = 60.0
    """Of requests that control a thread; a turn has the time limit of its agent."""
    mode: CodexMode = "yolo"
    approval_policy: ApprovalPolicy = "never"
    sandbox: CodexSandbox = "danger-full-access"
    approvals_reviewer: ApprovalsReviewer = "user"
    has_own_policy: bool = False
    """Whether the mode or the approval policy is written; then hooks do not change the policy."""
    service_tier: ServiceTier | None = None
    default_workspace: Path | None = None
    uses_home_of_user: bool = False
    """Whether CODEX_HOME is the user's own instead of one per agent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HookRelayConfig:
    """How Codex's native hooks reach the hooks of plugins."""

    is_enabled: bool = True
    events: tuple[RelayEvent, ...] | None = None
    """None for the default events of the approval policy."""
    hook_timeout_seconds: float = 10.0
    answer_timeout_seconds: float = 9.0
    ttl_seconds: float = 1800.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CodexConfig:
    """The settings of the Codex harness."""

    is_enabled: bool = False
    """Whether `auto` chooses Codex for models of OpenAI."""
    refusal: str = ""
    """Why no turn may run in Codex; empty if turns may."""
    homes: Path
    """The directory with the CODEX_HOME of each agent."""
    is_discovery_enabled: bool = True
    discovery_timeout_seconds: float = 2.5
    tools_loading: ToolsLoading = "searchable"
    tools_exclude: tuple[str, ...] = ()
    has_native_plugins: bool = False
    app_server: AppServerConfig = field(default_factory=AppServerConfig)
    hook_relay: HookRelayConfig = field(default_factory=HookRelayConfig)


def resolve_codex(
    section: CodexEntrySection, plugins: PluginsConfig, resolver: Resolver
) -> CodexConfig:
    """Resolve `plugins.entries.codex`; problems and settings without effect are noted."""
    config = section.config
    _warn_of_unused(config, resolver)
    relay = config.native_hook_relay
    return CodexConfig(
        is_enabled=section.enabled is True,
        refusal=_find_refusal(section, plugins),
        homes=user_folder("state", resolver.environment) / "codex",
        is_discovery_enabled=config.discovery.is_enabled,
        discovery_timeout_seconds=config.discovery.timeout_ms / 1000,
        tools_loading=config.codex_dynamic_tools_loading,
        tools_exclude=tuple(config.codex_dynamic_tools_exclude),
        has_native_plugins=config.codex_plugins.is_enabled,
        app_server=_resolve_app_server(config.app_server, resolver),
        hook_relay=HookRelayConfig(
            is_enabled=relay.is_enabled,
            events=None if relay.events is None else tuple(dict.fromkeys(relay.events)),
            hook_timeout_seconds=relay.hook_timeout_sec,
            answer_timeout_seconds=min(
                relay.gateway_timeout_ms / 1000, 0.9 * relay.hook_timeout_sec
            ),
            ttl_seconds=relay.ttl_ms / 1000,
        ),
    )


def _find_refusal(section: CodexEntrySection, plugins: PluginsConfig) -> str:
    if section.enabled is False:
        return f"`{CODEX_PATH}.enabled` is false"
    if not plugins.is_enabled:
        return "`plugins.enabled` is false"
    return plugins.refusal(CODEX_PLUGIN_ID)


def _resolve_app_server(section: AppServerSection, resolver: Resolver) -> AppServerConfig:
    written = section.model_fields_set
    mode: CodexMode | None = _override("MODE", CodexMode, section.mode, resolver)
    is_guardian = mode == "guardian"
    policy: ApprovalPolicy | None = _override(
        "APPROVAL_POLICY", ApprovalPolicy, section.approval_policy, resolver
    )
    sandbox: CodexSandbox | None = _override("SANDBOX", CodexSandbox, section.sandbox, resolver)
    reviewer = section.approvals_reviewer
    if reviewer == "guardian_subagent":
        reviewer = "auto_review"
    tier = section.service_tier
    command, args = _find_variable("BIN", resolver), _find_variable("ARGS", resolver)
    command_path = key_path(section, "command", _SERVER_PATH)
    return AppServerConfig(
        command=command[1] if command else resolver.expand(section.command, command_path),
        args=_split_arguments(*args, resolver) if args else tuple(section.args),
        clear_env=tuple(section.clear_env),
        is_code_mode_only=section.code_mode_only,
        request_timeout_seconds=section.request_timeout_ms / 1000,
        mode=mode or "yolo",
        approval_policy=policy or ("on-request" if is_guardian else "never"),
        sandbox=sandbox or ("workspace-write" if is_guardian else "danger-full-access"),
        approvals_reviewer=reviewer or ("auto_review" if is_guardian else "user"),
        has_own_policy=bool({"mode", "approval_policy"} & written)
        or any(_find_variable(name, resolver) for name in ("MODE", "APPROVAL_POLICY")),
        service_tier="priority" if tier == "fast" else tier,
        default_workspace=resolver.path(
            section.default_workspace_dir, key_path(section, "default_workspace_dir", _SERVER_PATH)
        ),
        uses_home_of_user=section.home_scope == "user",
    )


def _find_variable(name: str, resolver: Resolver) -> tuple[str, str] | None:
    """The variable that overrides a setting, and its value."""
    for start in _VARIABLES:
        if value := resolver.environment.get(start + name):
            return start + name, value
    return None


def _override(name: str, kind: object, setting: _T, resolver: Resolver) -> _T:
    """The value of the variable, which must be one of the literals of `kind`, or the setting."""
    found = _find_variable(name, resolver)
    if found is None:
        return setting
    variable, value = found
    if value not in get_args(kind):
        allowed = ", ".join(map(format_value, get_args(kind)))
        resolver.note(ConfigError(variable, f"is {format_value(value)}; allowed: {allowed}"))
        return setting
    return cast("_T", value)


def _split_arguments(variable: str, text: str, resolver: Resolver) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        resolver.note(ConfigError(variable, f"is not a list of shell words: {error}"))
        return AppServerConfig().args


def _warn_of_unused(config: CodexSection, resolver: Resolver) -> None:
    """Name the settings that Nacre accepts for files of OpenClaw and does not use."""
    for path, section, names in (
        (_CONFIG_PATH, config, type(config).unused_fields),
        (f"{_CONFIG_PATH}.codexPlugins", config.codex_plugins, config.codex_plugins.unused_fields),
        (_SERVER_PATH, config.app_server, config.app_server.unused_fields),
    ):
        for name, reason in names.items():
            if name in section.model_fields_set:
                place = f"{path}.{section_key(section, name)}"
                resolver.warn(f"`{place}` has no effect: {reason}")
    if config.app_server.transport != "stdio":
        resolver.warn(
            f"`{_SERVER_PATH}.transport` has no effect: Nacre starts the app-server itself and "
            "talks to it over stdio"
        )


def find_codex_home(codex: CodexConfig, agent_id: str, environment: Mapping[str, str]) -> Path:
    """CODEX_HOME of an agent; it may not exist yet."""
    if codex.app_server.uses_home_of_user:
        named = environment.get("CODEX_HOME")
        return Path(named) if named else home_folder(environment) / ".codex"
    return codex.homes / agent_id.casefold()
