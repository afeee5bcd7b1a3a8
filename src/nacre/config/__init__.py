"""The configuration: one JSON5 document, validated, and resolved for the rest of the program.

Exports are imported on first use: programs in code mode need neither pydantic nor the gateway.
"""

from typing import TYPE_CHECKING

from nacre.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nacre.config.agents import AgentConfig, AgentsConfig, AgentSettings
    from nacre.config.code_mode import (
        FIELDS,
        LANGUAGES,
        LIMITS,
        CodeModeConfig,
        Language,
        NumberLimit,
        code_mode_config_from,
    )
    from nacre.config.config_file import (
        CONFIG_VARIABLE,
        ConfigFile,
        change_config_text,
        find_config_file,
        read_config_file,
        remove_config_member,
        set_config_member,
    )
    from nacre.config.fields import Fields, reject_value
    from nacre.config.folders import (
        NotPrivateError,
        check_private,
        default_cache_directory,
        home_folder,
        private_cache_directory,
        user_folder,
    )
    from nacre.config.gateway import TOKEN_VARIABLE, GatewayConfig, StorageConfig, is_loopback
    from nacre.config.json5 import parse_json5, with_member, without_member
    from nacre.config.mcp import (
        list_unused_places,
        mcp_servers_from,
        read_mcp_document,
        server_name_from,
        servers_in,
    )
    from nacre.config.mcp_entry import McpServerConfig, starts_nacre
    from nacre.config.models import (
        API_KEY_VARIABLES,
        DEFAULT_CONTEXT_TOKENS,
        DEFAULT_MODEL,
        ModelConfig,
        ModelsConfig,
        ProviderApi,
        ProviderConfig,
    )
    from nacre.config.plugins import PluginEntry, PluginsConfig
    from nacre.config.sections import (
        CompactionConfig,
        CoreToolsConfig,
        ExecToolConfig,
        FsToolsConfig,
        QueueConfig,
        QueueMode,
        WebFetchConfig,
    )
    from nacre.config.setting_paths import (
        MISSING,
        Key,
        is_object,
        keys_from,
        member_path,
        nearest_key,
        object_at,
        path_from_keys,
        unknown_key,
        value_at,
    )
    from nacre.config.system import SystemConfig, is_missing_secret, read_system, system_config_from
    from nacre.config.tool_search import ToolSearchConfig, ToolSearchMode, tool_search_config_from
    from nacre.config.tools import (
        CORE_GROUPS,
        ToolRules,
        ToolsConfig,
        fold_tool_name,
        refuse_unopened_servers,
        tools_config_from,
    )
    from nacre.config.validation import Setting, config_schema, find_setting, list_settings
    from nacre.config.watcher import ConfigChange, ConfigWatcher, changed_sections

