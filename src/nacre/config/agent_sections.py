"""The models of `models` and `agents` in the config document."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from nacre.config.agents import DEFAULT_AGENT_ID, AgentConfig, ContextInjection, SandboxMode
from nacre.config.codex import ThinkingLevel
from nacre.config.codex_sections import ModelUseSection, RuntimeSection
from nacre.config.heartbeat import HeartbeatSection
from nacre.config.models import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_MODEL,
    ProviderApi,
    ProviderConfig,
)
from nacre.config.sections import (
    HIDDEN,
    WHOLE,
    CompactionConfig,
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
from nacre.config.tool_sections import (
    ToolsSection,
)

_MAX_TOKENS: Final = 1_000_000_000
_MAX_CONTEXT_TOKENS: Final = 100_000_000
_DAY_SECONDS: Final = 86_400

# Their fields have the defaults.
_AGENT: Final = AgentConfig.with_defaults(DEFAULT_AGENT_ID)
_PROVIDER: Final = ProviderConfig(name="", api="demo")


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
    agent_runtime: RuntimeSection = Field(
        default_factory=RuntimeSection, description="Which harness runs the turns of this model."
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
    agent_runtime: RuntimeSection = Field(
        default_factory=RuntimeSection,
        description="Which harness runs the turns of these models.",
    )


class ModelsSection(Section):
    """`models`."""

    providers: dict[str, ProviderSection] = Field(
        default={}, description="Providers of models, by name."
    )


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
    models: dict[str, ModelUseSection] = Field(
        default={},
        description="Settings of models, by `<provider>/<model>`, or `<provider>/*` for all of "
        "a provider.",
    )
    thinking_default: ThinkingLevel | None = Field(
        default=None,
        description="Reasoning effort of turns that run in Codex; null for the model's default.",
    )
    workspace: PathText = Field(
        default="", description="The directory that the file tools are confined to."
    )
    context_injection: ContextInjection = Field(
        default="always",
        description="Whether the model gets the workspace files that describe the agent.",
    )
    bootstrap_max_chars: Whole = Field(
        default=_AGENT.workspace_files.max_file_characters,
        ge=1,
        le=1_000_000,
        description="Maximum number of characters of one workspace file; longer ones are cut.",
    )
    bootstrap_total_max_chars: Whole = Field(
        default=_AGENT.workspace_files.max_total_characters,
        ge=1,
        le=1_000_000,
        description="Maximum number of characters of all workspace files together.",
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
        description="Maximum number of model calls in one run; in Codex only if you set it.",
    )
    max_tokens: Whole = Field(
        default=_AGENT.max_tokens,
        ge=1_000,
        le=_MAX_TOKENS,
        description="Maximum number of tokens in one run, input and output together; in Codex only "
        "if you set it.",
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
    heartbeat: HeartbeatSection = Field(
        default_factory=HeartbeatSection,
        description="When the agent is woken without a message. If no agent has settings of its "
        "own, those of all agents wake the default agent.",
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
