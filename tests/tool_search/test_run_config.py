"""Settings by agent, and whether code mode goes before Tool Search."""

from typing import Any

import pytest

from nacre.config.tool_search import ToolSearchConfig
from nacre.config.tools import tools_config_from
from nacre.errors import ConfigError
from nacre.run_context import RunContext
from nacre.tool_search.tool_search import run_config_from


def settings(config: Any, agent_id: str = "main") -> ToolSearchConfig:
    return run_config_from(config).tools_for(RunContext(agent_id=agent_id)).tool_search


@pytest.mark.parametrize("config", [None, True, {}, {"mode": "code"}, ToolSearchConfig()])
def test_who_opens_it_with_settings_or_none_has_it(config: Any) -> None:
    assert settings(config).enabled


@pytest.mark.parametrize("config", [False, {"enabled": False}, {"tools": {}}, {"agents": {}}])
def test_it_is_off_where_that_is_said_and_in_a_document_that_does_not_name_it(config: Any) -> None:
    assert not settings(config).enabled


def test_an_agents_own_settings_go_over_the_others_key_by_key() -> None:
    document = {
        "tools": {"toolSearch": {"mode": "tools", "maxSearchLimit": 12}},
        "agents": {
            "list": [{"id": "Coder", "tools": {"toolSearch": {"mode": "code"}}}],
            "quiet": {"tools": {"toolSearch": False}},
        },
    }
    assert settings(document).mode == "tools"
    coder = settings(document, "coder")
    assert (coder.enabled, coder.mode, coder.max_search_limit) == (True, "code", 12)
    quiet = settings(document, "quiet")
    assert (quiet.enabled, quiet.mode, quiet.max_search_limit) == (False, "tools", 12)


def test_an_agent_may_have_it_alone() -> None:
    document = {
        "tools": {"toolSearch": False},
        "agents": {"main": {"tools": {"toolSearch": {"maxSearchLimit": 3}}}},
    }
    assert settings(document).enabled
    assert not settings(document, "other").enabled


def test_a_fault_is_reported_where_it_was_made() -> None:
    document = {"agents": {"main": {"tools": {"toolSearch": {"mode": "both"}}}}}
    with pytest.raises(ConfigError, match=r"`agents\.main\.tools\.toolSearch\.mode` is \"both\""):
        tools_config_from(document, "main")
    with pytest.raises(ConfigError, match=r"`config` is a list; allowed: an object"):
        run_config_from([])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, False),
        ({"tools": {"codeMode": True}}, True),
        ({"tools": {"codeMode": {"timeoutMs": 500}}}, False),
        ({"tools": {"codeMode": {"enabled": True}}}, True),
        (
            {"tools": {"codeMode": True}, "agents": {"main": {"tools": {"codeMode": False}}}},
            False,
        ),
        (
            {
                "tools": {"codeMode": {"enabled": True}},
                "agents": {"main": {"tools": {"codeMode": {"timeoutMs": 500}}}},
            },
            True,
        ),
        ({"agents": {"main": {"tools": {"codeMode": True}}}}, True),
    ],
)
def test_code_mode_is_on_as_its_own_contract_says(document: Any, expected: bool) -> None:
    assert tools_config_from(document, "main").code_mode.enabled is expected
