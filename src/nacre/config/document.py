"""The model of the whole config document: its sections, and the keys, defaults and limits in them.

It has the shape of the file. The modules beside it resolve its parts for the rest of the program:
references, files, and the settings of an agent over the shared ones.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, cast

from pydantic import ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from nacre.config.agent_sections import (
    AgentsSection,
    ModelsSection,
)
from nacre.config.code_mode import MAX_SUSPENDED_CELLS, MAX_SUSPENDED_LIMIT, Protection
from nacre.config.codex_sections import CodexEntrySection
from nacre.config.gateway import AuthMode, GatewayConfig, TokenScope
from nacre.config.mcp_entry import McpServerConfig
from nacre.config.plugins import PluginsConfig
from nacre.config.sections import (
    HIDDEN,
    WHOLE,
    Number,
    PathText,
    QueueConfig,
    Reference,
    SecretText,
    Section,
    Text,
    TextMap,
    VisibleReplies,
    Whole,
    allowed,
)
from nacre.config.tool_sections import (
    ToolsSection,
)

_DAY_SECONDS: Final = 86_400

# Their fields have the defaults.
_GATEWAY: Final = GatewayConfig()
_PLUGINS: Final = PluginsConfig()
_SERVER: Final = McpServerConfig(name="", transport="stdio")

_IGNORED: Final = "Accepted for files of OpenClaw; it has no effect."
_PLUGIN_IDS: Final = "ids of plugins; `*` stands for any text"


# MCP servers


def _switch_or_object(value: object) -> bool | dict[str, object]:
    if isinstance(value, (bool, dict)):
        return cast("bool | dict[str, object]", value)
    raise PydanticCustomError("not_allowed", "a switch or an object")


def _switch_or_texts(value: object) -> bool | list[str]:
    is_texts = isinstance(value, list) and all(
        isinstance(item, str) for item in cast("list[object]", value)
    )
    if isinstance(value, bool) or is_texts:
        return cast("bool | list[str]", value)
    raise PydanticCustomError("not_allowed", "a switch or a list")


Login = Annotated[
    bool | dict[str, object],
    PlainValidator(_switch_or_object, json_schema_input_type=bool | dict[str, Any]),
    Field(json_schema_extra={HIDDEN: True}),
]
HiddenText = Annotated[str, Field(json_schema_extra=allowed("text", **{HIDDEN: True}))]


class McpServerSection(Section):
    """An entry of `mcp.servers`, with our keys and those of other clients.

    Unknown keys are allowed: other clients may use them.
    """

    model_config = ConfigDict(extra="allow")

    type: HiddenText = Field(
        default="",
        description="The transport: stdio, http or sse; by default as the entry implies.",
    )
    transport: HiddenText = Field(default="", description="Another key for `type`.")
    command: HiddenText = Field(default="", description="The program of a local server.")
    args: list[HiddenText] = Field(
        default=[], description="Its arguments.", json_schema_extra={HIDDEN: True}
    )
    env: TextMap = Field(default={}, description="Its environment variables.")
    env_file: HiddenText = Field(default="", description="A file with environment variables.")
    cwd: HiddenText = Field(default="", description="Its working directory.")
    url: HiddenText = Field(default="", description="Address of a remote server.")
    server_url: HiddenText = Field(default="", description="Another key for `url`.")
    headers: TextMap = Field(default={}, description="Headers sent with each request.")
    oauth: Login = Field(
        default=False, description="Whether you may be asked to log in to the server (OAuth)."
    )
    auth: Login = Field(default=False, description="Another key for `oauth`.")
    timeout_seconds: Number = Field(
        default=_SERVER.timeout_seconds,
        ge=0.1,
        le=_DAY_SECONDS,
        description="Time limit of one request.",
    )
    startup_seconds: Number = Field(
        default=_SERVER.startup_seconds,
        ge=0.1,
        le=_DAY_SECONDS,
        description="Time limit of the start.",
    )
    idle_seconds: Number = Field(
        default=_SERVER.idle_seconds,
        ge=0.1,
        le=_DAY_SECONDS,
        description="How long a connection that is not used stays open.",
    )
    max_result_bytes: Number = Field(
        default=_SERVER.max_result_bytes,
        ge=1_024,
        le=67_108_864,
        description="Maximum size of a part of a result.",
    )
    allow: list[HiddenText] | None = Field(
        default=None,
        description="Patterns of the tools that can be used; null for all.",
        json_schema_extra={HIDDEN: True},
    )
    enabled_tools: list[HiddenText] | None = Field(
        default=None, description="Another key for `allow`.", json_schema_extra={HIDDEN: True}
    )
    deny: list[HiddenText] | None = Field(
        default=None,
        description="Patterns of the tools that cannot be used.",
        json_schema_extra={HIDDEN: True},
    )
    disabled_tools: list[HiddenText] | None = Field(
        default=None, description="Another key for `deny`.", json_schema_extra={HIDDEN: True}
    )
    require_approval: Annotated[
        bool | list[str],
        PlainValidator(_switch_or_texts, json_schema_input_type=bool | list[str]),
        Field(json_schema_extra={HIDDEN: True}),
    ] = Field(
        default=False, description="Patterns of the tools that need an approval; true for all."
    )
    disabled: bool = Field(
        default=False,
        description="Whether the server is not used.",
        json_schema_extra={HIDDEN: True},
    )
    enabled: bool = Field(
        default=True,
        description="False is another way to disable it.",
        json_schema_extra={HIDDEN: True},
    )

    @property
    def unknown_keys(self) -> list[str]:
        return list(self.__pydantic_extra__ or {})


class McpSection(Section):
    """`mcp`."""

    servers: dict[str, McpServerSection] = Field(
        default={},
        description="MCP servers by name.",
        json_schema_extra=allowed("an object of MCP servers by name"),
    )


# The rest


class LoadSection(Section):
    """`plugins.load`."""

    paths: list[PathText] = Field(
        default=[], description="More directories of plugins, as in OpenClaw."
    )


class PluginEntrySection(Section):
    """An entry of `plugins.entries`."""

    enabled: bool = Field(default=True, description="Whether the plugin with this id is loaded.")
    config: dict[str, Any] = Field(
        default={},
        description="Settings of the plugin; references in its texts are replaced at any depth.",
        json_schema_extra=allowed("an object, as the plugin has it"),
    )


class PluginEntriesSection(Section):
    """`plugins.entries`: the built-in ones, and those of plugins by id."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, PluginEntrySection]  # pyright: ignore[reportIncompatibleVariableOverride]

    codex: CodexEntrySection = Field(
        default_factory=CodexEntrySection, description="The Codex harness."
    )

    @property
    def by_id(self) -> dict[str, PluginEntrySection]:
        """The settings of plugins."""
        return self.__pydantic_extra__


