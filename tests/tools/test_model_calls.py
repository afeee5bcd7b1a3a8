"""A call as a model makes it."""

import pytest

from nacre.run_context import AbortController
from nacre.tools.model_calls import NotArguments, arguments_from, no_such_tool, site_of_model_call


@pytest.mark.parametrize("given", [{"a": 1}, '{"a": 1}'])
def test_arguments_are_an_object_or_the_json_text_of_one(given: object) -> None:
    assert arguments_from(given) == {"a": 1}


def test_no_arguments_are_an_empty_object() -> None:
    assert arguments_from(None) == {}


def test_arguments_are_a_copy() -> None:
    given = {"a": 1}
    arguments_from(given)["a"] = 2
    assert given == {"a": 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "the arguments are not JSON"),
        ("\ud800", "the arguments are not JSON"),
        ("[1]", "the arguments are a list; they have to be an object"),
        (5, "the arguments are a int; they have to be an object"),
    ],
)
def test_other_arguments_are_refused_in_words_for_the_model(given: object, message: str) -> None:
    with pytest.raises(NotArguments, match=message):
        arguments_from(given)


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    abort = AbortController().signal
    first, second = (site_of_model_call("", abort) for _ in range(2))
    assert first.call_id != second.call_id
    assert site_of_model_call("call_7", abort).call_id == "call_7"
    assert first.abort is abort


def test_a_model_that_calls_what_there_is_not_is_told_what_there_is() -> None:
    assert no_such_tool("x", ("exec", "wait")).endswith(
        "'x' that the model may call; there are: exec, wait"
    )
    assert no_such_tool("x", ()).endswith("there are: none")
