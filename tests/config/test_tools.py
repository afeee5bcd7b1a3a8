"""The settings of tools: by agent, and in documents that are given to the library."""

import dataclasses
from typing import Any

import pytest

from nacre.config.tools import (
    TOOL_SEARCH_KEYS,
    TOOL_SEARCH_LIMITS,
    ToolSearchConfig,
    refuse_unopened_servers,
    tool_search_config_from,
    tools_config_from,
)
from nacre.errors import ConfigError
from tests.contract.requirements import requirement

NUMBERS = [
    # key, default, least, most; written again here, because the contract is what is tested.
    ("codeTimeoutMs", 10_000, 1_000, 60_000),
    ("searchDefaultLimit", 8, 1, 50),
    ("maxSearchLimit", 20, 1, 50),
]
ON = ToolSearchConfig(
    enabled=True,
    mode="code",
    code_timeout_ms=10_000,
    search_default_limit=8,
    max_search_limit=20,
)
FIELD_OF = {limit.key: name for name, limit in TOOL_SEARCH_LIMITS.items()}


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


def number_read_from(key: str, value: object) -> object:
    return getattr(tool_search_config_from({key: value}), FIELD_OF[key])


def refusal_of(value: object) -> str:
    with pytest.raises(ConfigError) as refusal:
        tool_search_config_from(value)
    return str(refusal.value)


@pytest.mark.parametrize("value", [None, False, {"enabled": False}])
def test_it_is_off_unless_it_is_asked_for(value: object) -> None:
    assert tool_search_config_from(value) == dataclasses.replace(ON, enabled=False)


@requirement("tool-search:settings")
@pytest.mark.parametrize("value", [True, {}, {"enabled": True}, {"mode": "code"}])
def test_true_and_an_object_switch_it_on_with_the_code_bridge(value: object) -> None:
    assert tool_search_config_from(value) == ON


@requirement("tool-search:settings")
def test_an_object_chooses_the_mode() -> None:
    assert tool_search_config_from({"mode": "tools"}) == dataclasses.replace(ON, mode="tools")


@requirement("tool-search:settings")
@pytest.mark.parametrize(("key", "default", "least", "most"), NUMBERS)
def test_every_number_has_its_default_and_is_clamped(
    key: str, default: int, least: int, most: int
) -> None:
    assert getattr(tool_search_config_from(True), FIELD_OF[key]) == default
    assert number_read_from(key, least - 1) == least
    assert number_read_from(key, float(least)) == least
    others = {"maxSearchLimit": most} if key == "searchDefaultLimit" else {}
    config = tool_search_config_from({key: most + 1, **others})
    assert getattr(config, FIELD_OF[key]) == most


def test_the_default_of_a_search_is_at_most_its_limit() -> None:
    config = tool_search_config_from({"searchDefaultLimit": 30, "maxSearchLimit": 5})
    assert (config.search_default_limit, config.max_search_limit) == (5, 5)


def test_every_number_is_in_the_table_above() -> None:
    assert [limit.key for limit in TOOL_SEARCH_LIMITS.values()] == [key for key, *_ in NUMBERS]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "`tools.toolSearch` is a number; allowed: true, false and an object"),
        ("code", "`tools.toolSearch` is a text; allowed: true, false and an object"),
        (
            {"mode": "directory"},
            '`tools.toolSearch.mode` is "directory"; allowed: "code" and "tools"',
        ),
        ({"mode": ["code"]}, '`tools.toolSearch.mode` is ["code"]; allowed: "code" and "tools"'),
        ({"enabled": 1}, "`tools.toolSearch.enabled` is 1; allowed: true and false"),
        (
            {"codeTimeoutMs": "5s"},
            '`tools.toolSearch.codeTimeoutMs` is "5s"; allowed: whole numbers from 1000 to 60000',
        ),
        (
            {"maxSearchLimit": True},
            "`tools.toolSearch.maxSearchLimit` is true; allowed: whole numbers from 1 to 50",
        ),
        (
            {"searchLimit": 5},
            '`tools.toolSearch` has the unknown key "searchLimit"; did you mean `maxSearchLimit`?',
        ),
        (
            {"x": 5},
            f'`tools.toolSearch` has the unknown key "x"; known: {", ".join(TOOL_SEARCH_KEYS)}',
        ),
    ],
)
def test_what_is_not_allowed_is_named_with_its_path(value: object, message: str) -> None:
    assert refusal_of(value) == message


@pytest.mark.parametrize(
    ("field", "value"),
    [("enabled", "yes"), ("mode", "both"), ("code_timeout_ms", None), ("max_search_limit", 2.5)],
)
def test_settings_made_in_python_are_checked_as_well(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        ToolSearchConfig(**{field: value})