class SlotsSection(Section):
    """`plugins.slots`: which plugin does a task that only one can do."""

    context_engine: str = Field(
        default=_PLUGINS.context_engine,
        description="The id of the context engine; `legacy` and `none` for none.",
        json_schema_extra=allowed("the id of a context engine, legacy or none"),
    )


class PluginsSection(Section):
    """`plugins`."""

    enabled: bool = Field(default=_PLUGINS.is_enabled, description="Whether any plugin is loaded.")
    paths: list[PathText] = Field(default=[], description="Directories of plugins.")
    load: LoadSection = Field(
        default_factory=LoadSection, description="More directories, as in OpenClaw."
    )
    entry_points: bool = Field(
        default=_PLUGINS.uses_entry_points,
        description="Whether plugins of installed packages are loaded.",
    )
    allow: list[Annotated[Text, Field(json_schema_extra=allowed(_PLUGIN_IDS))]] = Field(
        default=list(_PLUGINS.allow), description="Load only these plugins."
    )
    deny: list[Annotated[Text, Field(json_schema_extra=allowed(_PLUGIN_IDS))]] = Field(
        default=[], description="Never load these plugins; overrides `allow`."
    )
    slots: SlotsSection = Field(
        default_factory=SlotsSection,
        description="Which plugin does a task that only one can do.",
    )
    entries: PluginEntriesSection = Field(
        default_factory=lambda: PluginEntriesSection.model_validate({}),
        description="Settings of plugins, by id.",
    )


