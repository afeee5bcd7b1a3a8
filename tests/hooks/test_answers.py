"""Reading what hooks return: every allowed form, and errors for the rest."""

from types import MappingProxyType

import pytest

from nacre.errors import HookError
from nacre.hooks import AskApproval, Block, ChangeInput, ChangeResult
from nacre.hooks.answers import BeforeAnswer, before_answer_from, changed_result_from


@pytest.mark.parametrize(
    ("returned", "answer"),
    [
        (None, BeforeAnswer()),
        ({}, BeforeAnswer()),
        ({"block": False, "reason": "fine"}, BeforeAnswer()),
        ({"requireApproval": False, "input": None}, BeforeAnswer()),
        (Block("no"), BeforeAnswer(block="no")),
        (Block(""), BeforeAnswer(block="no reason given")),
        ({"block": True}, BeforeAnswer(block="no reason given")),
        ({"block": True, "reason": "no"}, BeforeAnswer(block="no")),
        ({"block": True, "blockReason": "no"}, BeforeAnswer(block="no")),
        (ChangeInput({"a": 1}), BeforeAnswer(input={"a": 1})),
        ({"input": {"a": 1}}, BeforeAnswer(input={"a": 1})),
        ({"params": MappingProxyType({"a": (1, 2)})}, BeforeAnswer(input={"a": [1, 2]})),
        ({"input": {}, "params": {}}, BeforeAnswer(input={})),
        (AskApproval(), BeforeAnswer(approval="")),
        (AskApproval("why"), BeforeAnswer(approval="why")),
        ({"approval": "why"}, BeforeAnswer(approval="why")),
        ({"requireApproval": True}, BeforeAnswer(approval="")),
        ({"requireApproval": {}}, BeforeAnswer(approval="")),
        ({"requireApproval": True, "approval": "why"}, BeforeAnswer(approval="why")),
        ({"requireApproval": {"title": "t", "description": "d"}}, BeforeAnswer(approval="d")),
        ({"requireApproval": {"title": "t", "severity": "high"}}, BeforeAnswer(approval="t")),
        (
            {"input": {"a": 1}, "approval": "why"},
            BeforeAnswer(input={"a": 1}, approval="why"),
        ),
    ],
)
def test_an_answer_before_a_call_is_read(returned: object, answer: BeforeAnswer) -> None:
    assert before_answer_from(returned) == answer


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (True, "it returned True; allowed: None, ChangeInput, Block, AskApproval"),
        ("no", "it returned 'no'; allowed"),
        ([Block("no")], "it returned a list; allowed"),
        (Block, "it returned a type; allowed"),
        ({"blocked": True}, "unknown key 'blocked'; known: input, params, block"),
        ({1: 2}, "unknown key 1"),
        ({"block": "yes"}, "`block` as 'yes'; allowed: true and false"),
        ({"block": 1}, "`block` as 1; allowed: true and false"),
        ({"reason": "no"}, "a reason without `block`"),
        ({"block": True, "reason": 3}, "`reason` as 3, which is not text"),
        ({"input": [1]}, "`input` as a list, which is not an object"),
        ({"input": {"a": {1, 2}}}, "`input`, which is not JSON: $.a is of type set"),
        ({"input": {"a": 1}, "params": {"a": True}}, "`input` and `params` that differ"),
        ({"approval": True}, "`approval` as True, which is not text"),
        ({"requireApproval": "yes"}, "`requireApproval` as 'yes'; allowed: true, false"),
        ({"requireApproval": 1}, "`requireApproval` as 1; allowed: true, false"),
        ({"requireApproval": {"reason": 1}}, "`requireApproval.reason` as 1"),
        (ChangeResult(1), "it returned a ChangeResult; allowed"),
    ],
)
def test_what_is_no_answer_before_a_call_is_an_error(returned: object, problem: str) -> None:
    with pytest.raises(HookError) as caught:
        before_answer_from(returned)
    assert problem in str(caught.value)


def test_a_changed_input_is_a_copy_that_the_hook_cannot_reach() -> None:
    returned = ChangeInput({"path": ["a"]})
    answer = before_answer_from(returned)
    returned.input["path"] = ["b"]
    assert answer.input == {"path": ["a"]}


@pytest.mark.parametrize(
    ("returned", "change"),
    [
        (None, None),
        ({}, None),
        (ChangeResult({"a": 1}), ChangeResult({"a": 1})),
        (ChangeResult(None), ChangeResult(None)),
        ({"result": None}, ChangeResult(None)),
        ({"result": (1, 2)}, ChangeResult([1, 2])),
    ],
)
def test_an_answer_after_a_call_is_read(returned: object, change: ChangeResult | None) -> None:
    assert changed_result_from(returned) == change


@pytest.mark.parametrize("returned", ["text", Block("no"), {"value": 1}, {"result": object()}])
def test_what_is_no_answer_after_a_call_is_an_error(returned: object) -> None:
    with pytest.raises(HookError):
        changed_result_from(returned)


def test_a_huge_answer_is_not_repeated_in_the_error() -> None:
    with pytest.raises(HookError) as caught:
        before_answer_from({"x" * 1_000_000: ""})
    assert len(str(caught.value)) < 300
