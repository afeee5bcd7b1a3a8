"""How a script file spells turns, for a provider that runs as a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from nacre.testing.script import Call, Cut, End, EndReason, Fail, Part, Raw, Say, Stall, Think, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nacre.json_types import JsonObject, JsonValue

_END_REASONS: Final[tuple[EndReason, ...]] = get_args(EndReason)


def script_from_json(value: JsonValue) -> list[Turn] | dict[str, list[Turn]]:
    """A script file: a list of turns, or an object that has such a list for each conversation.

    A turn is text, a part as an object, or a list of parts. Raises ValueError that says which turn
    is at fault.
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
        raise ValueError(f"`{key}` is not a whole number")
    return found
