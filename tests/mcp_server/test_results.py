"""Results of code mode and of direct tools as MCP results."""

import pytest

from nacre import Completed, DirectResult, Failed
from nacre.mcp_server.server import code_mode_result, direct_result
from tests.mcp_server.clients import content_of, text_of


def test_the_text_has_everything_that_the_structured_content_has() -> None:
    result = code_mode_result(Completed(value={"a": [1, None]}), awaited={"howToContinue": "x"})
    content = content_of(result)
    assert (content["value"], content["howToContinue"]) == ({"a": [1, None]}, "x")
    assert not result.is_error


def test_a_failed_program_is_an_error_with_its_reason() -> None:
    result = code_mode_result(Failed(error="no such thing", reason="guest_error"))
    assert result.is_error
    content = content_of(result)
    assert (content["error"], content["reason"]) == ("no such thing", "guest_error")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ({"n": 1}, '{"n":1}'),
        (None, "null"),
        (b"bytes", '{"type":"bytes"}'),
        ({"content": "not parts"}, '{"content":"not parts"}'),
        ("\ud800", "?"),
    ],
)
def test_a_direct_value_is_shown_as_text(value: object, text: str) -> None:
    result = direct_result(DirectResult(value=value), has_output_schema=False)
    assert (text_of(result), result.structured_content) == (text, None)


def test_a_direct_value_with_a_schema_is_structured_as_well() -> None:
    result = direct_result(DirectResult(value={"n": 1}), has_output_schema=True)
    assert content_of(result) == {"n": 1}