class MessagesSection(Section):
    """`messages`."""

    unused_fields: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "ack_reaction",
            "ack_reaction_scope",
            "group_chat",
            "inbound",
            "message_prefix",
            "remove_ack_after_reply",
            "response_prefix",
            "status_reactions",
            "suppress_tool_errors",
            "tts",
        ),
        "Nacre has no channels of its own; your client decides how it shows messages",
    )

    queue: QueueConfig = Field(default_factory=QueueConfig, description="The queue of a session.")
    visible_replies: VisibleReplies = Field(
        default="automatic",
        description="What users see: the answers of the agent, or only what it sends with its "
        "`message` tool.",
    )
    ack_reaction: str = Field(default="", description=_IGNORED)
    ack_reaction_scope: str = Field(default="", description=_IGNORED)
    group_chat: dict[str, Any] = Field(default={}, description=_IGNORED)
    inbound: dict[str, Any] = Field(default={}, description=_IGNORED)
    message_prefix: str = Field(default="", description=_IGNORED)
    remove_ack_after_reply: bool = Field(default=False, description=_IGNORED)
    response_prefix: str = Field(default="", description=_IGNORED)
    status_reactions: dict[str, Any] = Field(default={}, description=_IGNORED)
    suppress_tool_errors: bool = Field(default=False, description=_IGNORED)
    tts: dict[str, Any] = Field(default={}, description=_IGNORED)


class NamedTokenSection(Section):
    """`gateway.auth.tokens.<name>`."""

    token: SecretText = Field(default="", description="The token that this client sends.")
    token_file: PathText = Field(default="", description="A file that contains only the token.")
    scopes: list[TokenScope] = Field(
        default=[], description="Required: what the token allows; `admin` allows everything."
    )


class AuthSection(Section):
    """`gateway.auth`."""

    mode: AuthMode = Field(
        default=_GATEWAY.auth_mode,
        description="`none` turns authentication off; it is refused unless the gateway listens "
        "only on this machine.",
    )
    token: SecretText = Field(default="", description="The token that clients send.")
    token_file: PathText = Field(default="", description="A file that contains only the token.")
    tokens: dict[str, NamedTokenSection] = Field(
        default={}, description="Further tokens with limited scopes, by name."
    )


class GatewaySection(Section):
    """`gateway`."""

    host: str = Field(
        default=_GATEWAY.host,
        pattern="^[A-Za-z0-9._:%-]+$",
        description="Address to listen on. Needs a restart.",
        json_schema_extra=allowed("an address or a host name"),
    )
    port: Whole = Field(
        default=_GATEWAY.port,
        ge=0,
        le=65_535,
        description="Port to listen on; 0 for any free port. Needs a restart.",
    )
    auth: AuthSection = Field(default_factory=AuthSection, description="Who may call the gateway.")
    max_body_bytes: Whole = Field(
        default=_GATEWAY.max_body_bytes,
        ge=1_024,
        le=1_073_741_824,
        description="Maximum size of a request body.",
    )
    max_concurrent_runs: Whole = Field(
        default=_GATEWAY.max_concurrent_runs,
        ge=1,
        le=10_000,
        description="Maximum number of concurrent runs; further ones are refused.",
    )
    shutdown_seconds: Number = Field(
        default=_GATEWAY.shutdown_seconds,
        ge=0,
        le=600,
        description="How long running turns may take to finish at shutdown.",
    )
    cors_origins: list[
        Annotated[
            str,
            Field(
                pattern=r"^(\*|https?://[A-Za-z0-9.:\[\]-]+)$",
                json_schema_extra=allowed(
                    'origins such as "https://app.example.org", and "*" for all'
                ),
            ),
        ]
    ] = Field(default=[], description="Origins of web pages that may call the gateway.")
    allowed_hosts: list[
        Annotated[
            str,
            Field(
                pattern=r"^[A-Za-z0-9._:-]+$",
                json_schema_extra=allowed("host names and addresses, without a port"),
            ),
        ]
    ] = Field(
        default=[],
        description="More names under which clients reach the gateway, such as that of a proxy.",
    )


