"""Values in messages, and parts of a document that nobody would use."""

import pytest

from nacre.config.setting_paths import format_value
from nacre.config.tools import refuse_unopened_servers
from nacre.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, "5"),
        ("ä" * 100, f'"{"ä" * 59}…'),
        ("https://ada:pass/word@x.example", '"https://***@x.example"'),
        (["https://token@x.example", "a@b"], '["https://***@x.example", "a@b"]'),
        (object(), "of type object"),
    ],
)
def test_a_value_is_shown_in_short_and_without_the_user_of_a_url(
    value: object, expected: str
) -> None:
    assert format_value(value) == expected


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"mcp": {"servers": {"a": {"command": "a"}}}}, "mcp.servers"),
        ({"mcpServers": {"a": {"command": "a"}}}, "mcpServers"),
        ({"mcp": ["--token=hunter2"]}, "mcp"),
    ],
)
def test_servers_that_nobody_opens_are_refused(document: dict[str, object], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_unopened_servers(document)
    assert caught.value.path == path
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "document", [{}, {"mcp": None}, {"mcp": {}}, {"mcp": {"servers": {}}}, {"mcpServers": {}}]
)
def test_a_document_without_servers_is_not_refused(document: dict[str, object]) -> None:
    refuse_unopened_servers(document)
