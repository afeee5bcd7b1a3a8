"""The model of the whole config document: its sections, and the keys, defaults and limits in them.

It has the shape of the file. The modules beside it resolve its parts for the rest of the program:
references, files, and the settings of an agent over the shared ones.
"""

from typing import Annotated, Any, ClassVar, Final, Literal, cast

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from nacre.config.agents import DEFAULT_AGENT_ID, AgentConfig, SandboxMode
from nacre.config.code_mode import LANGUAGES, Language, NumberLimit, Protection
from nacre.config.code_mode import LIMITS as CODE_MODE_LIMITS
from nacre.config.gateway import AuthMode, GatewayConfig, TokenScope
from nacre.config.mcp_entry import McpServerConfig
from nacre.config.models import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_MODEL,
    ProviderApi,
    ProviderConfig,
)
from nacre.config.plugins import PluginsConfig
from nacre.config.sections import (
    HIDDEN,
    TAKES_NULL,
    WHOLE,
    CompactionConfig,
    ExecToolConfig,
    FsToolsConfig,
    Number,
    PathText,
    QueueConfig,
    Reference,
    SecretText,
    Section,
    Text,
    TextMap,
    WebFetchConfig,
    Whole,
    allowed,
)
from nacre.config.tool_search import LIMITS as TOOL_SEARCH_LIMITS
from nacre.config.tool_search import ToolSearchMode
from nacre.config.tools import problem_with_pattern

_MAX_TOKENS: Final = 1_000_000_000
_MAX_CONTEXT_TOKENS: Final = 100_000_000
_DAY_SECONDS: Final = 86_400

# Their fields have the defaults.
_AGENT: Final = AgentConfig.with_defaults(DEFAULT_AGENT_ID)
_GATEWAY: Final = GatewayConfig()
_PLUGINS: Final = PluginsConfig()
_PROVIDER: Final = ProviderConfig(name="", api="demo")
_SERVER: Final = McpServerConfig(name="", transport="stdio")

_PATTERNS: Final = "names, ids or owners of tools; `*` and `?` are wildcards"
_PLUGIN_IDS: Final = "ids of plugins; `*` stands for any text"


# Providers and models


class ModelSection(Section):
    """An entry of `models.providers.<name>.models`."""

    model_config = ConfigDict(json_schema_extra={"required": ["id"]})

    id: Text = Field(
        default="",
        description="The id of the model at the provider.",
        json_schema_extra=allowed("the id by which the provider knows the model"),
    )
    name: Text = Field(default="", description="Name for people; by default its id.")
    context_window: Whole = Field(
        default=DEFAULT_CONTEXT_TOKENS,
        ge=1_000,
        le=_MAX_CONTEXT_TOKENS,
        description="Maximum input of the model, in tokens.",
    )
    max_tokens: Annotated[int, Field(ge=1, le=_MAX_CONTEXT_TOKENS), WHOLE] | None = Field(
        default=None,
        description="Maximum output of the model, in tokens; null for the provider's default.",
    )
    input: list[Literal["text", "image"]] = Field(
        default=["text", "image"],
        description="What the model takes. Without `image`, images of tools are left out.",
    )


class ProviderSection(Section):
    """An entry of `models.providers`."""

    api: ProviderApi | None = Field(
        default=None,
        description="The API to use; by default the one that the name or `baseUrl` implies.",
    )
    base_url: Reference = Field(
        default="",
        description="Address of the API; empty for the provider's own.",
        json_schema_extra=allowed("an http:// or https:// URL", **{HIDDEN: True}),
    )
    api_key: SecretText = Field(default="", description="API key.")
    api_key_file: PathText = Field(default="", description="A file that contains only the key.")
    headers: TextMap = Field(default={}, description="Headers sent with each request.")
    timeout_seconds: Number = Field(
        default=_PROVIDER.timeout_seconds,
        ge=1,
        le=_DAY_SECONDS,
        description="Time limit of one request.",
    )
    max_retries: Whole = Field(
        default=_PROVIDER.max_retries,
        ge=0,
        le=20,
        description="Number of retries after 429, 5xx and lost connections.",
    )
    models: list[ModelSection] = Field(
        default=[],
        description="The models that you can use; if empty, any model.",
        json_schema_extra=allowed("a list of models; without it, any may be used"),
    )


class ModelsSection(Section):
    """`models`."""

    providers: dict[str, ProviderSection] = Field(
        default={}, description="Providers of models, by name."
    )


# Tools


class ContractSection(Section):
    """Settings with a published contract: null is not allowed, and numbers are clamped."""

    model_config = ConfigDict(json_schema_extra={TAKES_NULL: False})
    null_is_missing: ClassVar[bool] = False


def _limit_field(limit: NumberLimit) -> Any:
    return Field(
        default=limit.default,
        description=limit.description,
        json_schema_extra={"minimum": limit.least, "maximum": limit.most},
    )


