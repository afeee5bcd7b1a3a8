"""Parses the return values of hooks; an invalid value is an error, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from nacre.errors import HookError
from nacre.hooks.events import (
    AddToPrompt,
    AskApproval,
    Block,
    ChangeContent,
    ChangeInput,
    ChangeResult,
    Revise,
)
from nacre.json_types import NotJsonError, copy_json, decode_json, encode_json
from nacre.large_json import is_plain, is_small
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeAnswer:
    """The answer of one `before_tool_call` hook; None means no change, no block, no approval."""

    input: JsonObject | None = None
    block: str | None = None
    approval: str | None = None


_NOTHING: Final = BeforeAnswer()
_BEFORE_KEYS: Final = (
    "input",
    "params",
    "block",
    "reason",
    "blockReason",
    "approval",
    "requireApproval",
)
_ADDITIONS: Final = {
    "prependContext": "prepend_context",
    "appendContext": "append_context",
    "prependSystemContext": "prepend_system_context",
    "appendSystemContext": "append_system_context",
}
_NO_REASON: Final = "no reason given"
_MAX_SHOWN_CHARACTERS: Final = 60


def before_answer_from(returned: object) -> BeforeAnswer:
    """Parse the return value of a `before_tool_call` hook; raises HookError."""
    match returned:
        case None:
            return _NOTHING
        case Block(reason=reason):
            return BeforeAnswer(block=_check_text(reason, "the reason of Block") or _NO_REASON)
        case ChangeInput(input=changed):
            return BeforeAnswer(input=_json_object(changed, "the input of ChangeInput"))
        case AskApproval(reason=reason):
            return BeforeAnswer(approval=_check_text(reason, "the reason of AskApproval"))
        case Mapping():
            return _before_answer_from_mapping(cast("Mapping[object, object]", returned))
        case _:
            raise HookError(
                f"it returned {_format(returned)}; allowed: None, ChangeInput, Block, AskApproval, "
                f"or a mapping with {', '.join(_BEFORE_KEYS)}"
            )


def changed_result_from(returned: object) -> ChangeResult | None:
    """Parse the return value of an `after_tool_call` hook; raises HookError."""
    match returned:
        case None:
            return None
        case ChangeResult(result=result):
            return ChangeResult(_json(result, "the result of ChangeResult"))
        case Mapping():
            members = cast("Mapping[object, object]", returned)
            _refuse_unknown_keys(members, ("result",))
            return ChangeResult(_json(members["result"], "`result`")) if members else None
        case _:
            raise HookError(
                f"it returned {_format(returned)}; "
                'allowed: None, ChangeResult, or {"result": ...} to change the result'
            )


def changed_content_from(returned: object) -> ChangeContent | None:
    """Parse the return value of a `tool_result_persist` hook; raises HookError."""
    match returned:
        case None:
            return None
        case ChangeContent(content=content):
            return ChangeContent(_check_text(content, "the content of ChangeContent"))
        case Mapping():
            members = cast("Mapping[object, object]", returned)
            _refuse_unknown_keys(members, ("content",))
            return ChangeContent(_check_text(members["content"], "`content`")) if members else None
        case _:
            raise HookError(
                f"it returned {_format(returned)}; "
                'allowed: None, ChangeContent, or {"content": "..."} to change the stored text'
            )


def additions_from(returned: object) -> AddToPrompt | None:
    """Parse the return value of a `before_prompt_build` hook; raises HookError."""
    match returned:
        case None:
            return None
        case AddToPrompt():
            for name in _ADDITIONS.values():
                _check_text(getattr(returned, name), f"`{name}`")
            return returned
        case Mapping():
            members = cast("Mapping[object, object]", returned)
            _refuse_unknown_keys(members, tuple(_ADDITIONS))
            return AddToPrompt(
                **{
                    name: _check_text(members[key], f"`{key}`")
                    for key, name in _ADDITIONS.items()
                    if members.get(key) is not None
                }
            )
        case _:
            raise HookError(
                f"it returned {_format(returned)}; "
                f"allowed: None, AddToPrompt, or a mapping with {', '.join(_ADDITIONS)}"
            )


def revision_from(returned: object) -> Revise | None:
    """Parse the return value of a `before_agent_finalize` hook; raises HookError."""
    match returned:
        case None:
            return None
        case Revise(reason=reason):
            return Revise(_check_text(reason, "the reason of Revise") or _NO_REASON)
        case Mapping():
            return _revision_from_mapping(cast("Mapping[object, object]", returned))
        case _:
            raise HookError(
                f"it returned {_format(returned)}; allowed: None, Revise, or "
                '{"action": "revise", "reason": "..."}'
            )


def _revision_from_mapping(members: Mapping[object, object]) -> Revise | None:
    _refuse_unknown_keys(members, ("action", "reason"))
    action = members.get("action", "finalize")
    if action not in ("revise", "finalize"):
        raise HookError(f"it returned `action` as {_format(action)}; allowed: revise and finalize")
    if action == "finalize":
        return None
    return Revise(_check_text(members.get("reason", ""), "`reason`") or _NO_REASON)


def _before_answer_from_mapping(members: Mapping[object, object]) -> BeforeAnswer:
    _refuse_unknown_keys(members, _BEFORE_KEYS)
    return BeforeAnswer(
        input=_parse_input(members), block=_parse_block(members), approval=_parse_approval(members)
    )


def _parse_input(members: Mapping[object, object]) -> JsonObject | None:
    inputs = [
        _json_object(members[key], f"`{key}`")
        for key in ("input", "params")
        if members.get(key) is not None
    ]
    # Compared as JSON, because 1 equals True in Python.
    if len(inputs) == 2 and encode_json(inputs[0]) != encode_json(inputs[1]):
        raise HookError("it returned `input` and `params` that differ; return one of them")
    return inputs[0] if inputs else None


def _parse_block(members: Mapping[object, object]) -> str | None:
    is_blocked = members.get("block", False)
    if not isinstance(is_blocked, bool):
        raise HookError(f"it returned `block` as {_format(is_blocked)}; allowed: true and false")
    reasons = [
        _check_text(members[key], f"`{key}`")
        for key in ("reason", "blockReason")
        if members.get(key) is not None
    ]
    if reasons and "block" not in members:
        # The hook may have forgotten `block`, so do not let the call pass.
        raise HookError("it returned a reason without `block`")
    return (next(filter(None, reasons), _NO_REASON)) if is_blocked else None


def _parse_approval(members: Mapping[object, object]) -> str | None:
    reasons: list[str] = []
    if members.get("approval") is not None:
        reasons.append(_check_text(members["approval"], "`approval`"))
    required = members.get("requireApproval")
    if isinstance(required, Mapping):
        reasons.append(_find_approval_reason(cast("Mapping[object, object]", required)))
    elif required is True:
        reasons.append("")
    elif required is not None and required is not False:
        raise HookError(
            f"it returned `requireApproval` as {_format(required)}; allowed: true, false and "
            "an object with `reason`, `description` or `title`"
        )
    return next(filter(None, reasons), "") if reasons else None


def _find_approval_reason(details: Mapping[object, object]) -> str:
    # Other members describe a dialog; they do not change the decision, so they are ignored.
    for key in ("reason", "description", "title"):
        if details.get(key) is not None:
            return _check_text(details[key], f"`requireApproval.{key}`")
    return ""


def _refuse_unknown_keys(members: Mapping[object, object], known: tuple[str, ...]) -> None:
    for key in members:
        if key not in known:
            raise HookError(
                f"it returned a mapping with the unknown key {_format(key)}; "
                f"known: {', '.join(known)}"
            )


def _check_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise HookError(f"it returned {what} as {_format(value)}, which is not text")
    return value


def _json_object(value: object, what: str) -> JsonObject:
    if not isinstance(value, Mapping):
        raise HookError(f"it returned {what} as {_format(value)}, which is not an object")
    return cast("JsonObject", _json(dict(cast("Mapping[object, object]", value)), what))


def _json(value: object, what: str) -> JsonValue:
    # A copy, because the hook may change its object after the call is approved.
    try:
        if not is_small(value) and is_plain(value):
            return cast("JsonValue", copy_json(value))
        return decode_json(encode_json(value))
    except NotJsonError as error:
        raise HookError(f"it returned {what}, which is not JSON: {error}") from error


def _format(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