class StorageSection(Section):
    """`storage`."""

    url: Reference = Field(
        default="",
        description="The database for sessions. Needs a restart.",
        json_schema_extra=allowed(
            "sqlite:///<path> and postgresql://<user>@<host>/<database>", **{HIDDEN: True}
        ),
    )
    retention_days: Annotated[int, Field(ge=1, le=36_500), WHOLE] | None = Field(
        default=None,
        description="How many days `nacre sessions prune` keeps unused sessions; "
        "null for no limit.",
    )


class SnapshotKeysSection(Section):
    """`sandbox.snapshotKeys`; at most one of them."""

    file: Reference = Field(
        default="",
        description="A private file with the keys, created with a new key if it is missing. "
        "Needs a restart.",
        json_schema_extra=allowed("a path"),
    )
    env: str = Field(
        default="",
        description="An environment variable with the keys instead. Needs a restart.",
        json_schema_extra=allowed("the name of a variable"),
    )
    command: list[Annotated[str, Field(min_length=1)]] = Field(
        default=[],
        description="A command that writes the keys to its standard output instead. "
        "Needs a restart.",
        json_schema_extra=allowed("a list of texts: a program and its arguments"),
    )


class RaySection(Section):
    """`sandbox.ray`."""

    address: Reference = Field(
        default="auto",
        description='The Ray cluster: `host:port` of its head node, or "auto" for the one that '
        "this machine belongs to. Needs a restart.",
        json_schema_extra=allowed('<host>:<port> and "auto"'),
    )
    workers_per_node: Annotated[int, Field(ge=0, le=256), WHOLE] = Field(
        default=0,
        description="The number of workers on each node; 0 means one per CPU of the node, from two "
        "to eight. Needs a restart.",
    )


class IsolationSection(Section):
    """`sandbox`."""

    executor: Literal["local", "ray"] = Field(
        default="local",
        description="Where programs run: on this machine, or on the nodes of a Ray cluster. "
        "Needs a restart.",
    )
    ray: RaySection = Field(default_factory=RaySection, description="The Ray cluster.")
    require: list[Protection] | None = Field(
        default=None,
        description="Protections without which no program runs; null for seccomp and landlock, "
        "each where the kernel has it. Needs a restart.",
    )
    snapshot_keys: SnapshotKeysSection = Field(
        default_factory=SnapshotKeysSection, description="The keys that seal snapshots of cells."
    )
    max_suspended_cells: Annotated[int, Field(ge=1, le=MAX_SUSPENDED_LIMIT), WHOLE] = Field(
        default=MAX_SUSPENDED_CELLS,
        description="How many cells of a process may be suspended at once. Needs a restart.",
    )


class Document(Section):
    """The whole document."""

    json_schema: str = Field(
        default="",
        alias="$schema",
        description="The schema of the file, for editors; Nacre ignores it.",
        json_schema_extra=allowed("text, for editors"),
    )
    models: ModelsSection = Field(
        default_factory=ModelsSection, description="Providers and models."
    )
    agents: AgentsSection = Field(
        default_factory=lambda: AgentsSection.model_validate({}), description="The agents."
    )
    tools: ToolsSection = Field(default_factory=ToolsSection, description="Tools of all agents.")
    mcp: McpSection = Field(default_factory=McpSection, description="MCP servers.")
    mcp_servers: dict[str, McpServerSection] = Field(
        default={},
        description="MCP servers, as in the files of other clients; use one of the two keys.",
        json_schema_extra=allowed("an object of MCP servers by name"),
    )
    plugins: PluginsSection = Field(default_factory=PluginsSection, description="Plugins.")
    sandbox: IsolationSection = Field(
        default_factory=IsolationSection, description="The processes that run programs."
    )
    messages: MessagesSection = Field(
        default_factory=MessagesSection, description="Messages to agents."
    )
    gateway: GatewaySection = Field(default_factory=GatewaySection, description="The HTTP server.")
    storage: StorageSection = Field(default_factory=StorageSection, description="The database.")
