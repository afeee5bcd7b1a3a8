"""`python -m nacre.testing.scripted_provider`: reads a script file and serves it."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import anyio

from nacre.json_types import NotJsonError, decode_json
from nacre.testing.script import (
    Call,
    Cut,
    End,
    EndReason,
    Fail,
    Part,
    Raw,
    Say,
    Stall,
    Think,
    Turn,
    by_marker,
)
from nacre.testing.scripted_provider import ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.testing.script import RecordedRequest


_END_REASONS: Final[tuple[EndReason, ...]] = get_args(EndReason)


def script_from_json(value: JsonValue) -> list[Turn] | dict[str, list[Turn]]:
    """Parse a script file: a list of turns, or an object with such a list per conversation.

    A turn is text, a part as an object, or a list of parts. Raises ValueError with the number of
    the invalid turn.
    """
    if isinstance(value, dict):
        return {
            name: _turns_from(turns, f"conversation {name!r}, ") for name, turns in value.items()
        }
    return _turns_from(value, "")


def _turns_from(value: JsonValue, place: str) -> list[Turn]:
    if not isinstance(value, list):
        raise ValueError(f"{place}a script is a list of turns")
    return [_turn_from(turn, f"{place}turn {number}") for number, turn in enumerate(value, start=1)]


def _turn_from(value: JsonValue, place: str) -> Turn:
    if isinstance(value, list):
        return [_part_from(part, place) for part in value]
    return _part_from(value, place)


def _part_from(value: JsonValue, place: str) -> Part:
    if isinstance(value, str):
        return Say(value)
    if isinstance(value, dict):
        for kind, read in _READERS.items():
            if kind in value:
                try:
                    return read(value)
                except (KeyError, TypeError, ValueError) as error:
                    raise ValueError(f"{place}: {error}") from error
    raise ValueError(f"{place}: a part is text or an object with one of: {', '.join(_READERS)}")


def _say(value: JsonObject) -> Part:
    return Say(_text(value, "say"))


def _think(value: JsonObject) -> Part:
    return Think(_text(value, "think"))


def _call(value: JsonObject) -> Part:
    arguments = value.get("arguments", {})
    if not isinstance(arguments, (dict, str)):
        raise ValueError("`arguments` is neither an object nor text")
    call_id = _text(value, "callId") if "callId" in value else ""
    return Call(_text(value, "call"), arguments, call_id)


def _fail(value: JsonObject) -> Part:
    retry_after = value.get("retryAfter")
    return Fail(
        _number(value, "fail"),
        message=_text(value, "message") if "message" in value else Fail().message,
        retry_after=None if retry_after is None else float(_number(value, "retryAfter")),
        code=_text(value, "code") if "code" in value else "",
    )


def _cut(_value: JsonObject) -> Part:
    return Cut()


def _stall(_value: JsonObject) -> Part:
    return Stall()


def _raw(value: JsonObject) -> Part:
    return Raw(_text(value, "raw"))


def _end(value: JsonObject) -> Part:
    for reason in _END_REASONS:
        if value["end"] == reason:
            return End(reason)
    raise ValueError(f"`end` is {value['end']!r}; allowed: {', '.join(_END_REASONS)}")


_READERS: Final[Mapping[str, Callable[[JsonObject], Part]]] = {
    "say": _say,
    "think": _think,
    "call": _call,
    "fail": _fail,
    "cut": _cut,
    "stall": _stall,
    "raw": _raw,
    "end": _end,
}


def _text(value: JsonObject, key: str) -> str:
    found = value[key]
    if not isinstance(found, str):
        raise ValueError(f"`{key}` is not text")
    return found


def _number(value: JsonObject, key: str) -> int:
    found = value[key]
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"`{key}` is not an integer")
    return found


def run_from_command_line(arguments: Sequence[str] | None = None) -> None:
    """Print the URL as the first line, then serve until SIGINT or SIGTERM."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        script = script_from_json(decode_json(given.script.read_bytes()))
    except (OSError, NotJsonError, ValueError) as error:
        parser.error(f"{given.script}: {error}")
    if isinstance(script, dict) and given.marker is None:
        parser.error(f"{given.script} has several conversations: `--marker` is required")
    anyio.run(_serve, ScriptedProvider(script, script_for=given.marker, port=given.port))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nacre.testing.scripted_provider", description=__doc__
    )
    parser.add_argument(
        "--script",
        type=Path,
        required=True,
        help="a JSON list of turns, or an object with such a list for each conversation;"
        " see docs/testing.md",
    )
    parser.add_argument("--port", type=int, default=0, help="default: any free port")
    parser.add_argument(
        "--marker",
        type=_marker,
        help="a regular expression whose match in the prompts is the name of the conversation; each"
        " conversation plays the script, or its own script, from the start",
    )
    return parser


def _marker(pattern: str) -> Callable[[RecordedRequest], str]:
    try:
        return by_marker(pattern)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{pattern!r} is not a regular expression: {error}"
        ) from error


async def _serve(scripted: ScriptedProvider) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with scripted as provider:
            sys.stdout.write(f"{provider.url}\n")
            sys.stdout.flush()
            async for _ in signals:
                break
