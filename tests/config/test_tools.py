"""The settings of tools: by agent, and in documents that are given to the library."""

from typing import Any

import pytest

from nacre.config.tools import refuse_unopened_servers, tools_config_from
from nacre.errors import ConfigError


def test_problems_of_other_parts_are_not_the_library_s() -> None:
    document: dict[str, Any] = {
        "gateway": {"port": -1},
        "own": {"x": 1},
        "agents": {"defaults": {"maxSteps": 0}, "main": {"tools": {"fs": {"ask": "x"}}}},
        "tools": {"codeMode": True},
    }
    assert tools_config_from(document, "main").code_mode.enabled


def test_rules_are_kept_with_their_places_the_shared_ones_first() -> None:
    document: dict[str, Any] = {
        "tools": {"deny": ["a"]},
        "agents": {"list": [{"id": "Main", "tools": {"allow": ["b"]}}], "main": {"tools": {}}},
    }
    config = tools_config_from(document, "main")
    assert [path for path, _ in config.rules] == [
        "tools",
        "agents.list[0].tools",
        "agents.main.tools",
    ]
    assert [rules.allow for _, rules in config.rules] == [None, ("b",), None]


def test_numbers_that_are_clamped_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    tools_config_from({"tools": {"codeMode": {"timeoutMs": 5}}}, "main")
    assert caplog.messages == ["`tools.codeMode.timeoutMs` is 5; 100 is used"]


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
