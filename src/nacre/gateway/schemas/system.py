"""What the gateway has: agents, models, tools, plugins."""

from typing import Literal

from nacre.gateway.schemas.base import Answer, OpaqueMap


class AboutResponse(Answer):
    """Where to look."""

    name: str
    version: str
    openapi: str
    api: str
    openai_api: str


class HealthResponse(Answer):
    """No details: anybody may ask."""

    status: Literal["ok", "ready", "closing", "unavailable"]


class AgentInfo(Answer):
    """An agent of the configuration."""

    id: str
    name: str
    model: str
    fallback_models: tuple[str, ...]
    is_default: bool


class AgentsResponse(Answer):
    """All agents."""

    agents: tuple[AgentInfo, ...]


class ModelInfo(Answer):
    """A model of the configuration."""

    id: str
    """`provider/model`."""
    name: str
    context_window: int | None = None
    """How many tokens it can read, and at most write: named as in the configuration."""
    max_tokens: int | None = None


class ModelsResponse(Answer):
    """The models that are listed."""

    models: tuple[ModelInfo, ...]
    open_providers: tuple[str, ...]
    """Providers that list none: any model of theirs may be asked for."""


class ToolInfo(Answer):
    """A tool that the agent may use."""

    id: str
    name: str
    label: str | None = None
    description: str
    source: str
    owner: str
    parameters: OpaqueMap
    needs_approval: str = ""
    """Why a person has to agree to every call; empty if nobody has to."""


class McpServerInfo(Answer):
    """An MCP server; its tools are listed once a session has asked for them."""

    name: str
    state: str
    tool_count: int | None = None
    version: str = ""
    problem: str = ""


class ToolsResponse(Answer):
    """The tools of an agent: its own and those of plugins, and the MCP servers beside them."""

    agent_id: str
    tools: tuple[ToolInfo, ...]
    servers: tuple[McpServerInfo, ...]


class PluginInfo(Answer):
    """A plugin that was found."""

    id: str
    state: str
    version: str = ""
    description: str = ""
    tools: tuple[str, ...]
    hooks: tuple[str, ...]
    namespaces: tuple[str, ...]
    problem: str = ""


class PluginsResponse(Answer):
    """All plugins, by id."""

    plugins: tuple[PluginInfo, ...]
