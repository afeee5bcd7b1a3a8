"""Debug flags from environment variables, and the loggers that they enable."""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeVar, get_args

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

PayloadLog = Literal["tools", "full-redacted"]
SseLog = Literal["events", "peek"]
DebugTopic = Literal["code_mode", "model_transport", "model_payload", "sse"]

DEBUG_LOGGER_NAME: Final = "nacre.debug"

_CODE_MODE: Final = "OPENCLAW_DEBUG_CODE_MODE"
_MODEL_TRANSPORT: Final = "OPENCLAW_DEBUG_MODEL_TRANSPORT"
_MODEL_PAYLOAD: Final = "OPENCLAW_DEBUG_MODEL_PAYLOAD"
_SSE: Final = "OPENCLAW_DEBUG_SSE"

_ON: Final = ("1", "true", "yes", "on")
_OFF: Final = ("", "0", "false", "no", "off")
_MAX_SHOWN_CHARACTERS: Final = 60

_Choice = TypeVar("_Choice", bound=str)

logger = logging.getLogger(DEBUG_LOGGER_NAME)


@dataclass(frozen=True, kw_only=True, slots=True)
class DebugFlags:
    """Which debug logs are enabled."""

    code_mode: bool = False
    model_transport: bool = False
    """Requests to models: method, URL, status, time, bytes, attempts."""
    model_payload: PayloadLog | None = None
    """Request bodies: the names of tools, or the whole body, redacted and truncated."""
    sse: SseLog | None = None
    """Response streams: event types and sizes, or the first events, redacted and truncated."""

    @property
    def is_any_on(self) -> bool:
        return self.code_mode or self.model_transport or bool(self.model_payload or self.sse)


def debug_flags_from(environment: Mapping[str, str]) -> DebugFlags:
    """Read the flags; an invalid value is logged as a warning, and its flag stays off."""
    return DebugFlags(
        code_mode=_is_on(environment, _CODE_MODE),
        model_transport=_is_on(environment, _MODEL_TRANSPORT),
        model_payload=_read_choice(environment, _MODEL_PAYLOAD, get_args(PayloadLog)),
        sse=_read_choice(environment, _SSE, get_args(SseLog)),
    )


@cache
def get_debug_flags() -> DebugFlags:
    """The flags of this process, read at the first call."""
    flags = debug_flags_from(os.environ)
    if flags.is_any_on:
        _show_debug_logs()
    return flags


def debug_log(topic: DebugTopic) -> logging.Logger:
    """The logger of a topic; its messages have level INFO."""
    return logging.getLogger(f"{DEBUG_LOGGER_NAME}.{topic}")


def _show_debug_logs() -> None:
    logger.setLevel(logging.INFO)
    # An application with its own logging setup decides where messages go.
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        logger.addHandler(handler)


def _is_on(environment: Mapping[str, str], name: str) -> bool:
    value = environment.get(name, "").strip().lower()
    if value not in (*_ON, *_OFF):
        _warn(name, value, "1 and 0")
    return value in _ON


def _read_choice(
    environment: Mapping[str, str], name: str, choices: tuple[_Choice, ...]
) -> _Choice | None:
    value = environment.get(name, "").strip().lower()
    for choice in choices:
        if value == choice:
            return choice
    if value not in _OFF:
        _warn(name, value, " and ".join(choices))
    return None


def _warn(name: str, value: str, allowed: str) -> None:
    shown = value[:_MAX_SHOWN_CHARACTERS]
    logger.warning("%s is %r and stays off; allowed: %s", name, shown, allowed)
