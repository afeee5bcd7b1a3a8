"""The base class and field types of config sections, and the sections without further checks."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

ALLOWED: Final = "x-allowed"
"""In a schema: the values that are allowed, in words. Errors and descriptions show it."""
HIDDEN: Final = "x-hidden"
"""In a schema: the value may contain a secret, so errors do not show it."""
TAKES_NULL: Final = "x-takes-null"
"""In a schema: whether members of the object may be null."""


def allowed(text: str, **extra: Any) -> dict[str, Any]:
    """For `json_schema_extra`: the allowed values in words."""
    return {ALLOWED: text, **extra}


def _wire_key(name: str) -> str:
    return to_camel(name.removeprefix("is_"))


class Section(BaseModel):
    """An object of the document. Its keys are the names of its fields in camelCase.

    A null member counts as missing. Use `model_fields_set` to tell settings
    of the document from defaults.
    """

    model_config = ConfigDict(
        alias_generator=_wire_key,
        # Only the whole document needs to be built.
        defer_build=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
        protected_namespaces=(),
        strict=True,
    )
    null_is_missing: ClassVar[bool] = True

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: object) -> object:
        if value is None:
            return {}
        if not cls.null_is_missing or not isinstance(value, dict):
            return value
        known = {setting.alias for setting in cls.model_fields.values()}
        members = cast("dict[object, object]", value)
        # An unknown key is reported even if its value is null.
        return {key: it for key, it in members.items() if it is not None or key not in known}

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Empty, because a value may be a secret."""
        return []


def drop_nulls(value: object) -> object:
    """Remove null members. Other values stay unchanged."""
    if not isinstance(value, dict):
        return value
    members = cast("dict[object, object]", value)
    return {key: member for key, member in members.items() if member is not None}


def _whole_from_float(value: object) -> object:
    # Some programs write 500 as 500.0.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text_from_number(value: object) -> object:
    # As in VS Code, for variables and headers.
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if is_number else value


WHOLE: Final = BeforeValidator(_whole_from_float)
Whole = Annotated[int, WHOLE]
Number = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Reference = Annotated[str, Field(json_schema_extra=allowed("text", **{HIDDEN: True}))]
"""Text that may contain references such as `${NAME}`, or a secret."""
SecretText = Annotated[
    str,
    Field(
        json_schema_extra=allowed(
            "text, ${NAME} for a variable", **{HIDDEN: True, "writeOnly": True}
        )
    ),
]
PathText = Annotated[str, Field(json_schema_extra=allowed("a path", **{HIDDEN: True}))]
TextMap = Annotated[
    dict[
        str,
        Annotated[
            str,
            BeforeValidator(_text_from_number, json_schema_input_type=str | float),
            Field(json_schema_extra=allowed("text", **{HIDDEN: True, "writeOnly": True})),
        ],
    ],
    BeforeValidator(drop_nulls),
    Field(json_schema_extra=allowed("an object of texts")),
]

QueueMode = Literal["steer", "followup", "collect"]
QueueDrop = Literal["old", "new", "summarize"]
FsAsk = Literal["writes", "always", "never"]
Ask = Literal["always", "never"]

_MAX_FILE_BYTES: Final = 67_108_864
_HOST: Final = r"^(\*|(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\[[0-9A-Fa-f:.]+\])$"


VisibleReplies = Literal["automatic", "message_tool"]
"""What users see: the answers of an agent, or only what it sends with its `message` tool."""


class QueueConfig(Section):
    """`messages.queue`: one queue per session."""

    mode: QueueMode = Field(
        default="steer",
        description="How to handle a message that arrives during a turn: add it to the turn "
        "(`steer`), start a turn of its own afterwards (`followup`), or start one turn for all "
        "messages that arrived (`collect`).",
    )
    debounce_ms: Whole = Field(
        default=500, ge=0, le=60_000, description="How long `collect` waits for more messages."
    )
    cap: Whole = Field(
        default=20, ge=1, le=1_000, description="Maximum number of waiting messages."
    )
    drop: QueueDrop = Field(
        default="old",
        description="Which message is dropped from a full queue: the oldest, or the new one; "
        "`summarize` drops the oldest and leaves a note of it.",
    )


class CompactionConfig(Section):
    """`agents.defaults.compaction`: when a long session is summarised."""

    is_enabled: bool = Field(default=True, description="Whether long sessions are summarised.")
    threshold_share: Number = Field(
        default=0.8,
        ge=0.1,
        le=0.95,
        description="The share of the context window at which a session is summarised.",
    )
    keep_turns: Whole = Field(
        default=4, ge=0, le=1_000, description="Number of recent turns that are kept unchanged."
    )


class FsToolsConfig(Section):
    """`tools.fs`: the tools that read and write files of the workspace."""

    is_enabled: bool = Field(default=True, description="Whether the agent has these tools.")
    ask: FsAsk = Field(default="writes", description="Which of these calls need an approval.")
    max_read_bytes: Whole = Field(
        default=262_144,
        ge=1_024,
        le=_MAX_FILE_BYTES,
        description="Maximum size of a file that is read.",
    )


class ExecToolConfig(Section):
    """`tools.exec`: the tool that runs commands on this machine."""

    is_enabled: bool = Field(default=False, description="Whether the agent has this tool.")
    ask: Ask = Field(default="always", description="Whether each command needs an approval.")
    timeout_seconds: Number = Field(
        default=120.0, ge=1, le=86_400, description="Time limit of one command."
    )
    max_output_bytes: Whole = Field(
        default=262_144, ge=1_024, le=_MAX_FILE_BYTES, description="Maximum output of one command."
    )


class WebFetchConfig(Section):
    """`tools.web.fetch`: the tool that reads web pages."""

    is_enabled: bool = Field(default=False, description="Whether the agent has this tool.")
    allow: tuple[
        Annotated[
            str,
            Field(
                pattern=_HOST,
                json_schema_extra=allowed(
                    'hosts such as "example.org", "*.example.org" for all below one, "*" for all'
                ),
            ),
            AfterValidator(str.lower),
        ],
        ...,
    ] = Field(
        default=(), strict=False, description="The hosts whose pages can be read; if empty, none."
    )
    max_bytes: Whole = Field(
        default=2_097_152, ge=1_024, le=_MAX_FILE_BYTES, description="Maximum size of one page."
    )
    timeout_seconds: Number = Field(
        default=30.0, ge=1, le=600, description="Time limit of one page."
    )
    ask: Ask = Field(default="never", description="Whether each page needs an approval.")


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreToolsConfig:
    """The core tools of one agent."""

    fs: FsToolsConfig = field(default_factory=FsToolsConfig)
    exec: ExecToolConfig = field(default_factory=ExecToolConfig)
    web_fetch: WebFetchConfig = field(default_factory=WebFetchConfig)