class CodeModeSection(ContractSection):
    """`tools.codeMode`."""

    enabled: bool = Field(default=False, description="Whether the agent has code mode.")
    runtime: Literal["quickjs-wasi"] = Field(default="quickjs-wasi", description="The engine.")
    mode: Literal["only"] = Field(
        default="only", description="The model sees only `exec` and `wait`."
    )
    languages: list[Language] = Field(
        default=list(LANGUAGES),
        min_length=1,
        description="The languages of programs.",
        json_schema_extra=allowed('a list of "javascript", "typescript" or both'),
    )
    timeout_ms: Whole = _limit_field(CODE_MODE_LIMITS["timeout_ms"])
    memory_limit_bytes: Whole = _limit_field(CODE_MODE_LIMITS["memory_limit_bytes"])
    max_output_bytes: Whole = _limit_field(CODE_MODE_LIMITS["max_output_bytes"])
    max_snapshot_bytes: Whole = _limit_field(CODE_MODE_LIMITS["max_snapshot_bytes"])
    max_pending_tool_calls: Whole = _limit_field(CODE_MODE_LIMITS["max_pending_tool_calls"])
    snapshot_ttl_seconds: Whole = _limit_field(CODE_MODE_LIMITS["snapshot_ttl_seconds"])
    search_default_limit: Whole = _limit_field(CODE_MODE_LIMITS["search_default_limit"])
    max_search_limit: Whole = _limit_field(CODE_MODE_LIMITS["max_search_limit"])
    name_index_bytes: Whole = _limit_field(CODE_MODE_LIMITS["name_index_bytes"])


class ToolSearchSection(ContractSection):
    """`tools.toolSearch`."""

    enabled: bool = Field(
        default=True, description="False turns it off and keeps the other settings."
    )
    mode: ToolSearchMode = Field(
        default="code", description="One tool for programs, or three tools."
    )
    code_timeout_ms: Whole = _limit_field(TOOL_SEARCH_LIMITS["code_timeout_ms"])
    search_default_limit: Whole = _limit_field(TOOL_SEARCH_LIMITS["search_default_limit"])
    max_search_limit: Whole = _limit_field(TOOL_SEARCH_LIMITS["max_search_limit"])


def _object_from_switch(value: object) -> object:
    return {"enabled": value} if isinstance(value, bool) else value


def _object_that_turns_on(value: object) -> object:
    if isinstance(value, dict):
        return {"enabled": True, **cast("dict[str, object]", value)}
    return _object_from_switch(value)


def _check_pattern(text: str) -> str:
    problem = problem_with_pattern(text)
    if problem:
        raise PydanticCustomError("problem", "{problem}", {"problem": problem})
    return text


ToolPattern = Annotated[
    str,
    Field(json_schema_extra=allowed(_PATTERNS, pattern=r"^\S+$")),
    AfterValidator(_check_pattern),
]


class RulesSection(Section):
    """Rules for tools."""

    allow: list[ToolPattern] | None = Field(
        default=None, description="Allow only these tools; null for all."
    )
    deny: list[ToolPattern] = Field(default=[], description="Never allow these tools.")
    also_allow: list[ToolPattern] = Field(
        default=[], description="Allow these in addition to `allow`."
    )


class SandboxSection(Section):
    """`tools.sandbox`."""

    tools: RulesSection = Field(
        default_factory=RulesSection,
        description="Rules for sandboxed sessions, in addition to the others.",
    )


class WebSection(Section):
    """`tools.web`."""

    fetch: WebFetchConfig = Field(
        default_factory=WebFetchConfig, description="The tool that reads web pages."
    )


class ToolsSection(RulesSection):
    """`tools`, of all agents or of one."""

    sandbox: SandboxSection = Field(
        default_factory=SandboxSection, description="Settings for sandboxed sessions."
    )
    code_mode: Annotated[
        CodeModeSection,
        BeforeValidator(_object_from_switch, json_schema_input_type=bool | CodeModeSection),
    ] = Field(
        default_factory=CodeModeSection,
        description="Code mode: the model writes programs that call the tools.",
        json_schema_extra={"default": False},
    )
    tool_search: Annotated[
        ToolSearchSection,
        BeforeValidator(_object_that_turns_on, json_schema_input_type=bool | ToolSearchSection),
    ] = Field(
        default_factory=lambda: ToolSearchSection(enabled=False),
        description="Tool Search: the model looks its tools up. Code mode takes precedence.",
        json_schema_extra={"default": False},
    )
    fs: FsToolsConfig = Field(
        default_factory=FsToolsConfig, description="Tools for files of the workspace."
    )
    exec: ExecToolConfig = Field(
        default_factory=ExecToolConfig, description="The tool that runs commands."
    )
    web: WebSection = Field(default_factory=WebSection, description="Tools for the web.")


# Agents