__all__ = [
    "API_KEY_VARIABLES",
    "CONFIG_VARIABLE",
    "CORE_GROUPS",
    "DEFAULT_CONTEXT_TOKENS",
    "DEFAULT_MODEL",
    "FIELDS",
    "LANGUAGES",
    "LIMITS",
    "MISSING",
    "TOKEN_VARIABLE",
    "AgentConfig",
    "AgentSettings",
    "AgentsConfig",
    "CodeModeConfig",
    "CompactionConfig",
    "ConfigChange",
    "ConfigFile",
    "ConfigWatcher",
    "CoreToolsConfig",
    "ExecToolConfig",
    "Fields",
    "FsToolsConfig",
    "GatewayConfig",
    "Key",
    "Language",
    "McpServerConfig",
    "ModelConfig",
    "ModelsConfig",
    "NotPrivateError",
    "NumberLimit",
    "PluginEntry",
    "PluginsConfig",
    "ProviderApi",
    "ProviderConfig",
    "QueueConfig",
    "QueueMode",
    "Setting",
    "StorageConfig",
    "SystemConfig",
    "ToolRules",
    "ToolSearchConfig",
    "ToolSearchMode",
    "ToolsConfig",
    "WebFetchConfig",
    "change_config_text",
    "changed_sections",
    "check_private",
    "code_mode_config_from",
    "config_schema",
    "default_cache_directory",
    "find_config_file",
    "find_setting",
    "fold_tool_name",
    "home_folder",
    "is_loopback",
    "is_missing_secret",
    "is_object",
    "keys_from",
    "list_settings",
    "list_unused_places",
    "mcp_servers_from",
    "member_path",
    "nearest_key",
    "object_at",
    "parse_json5",
    "path_from_keys",
    "private_cache_directory",
    "read_config_file",
    "read_mcp_document",
    "read_system",
    "refuse_unopened_servers",
    "reject_value",
    "remove_config_member",
    "server_name_from",
    "servers_in",
    "set_config_member",
    "starts_nacre",
    "system_config_from",
    "tool_search_config_from",
    "tools_config_from",
    "unknown_key",
    "user_folder",
    "value_at",
    "with_member",
    "without_member",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.config.agents": (
            "AgentConfig",
            "AgentsConfig",
            "AgentSettings",
        ),
        "nacre.config.code_mode": (
            "FIELDS",
            "LANGUAGES",
            "LIMITS",
            "CodeModeConfig",
            "Language",
            "NumberLimit",
            "code_mode_config_from",
        ),
        "nacre.config.config_file": (
            "CONFIG_VARIABLE",
            "ConfigFile",
            "change_config_text",
            "find_config_file",
            "read_config_file",
            "remove_config_member",
            "set_config_member",
        ),
        "nacre.config.fields": (
            "Fields",
            "reject_value",
        ),
        "nacre.config.folders": (
            "NotPrivateError",
            "check_private",
            "default_cache_directory",
            "home_folder",
            "private_cache_directory",
            "user_folder",
        ),
        "nacre.config.gateway": (
            "TOKEN_VARIABLE",
            "GatewayConfig",
            "StorageConfig",
            "is_loopback",
        ),
        "nacre.config.json5": (
            "parse_json5",
            "with_member",
            "without_member",
        ),
        "nacre.config.mcp": (
            "list_unused_places",
            "mcp_servers_from",
            "read_mcp_document",
            "server_name_from",
            "servers_in",
        ),
        "nacre.config.mcp_entry": (
            "McpServerConfig",
            "starts_nacre",
        ),
        "nacre.config.models": (
            "API_KEY_VARIABLES",
            "DEFAULT_CONTEXT_TOKENS",
            "DEFAULT_MODEL",
            "ModelConfig",
            "ModelsConfig",
            "ProviderApi",
            "ProviderConfig",
        ),
        "nacre.config.plugins": (
            "PluginEntry",
            "PluginsConfig",
        ),
        "nacre.config.sections": (
            "CompactionConfig",
            "CoreToolsConfig",
            "ExecToolConfig",
            "FsToolsConfig",
            "QueueConfig",
            "QueueMode",
            "WebFetchConfig",
        ),
        "nacre.config.setting_paths": (
            "MISSING",
            "Key",
            "is_object",
            "keys_from",
            "member_path",
            "nearest_key",
            "object_at",
            "path_from_keys",
            "unknown_key",
            "value_at",
        ),
        "nacre.config.system": (
            "SystemConfig",
            "is_missing_secret",
            "read_system",
            "system_config_from",
        ),
        "nacre.config.tool_search": (
            "ToolSearchConfig",
            "ToolSearchMode",
            "tool_search_config_from",
        ),
        "nacre.config.tools": (
            "CORE_GROUPS",
            "ToolRules",
            "ToolsConfig",
            "fold_tool_name",
            "refuse_unopened_servers",
            "tools_config_from",
        ),
        "nacre.config.validation": (
            "Setting",
            "config_schema",
            "find_setting",
            "list_settings",
        ),
        "nacre.config.watcher": (
            "ConfigChange",
            "ConfigWatcher",
            "changed_sections",
        ),
    },
)
