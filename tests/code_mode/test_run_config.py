"""Whether code mode is active for a run, and its settings."""

from collections.abc import Mapping

import pytest

from nacre.code_mode.model_surface import is_code_mode_active
from nacre.config.code_mode import CodeModeConfig
from nacre.config.tools import tools_config_from
from nacre.errors import ConfigError
from tests.code_mode.simple_tools import simple_tool

ON = CodeModeConfig(enabled=True)


def code_mode_config_for(document: Mapping[str, object], agent_id: str) -> CodeModeConfig:
    return tools_config_from(document, agent_id).code_mode


def test_it_is_on_when_enabled_and_the_run_has_tools() -> None:
    assert is_code_mode_active(ON, tools=[simple_tool("read")])
    assert is_code_mode_active(ON, tools=[simple_tool("image", catalog_mode="direct-only")])


@pytest.mark.parametrize("config", [None, False, {}, {"timeoutMs": 500}, {"enabled": False}])
def test_it_is_off_without_enabled_true(config: object) -> None:
    settings = code_mode_config_for({"tools": {"codeMode": config}}, "main")
    assert not is_code_mode_active(settings, tools=[simple_tool("read")])


def test_a_run_without_tools_stays_without_tools() -> None:
    assert not is_code_mode_active(ON, tools=[])
    assert not is_code_mode_active(ON, tools=[simple_tool("read")], tools_disabled=True)
    # What is left of a run whose real tools were all denied.
    assert not is_code_mode_active(ON, tools=[simple_tool("tool_search"), simple_tool("tool_call")])


def test_nothing_configured_is_the_default() -> None:
    assert code_mode_config_for({}, "main") == CodeModeConfig()
    assert code_mode_config_for({"tools": None, "agents": None}, "main") == CodeModeConfig()
    assert code_mode_config_for({"agents": {"list": None}}, "main") == CodeModeConfig()


@pytest.mark.parametrize(
    "agents",
    [
        {"list": [{"id": "other", "tools": {"codeMode": False}}, {"id": "main", "tools": None}]},
        {"list": [{"id": "main"}]},
        {"main": None},
        {"list": [{"id": "main", "tools": {"codeMode": None}}]},
    ],
)
def test_an_agent_without_settings_has_the_global_ones(agents: object) -> None:
    config = {"tools": {"codeMode": True}, "agents": agents}
    assert code_mode_config_for(config, "main") == ON


@pytest.mark.parametrize("shape", ["list", "map"])
def test_an_agent_s_settings_are_laid_over_the_global_ones_key_by_key(shape: str) -> None:
    own = {"tools": {"codeMode": {"timeoutMs": 500}}}
    agents = {"list": [{"id": "main", **own}]} if shape == "list" else {"main": own}
    config = {
        "tools": {"codeMode": {"enabled": True, "timeoutMs": 900, "maxPendingToolCalls": 3}},
        "agents": agents,
    }
    assert code_mode_config_for(config, "main") == CodeModeConfig(
        enabled=True, timeout_ms=500, max_pending_tool_calls=3
    )
    assert code_mode_config_for(config, "other").timeout_ms == 900


def test_an_agent_s_boolean_is_a_switch_and_keeps_the_global_limits() -> None:
    config = {
        "tools": {"codeMode": {"enabled": True, "timeoutMs": 900}},
        "agents": {"list": [{"id": "quiet", "tools": {"codeMode": False}}]},
    }
    assert code_mode_config_for(config, "quiet") == CodeModeConfig(enabled=False, timeout_ms=900)


def test_an_agent_s_settings_can_be_laid_over_a_global_boolean() -> None:
    config = {
        "tools": {"codeMode": True},
        "agents": {"main": {"tools": {"codeMode": {"timeoutMs": 500}}}},
    }
    assert code_mode_config_for(config, "main") == CodeModeConfig(enabled=True, timeout_ms=500)


def test_limits_that_depend_on_each_other_are_clamped_after_merging() -> None:
    config = {
        "tools": {"codeMode": {"searchDefaultLimit": 20}},
        "agents": {"main": {"tools": {"codeMode": {"maxSearchLimit": 10}}}},
    }
    assert code_mode_config_for(config, "main").search_default_limit == 10


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"tools": 1}, "tools"),
        ({"tools": {"codeMode": "on"}}, "tools.codeMode"),
        ({"tools": {"codeMode": {"timeoutMs": "soon"}}}, "tools.codeMode.timeoutMs"),
        ({"agents": []}, "agents"),
        ({"agents": {"list": {}}}, "agents.list"),
        ({"agents": {"list": {"id": "main"}}}, "agents.list"),
        ({"agents": {"list": [1]}}, "agents.list[0]"),
        ({"agents": {"list": [{}, {"id": "main", "tools": 5}]}}, "agents.list[1].tools"),
        (
            {"agents": {"list": [{"id": "main", "tools": {"codeMode": {"enabled": "yes"}}}]}},
            "agents.list[0].tools.codeMode.enabled",
        ),
        ({"agents": {"main": {"tools": {"codeMode": 3}}}}, "agents.main.tools.codeMode"),
    ],
)
def test_a_fault_is_reported_where_it_was_made(config: dict[str, object], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        code_mode_config_for(config, "main")
    assert caught.value.path == path
