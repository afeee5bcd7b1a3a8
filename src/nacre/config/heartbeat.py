"""Heartbeats: how often an agent is woken without a message, when, and who hears of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Annotated, ClassVar, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from nacre.config.references import section_key
from nacre.config.sections import Section, Text, Whole, allowed
from nacre.config.setting_paths import format_value
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from nacre.config.references import Resolver

_DURATION: Final = r"(\d+(\.\d+)?\s*(ms|s|m|h|d)?\s*)+"
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATIONS: Final = 'durations such as "30m", "1h30m" and "0m"; a number without a unit is minutes'
_CLOCK: Final = r"^([01]\d|2[0-3]):[0-5]\d$|^24:00$"
_CLOCKS: Final = 'times such as "08:30", up to "24:00"'
_LOCAL_ZONES: Final = ("", "user", "local")
_IGNORED: Final = "Accepted for files of OpenClaw; it has no effect."
_NO_CHANNELS: Final = "a heartbeat notifies the chat of its session"
_MIN_EVERY_SECONDS: Final = 10.0
_MAX_TIMEOUT_SECONDS: Final = 600.0
_MINUTES_PER_DAY: Final = 24 * 60


def parse_duration(text: str) -> float | None:
    """The seconds of a duration such as "1h30m"; None if it is none."""
    if re.fullmatch(_DURATION, text.strip()) is None:
        return None
    pieces = _PIECE.findall(text)
    return sum(float(number) * _UNIT_SECONDS[unit or "m"] for number, unit in pieces)


class ActiveHoursSection(Section):
    """`agents.defaults.heartbeat.activeHours`."""

    start: Annotated[str, Field(pattern=_CLOCK, json_schema_extra=allowed(_CLOCKS))] = Field(
        default="00:00", description="When heartbeats start on a day."
    )
    end: Annotated[str, Field(pattern=_CLOCK, json_schema_extra=allowed(_CLOCKS))] = Field(
        default="24:00",
        description="When they end; earlier than `start` means on the next day.",
    )
    timezone: str = Field(
        default="",
        description="The time zone; empty, `user` and `local` stand for that of this machine.",
        json_schema_extra=allowed('names such as "Europe/Berlin", "user" and "local"'),
    )


class HeartbeatSection(Section):
    """`agents.defaults.heartbeat`."""

    unused_fields: ClassVar[Mapping[str, str]] = {
        "to": _NO_CHANNELS,
        "account_id": _NO_CHANNELS,
        "direct_policy": _NO_CHANNELS,
        "include_reasoning": "reasoning is never sent to a chat",
        "include_system_prompt_section": "the prompts of ordinary turns do not mention heartbeats",
        "suppress_tool_error_warnings": "errors of tools are never sent to a chat",
    }

    every: Annotated[
        str, Field(pattern=f"^{_DURATION}$", json_schema_extra=allowed(_DURATIONS))
    ] = Field(default="30m", description="How often the agent is woken; `0m` for never.")
    active_hours: ActiveHoursSection = Field(
        default_factory=ActiveHoursSection, description="When the agent may be woken."
    )
    model: str = Field(
        default="", description="`provider/model` for heartbeats; empty for the agent's model."
    )
    session: Text = Field(default="main", description="The key of the session that is woken.")
    target: Text = Field(
        default="none",
        description="Who gets notifications: `last` for the chat of the session, `none` for "
        "nobody. Any other channel counts as `last`.",
    )
    prompt: str = Field(default="", description="The message of a heartbeat; empty for Nacre's.")
    ack_max_chars: Whole = Field(
        default=300,
        ge=0,
        le=20_000,
        description="An answer with HEARTBEAT_OK and at most this many other characters is quiet.",
    )
    light_context: bool = Field(
        default=False, description="Whether the model gets no workspace files."
    )
    isolated_session: bool = Field(
        default=False, description="Whether a heartbeat runs without the history of the session."
    )
    skip_when_busy: bool = Field(
        default=False,
        description="Whether a turn in any session of the agent delays a heartbeat; one in the "
        "same session always does.",
    )
    timeout_seconds: Annotated[float, Field(ge=1, le=86_400)] | None = Field(
        default=None,
        description="Time limit of a heartbeat; null for `every`, at most 600 seconds.",
    )
    to: str = Field(default="", description=_IGNORED)
    account_id: str = Field(default="", description=_IGNORED)
    direct_policy: str = Field(default="", description=_IGNORED)
    include_reasoning: bool = Field(default=False, description=_IGNORED)
    include_system_prompt_section: bool = Field(default=True, description=_IGNORED)
    suppress_tool_error_warnings: bool = Field(default=False, description=_IGNORED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveHours:
    """A part of each day, in minutes since midnight."""

    start: int = 0
    end: int = _MINUTES_PER_DAY
    zone: tzinfo | None = None
    """None for that of this machine."""

    def contains(self, seconds: float) -> bool:
        """Whether a moment, in seconds since the epoch, is in them."""
        moment = datetime.fromtimestamp(seconds, UTC).astimezone(self.zone)
        minute = moment.hour * 60 + moment.minute
        if self.start <= self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


@dataclass(frozen=True, kw_only=True, slots=True)
class HeartbeatConfig:
    """The heartbeats of an agent."""

    every_seconds: float = 1800.0
    active_hours: ActiveHours = ActiveHours()
    model: str = ""
    session_key: str = "main"
    notifies_chat: bool = False
    prompt: str = ""
    ack_max_characters: int = 300
    is_light: bool = False
    is_isolated: bool = False
    skips_when_busy: bool = False
    timeout_seconds: float = _MAX_TIMEOUT_SECONDS


def resolve_heartbeat(
    section: HeartbeatSection, path: str, resolver: "Resolver"
) -> HeartbeatConfig | None:
    """Resolve `heartbeat`; None if it is off. Problems are noted."""
    for name, reason in section.unused_fields.items():
        if name in section.model_fields_set:
            place = f"{path}.{section_key(section, name)}"
            resolver.warn(f"`{place}` has no effect: {reason}")
    every = parse_duration(section.every) or 0.0
    if not every:
        return None
    if every < _MIN_EVERY_SECONDS:
        least = f"at least {_MIN_EVERY_SECONDS:g} seconds, and 0m"
        problem = f"is {format_value(section.every)}; allowed: {least}"
        resolver.note(ConfigError(f"{path}.every", problem))
    return HeartbeatConfig(
        every_seconds=max(every, _MIN_EVERY_SECONDS),
        active_hours=resolver.attempt(
            lambda: _resolve_hours(section.active_hours, f"{path}.activeHours"), ActiveHours()
        ),
        model=section.model,
        session_key=section.session,
        notifies_chat=section.target != "none",
        prompt=section.prompt,
        ack_max_characters=section.ack_max_chars,
        is_light=section.light_context,
        is_isolated=section.isolated_session,
        skips_when_busy=section.skip_when_busy,
        timeout_seconds=section.timeout_seconds or min(every, _MAX_TIMEOUT_SECONDS),
    )


def _resolve_hours(section: ActiveHoursSection, path: str) -> ActiveHours:
    zone: tzinfo | None = None
    if section.timezone not in _LOCAL_ZONES:
        try:
            zone = ZoneInfo(section.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigError(
                f"{path}.timezone",
                f"is {format_value(section.timezone)}; allowed: names such as "
                '"Europe/Berlin", "user" and "local"',
            ) from None
    return ActiveHours(start=_minutes(section.start), end=_minutes(section.end), zone=zone)


def _minutes(clock: str) -> int:
    hours, _, minutes = clock.partition(":")
    return int(hours) * 60 + int(minutes)
