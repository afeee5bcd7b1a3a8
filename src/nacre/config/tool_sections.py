"""The model of `tools` in the config document: code mode, Tool Search, policy and core tools."""

from typing import Annotated, Any, ClassVar, Final, Literal, cast

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from nacre.config.code_mode import LANGUAGES, Language, NumberLimit
from nacre.config.code_mode import LIMITS as CODE_MODE_LIMITS
from nacre.config.sections import (
    TAKES_NULL,
    ExecToolConfig,
    FsToolsConfig,
    Section,
    WebFetchConfig,
    Whole,
    allowed,
)
from nacre.config.tools import TOOL_SEARCH_LIMITS, ToolSearchMode, problem_with_pattern

_PATTERNS: Final = "names, ids or owners of tools; `*` and `?` are wildcards"


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
    durable: bool = Field(
        default=False,
        description="Whether suspended cells are stored in the database and survive a restart. "
        "Turning it on needs a restart.",
    )


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