class ModelChoice(Section):
    """A model, and the models to try if it fails."""

    is_object: ClassVar[bool] = True

    primary: Text = Field(default=DEFAULT_MODEL, description="The model to use.")
    fallbacks: list[Text] = Field(
        default=[], description="Models to try, in this order, if the one before fails."
    )


class ModelName(ModelChoice):
    """A model that is written as text."""

    is_object: ClassVar[bool] = False


def _choice_from_text(value: object) -> object:
    return ModelName.model_construct(primary=value) if isinstance(value, str) else value


class AgentSandboxSection(Section):
    """`agents.defaults.sandbox`."""

    mode: SandboxMode = Field(
        default=_AGENT.sandbox_mode,
        description="The sessions to which `tools.sandbox.tools` applies: none, all but the one "
        "with the key `main`, or all. It changes nothing else.",
    )


class AgentDefaults(Section):
    """`agents.defaults`: the settings that an agent may have, too."""

    model: Annotated[
        ModelChoice,
        BeforeValidator(_choice_from_text, json_schema_input_type=str | ModelChoice),
    ] = Field(
        default_factory=ModelChoice,
        description="The model to use.",
        json_schema_extra=allowed(
            '"<provider>/<model>", or an object with `primary` and `fallbacks`',
            default=DEFAULT_MODEL,
        ),
    )
    workspace: PathText = Field(
        default="", description="The directory that the file tools are confined to."
    )
    instructions: str = Field(
        default=_AGENT.instructions, description="System prompt of the agent."
    )
    instructions_file: PathText = Field(
        default="",
        description="A file with the instructions, at most 64 KiB; replaces `instructions`.",
    )
    max_steps: Whole = Field(
        default=_AGENT.max_steps,
        ge=1,
        le=10_000,
        description="Maximum number of model calls in one run.",
    )
    max_tokens: Whole = Field(
        default=_AGENT.max_tokens,
        ge=1_000,
        le=_MAX_TOKENS,
        description="Maximum number of tokens in one run, input and output together.",
    )
    timeout_seconds: Number = Field(
        default=_AGENT.timeout_seconds, ge=1, le=604_800, description="Time limit of one run."
    )
    temperature: Number | None = Field(
        default=None, ge=0, le=2, description="Temperature; null for the provider's default."
    )
    max_output_tokens: Annotated[int, Field(ge=1, le=_MAX_TOKENS), WHOLE] | None = Field(
        default=None,
        description="Maximum output of one model call; null for the provider's default.",
    )
    parallel_tool_calls: bool = Field(
        default=_AGENT.settings.is_parallel,
        description="Whether the model can make several calls at once, which then run "
        "concurrently.",
    )
    compaction: CompactionConfig = Field(
        default_factory=CompactionConfig, description="How long sessions are summarised."
    )
    sandbox: AgentSandboxSection = Field(
        default_factory=AgentSandboxSection, description="Which sessions are sandboxed."
    )


class NamedAgent(AgentDefaults):
    """A member of `agents`, by the id of the agent."""

    name: Text = Field(default="", description="Name for people; by default its id.")
    default: bool = Field(
        default=False,
        description="Whether this agent is used when a request names none; otherwise the first "
        "one is.",
    )
    tools: ToolsSection = Field(
        default_factory=ToolsSection, description="Settings of tools, over those of `tools`."
    )


AGENT_IDS: Final = "1 to 64 letters, digits, dots, hyphens and underscores"


class ListedAgent(NamedAgent):
    """An entry of `agents.list`."""

    model_config = ConfigDict(json_schema_extra={"required": ["id"]})

    id: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Unique, ignoring case.",
        json_schema_extra=allowed(AGENT_IDS),
    )


def _list_from_null(value: object) -> object:
    return [] if value is None else value


class AgentsSection(Section):
    """`agents`: the defaults, a list of agents, and agents by name."""

    model_config = ConfigDict(extra="allow")
    null_is_missing: ClassVar[bool] = False
    __pydantic_extra__: dict[str, NamedAgent]  # pyright: ignore[reportIncompatibleVariableOverride]

    defaults: AgentDefaults = Field(
        default_factory=AgentDefaults, description="Settings of all agents."
    )
    listed: Annotated[list[ListedAgent], BeforeValidator(_list_from_null)] = Field(
        default=[],
        alias="list",
        description="The agents; if empty, there is one, `main`.",
        json_schema_extra=allowed("a list of agents"),
    )

    @property
    def named(self) -> dict[str, NamedAgent]:
        """The agents that are members of the section."""
        return self.__pydantic_extra__


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
    entries: dict[str, PluginEntrySection] = Field(
        default={}, description="Settings of plugins, by id."
    )


class MessagesSection(Section):
    """`messages`."""

    queue: QueueConfig = Field(default_factory=QueueConfig, description="The queue of a session.")


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


class IsolationSection(Section):
    """`sandbox`."""

    require: list[Protection] | None = Field(
        default=None,
        description="Protections without which no program runs; null for seccomp and landlock, "
        "each where the kernel has it. Needs a restart.",
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
