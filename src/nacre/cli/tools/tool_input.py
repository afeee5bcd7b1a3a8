"""The input of a call as a person writes it: a JSON object, `key=value` pairs, or from a pipe."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from nacre.cli.output import UsageProblem
from nacre.cli.tools.pair_values import refuse_unknown_key, value_for
from nacre.json_types import NotJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject
    from nacre.tools import Tool

_STANDARD_INPUT: Final = "-"
# Far above any real input; keeps a wrong file, or one without an end, from filling the memory.
_MAX_INPUT_BYTES: Final = 16 << 20
_MAX_SHOWN: Final = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonInput:
    """The input as it is to be sent."""

    members: JsonObject


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsInput:
    """Texts by key; what they are depends on the tool."""

    pairs: dict[str, str]


ToolInput: TypeAlias = JsonInput | PairsInput


def read_tool_input(arguments: Sequence[str]) -> ToolInput:
    """What the arguments say before a tool is looked for; raises UsageProblem."""
    for argument in arguments:
        _refuse_broken_text(argument)
    match arguments:
        case [text] if text == _STANDARD_INPUT:
            return _json_input(_read_standard_input(), "standard input")
        case [text] if text.lstrip().startswith(("{", "[")):
            return _json_input(text.encode(), "the input")
        case _:
            return _pairs_input(arguments)


def input_for(tool: Tool, given: ToolInput) -> JsonObject:
    """What the tool is called with; raises UsageProblem for a key that it does not take."""
    if isinstance(given, JsonInput):
        return given.members
    for key in given.pairs:
        refuse_unknown_key(tool, key)
    return {key: value_for(tool, key, text) for key, text in given.pairs.items()}


def _json_input(data: bytes, name: str) -> JsonInput:
    try:
        value = decode_json(data.removeprefix(b"\xef\xbb\xbf"))
    except NotJsonError as error:
        raise UsageProblem(f"{name} {error.problem}") from None
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        raise UsageProblem(f"{name} is {kind}; a tool takes one object, such as '{{\"key\": 1}}'")
    return JsonInput(members=value)


def _pairs_input(arguments: Sequence[str]) -> PairsInput:
    pairs: dict[str, str] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not key:
            shown = argument if len(argument) <= _MAX_SHOWN else f"{argument[:_MAX_SHOWN]}…"
            raise UsageProblem(
                f"{shown!r} is no input; write one JSON object, key=value pairs, "
                "or - to read JSON from standard input"
            )
        if key in pairs:
            raise UsageProblem(f"{key!r} is given twice; write a list as {key}='[1, 2]'")
        pairs[key] = text
    return PairsInput(pairs=pairs)


def _refuse_broken_text(argument: str) -> None:
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        # Python keeps bytes of an argument that it cannot decode as halves of surrogate pairs.
        raise UsageProblem(
            f"the input is not UTF-8 (character {error.start + 1}); "
            "write the character in JSON as an escape, such as \\u00e9"
        ) from None


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        raise UsageProblem("there is no standard input to read; give the input as arguments")
    try:
        content = sys.stdin.buffer.read(_MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise UsageProblem(f"cannot read standard input: {error.strerror or error}") from None
    if len(content) > _MAX_INPUT_BYTES:
        raise UsageProblem(f"standard input has more than {_MAX_INPUT_BYTES} bytes")
    if not content.strip():
        raise UsageProblem("standard input is empty; write {} for a call without any input")
    return content
