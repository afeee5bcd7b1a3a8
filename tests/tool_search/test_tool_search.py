"""Tool Search: its settings by agent, and opening it."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre import RunContext
from nacre.config.tools import ToolSearchConfig, tools_config_from
from nacre.errors import CatalogError, ConfigError, RuntimeUnavailableError
from nacre.sandbox.image import WasmError
from nacre.tool_search import ToolSearch
from nacre.tool_search.tool_search import run_config_from
from tests.code_mode.mcp_servers import LazyServer
from tests.code_mode.tools import HeldTool, echo_tool
from tests.contract.requirements import requirement
from tests.tool_search.runs import failure_of, value_of

BOTH: dict[str, Any] = {"tools": {"toolSearch": True, "codeMode": True}}


async def test_one_step_opens_a_run_and_closes_it() -> None:
    async with ToolSearch(tools=[echo_tool()], mcp=[LazyServer("github", "look")]) as search:
        assert [each["name"] for each in search.definitions("anthropic")] == ["tool_search_code"]
        code = "const called = await openclaw.tools.call('echo', {a: 1});"
        code += "return [called, (await openclaw.tools.search('look')).length]"
        assert value_of(await search.call("tool_search_code", {"code": code})) == [{"a": 1}, 1]
        assert search.telemetry().call_count == 1
    failed = failure_of(await search.call("tool_search_code", {"code": code}))
    assert (failed.error, failed.code) == ("tool search is closed", "aborted")


async def test_closing_ends_what_runs() -> None:
    held = HeldTool()
    search = ToolSearch(tools=[held.tool], config={"mode": "tools"})
    with anyio.fail_after(15):
        async with anyio.create_task_group() as tasks, search:
            tasks.start_soon(search.call, "tool_call", {"id": "held"})
            await held.wait_for_calls()
    assert len(held.cancelled) == 1


@requirement("tool-search:falls-back")
async def test_without_a_sandbox_the_model_is_shown_the_structured_tools(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_library() -> Path:
        raise WasmError("the wasmtime package is not installed; reinstall nacre")

    monkeypatch.setattr("nacre.sandbox.pool.library_path", no_library)
    async with ToolSearch(tools=[echo_tool()], config={"mode": "code"}) as search:
        assert search.run.mode == "tools"
        assert search.run.visible_names == ("tool_search", "tool_describe", "tool_call")
        telemetry = search.telemetry()
        result = await search.call("tool_call", {"id": "echo", "args": {"a": 1}})
        assert value_of(result) == {"a": 1}
        code = {"code": "return 1"}
        assert failure_of(await search.call("tool_search_code", code)).code == "unknown_tool"
    assert telemetry.fallback_reason == "the wasmtime package is not installed; reinstall nacre"
    assert telemetry.to_json()["fallbackReason"] == telemetry.fallback_reason
    assert "the wasmtime package is not installed" in caplog.text


async def test_the_structured_tools_start_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_sandbox(*_: object) -> None:
        raise AssertionError("a sandbox was opened")

    monkeypatch.setattr("nacre.tool_search.tool_search.Sandbox", no_sandbox)
    async with ToolSearch(tools=[echo_tool()], config={"mode": "tools"}) as search:
        assert search.run.mode == "tools"
    for tools, config in (([echo_tool()], False), ([], True)):
        async with ToolSearch(tools=tools, config=config) as search:
            assert search.run.mode == "direct"


@requirement("tool-search:not-with-code-mode")
async def test_where_code_mode_is_on_as_well_it_does_not_open() -> None:
    with pytest.raises(ConfigError, match=r"`tools\.toolSearch` is on, and so is `tools.codeMode`"):
        async with ToolSearch(tools=[echo_tool()], config=BOTH):
            pass
    document = {**BOTH, "agents": {"plain": {"tools": {"codeMode": False, "toolSearch": False}}}}
    context = RunContext(agent_id="plain")
    async with ToolSearch(tools=[echo_tool()], config=document, context=context) as search:
        assert search.run.mode == "direct"


async def test_tools_that_cannot_be_together_are_refused_and_nothing_stays_open() -> None:
    search = ToolSearch(tools=[echo_tool(), echo_tool()])
    with pytest.raises(CatalogError, match="two tools have the id 'openclaw:core:echo'"):
        async with search:
            pass


def test_it_has_no_run_before_it_is_open() -> None:
    with pytest.raises(RuntimeUnavailableError, match="use it in `async with`"):
        ToolSearch(tools=[echo_tool()]).definitions()


def test_servers_that_a_document_names_have_to_be_opened_by_whoever_gives_it() -> None:
    document: dict[str, Any] = {
        "tools": {"toolSearch": True},
        "mcp": {"servers": {"a": {"command": "a"}}},
    }
    with pytest.raises(ConfigError, match="McpConnections"):
        ToolSearch(config=document)
    ToolSearch(config=document, mcp=())


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
