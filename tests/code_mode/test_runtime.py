"""Code mode in runs: the tools that the model sees, and no fallback to direct tools."""

from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre import CodeMode, RunContext, Runtime
from nacre.errors import ConfigError, NamespaceError, RuntimeUnavailableError
from nacre.sandbox.image import WasmError, load_image
from nacre.tools.definition import DefinitionFormat, ListedServer
from tests.code_mode.issues_namespace import github_tools, issues
from tests.code_mode.outcomes import failure_of, value_of
from tests.code_mode.tools import echo_tool
from tests.contract.requirements import requirement

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
DESCRIBED = {"name": "echo", "description": "Return the input of echo"}
FORMATS: list[tuple[DefinitionFormat, dict[str, Any]]] = [
    ("openai", {"type": "function", "function": {**DESCRIBED, "parameters": SCHEMA}}),
    (
        "openai-responses",
        {"type": "function", **DESCRIBED, "parameters": SCHEMA, "strict": False},
    ),
    ("anthropic", {**DESCRIBED, "input_schema": SCHEMA}),
    ("mcp", {**DESCRIBED, "inputSchema": SCHEMA}),
]


def name_in(definition: Any) -> str:
    return definition.get("function", definition)["name"]


@requirement("validation:off-changes-nothing")
@pytest.mark.parametrize(("format", "expected"), FORMATS)
@pytest.mark.parametrize("setting", [False, {"enabled": False}])
async def test_when_off_the_model_is_shown_the_tools_themselves(
    setting: object, format: DefinitionFormat, expected: dict[str, Any]
) -> None:
    async with Runtime({"tools": {"codeMode": setting}}, workers=1) as runtime:
        run = runtime.run(tools=[echo_tool(parameters=SCHEMA), echo_tool("exec")])
        assert not run.is_code_mode
        assert run.visible_names == ("echo", "exec")
        shown, shell = run.definitions(format)
        assert shown == expected
        # A tool that is named like one of code mode's is still the tool.
        result = await run.call("exec", {"command": "ls"})
        assert isinstance(result, nacre.DirectResult)
        assert (name_in(shell), result.value) == ("exec", {"command": "ls"})


@requirement("validation:settings-alone-are-off")
@pytest.mark.parametrize(
    "document",
    [
        {"tools": {}},
        {"tools": {"codeMode": {}}},
        {"tools": {"codeMode": {"timeoutMs": 500, "languages": ["javascript"]}}},
        {"agents": {"list": []}},
    ],
)
async def test_settings_in_a_document_do_not_switch_it_on(document: dict[str, Any]) -> None:
    async with Runtime(document, workers=1) as runtime:
        run = runtime.run(tools=[echo_tool()])
        assert run.visible_names == ("echo",)
        failed = failure_of(await run.exec("return 1"))
        assert failed.error == "code mode is off (`tools.codeMode.enabled`)"


@requirement("validation:only-exec-and-wait")
@pytest.mark.parametrize("setting", [True, {"enabled": True}])
@pytest.mark.parametrize("format", [format for format, _ in FORMATS])
async def test_when_on_the_model_is_shown_exec_and_wait_alone(
    setting: object, format: DefinitionFormat
) -> None:
    tools = [
        echo_tool(),
        echo_tool("browse", owner="web"),
        echo_tool("create", owner="github", source="mcp"),
        echo_tool("pick", owner="app", source="client"),
    ]
    async with Runtime({"tools": {"codeMode": setting}}, workers=1) as runtime:
        run = runtime.run(tools=tools)
        assert run.is_code_mode
        assert [name_in(each) for each in run.definitions(format)] == ["exec", "wait"]
        assert run.visible_names == ("exec", "wait")


async def test_an_agent_may_have_it_on_or_off_for_itself() -> None:
    document = {
        "tools": {"codeMode": True},
        "agents": {"list": [{"id": "plain", "tools": {"codeMode": False}}]},
    }
    async with Runtime(document, workers=1) as runtime:
        shown = {
            agent: runtime.run(
                tools=[echo_tool()], context=RunContext(agent_id=agent)
            ).visible_names
            for agent in ("main", "plain")
        }
    assert shown == {"main": ("exec", "wait"), "plain": ("echo",)}


@requirement("validation:runs-without-tools")
@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ({}, {"tools": []}),
        ({}, {"tools": [echo_tool()], "tools_disabled": True}),
        ({"allow": []}, {"tools": [echo_tool()]}),
        ({"deny": ["*"]}, {"tools": [echo_tool()]}),
    ],
)
async def test_a_run_without_tools_is_shown_none_and_is_not_in_code_mode(
    policy: dict[str, Any], options: dict[str, Any]
) -> None:
    async with Runtime({"tools": {"codeMode": True, **policy}}, workers=1) as runtime:
        run = runtime.run(**options)
        assert (run.is_code_mode, run.visible_names, run.definitions()) == (False, (), [])
        failed = failure_of(await run.call("exec", {"code": "return 1"}))
        assert failed.reason == "invalid_input"


async def test_a_sandboxed_run_has_what_the_sandbox_policy_leaves() -> None:
    document = {"tools": {"codeMode": True, "sandbox": {"tools": {"deny": ["shell"]}}}}
    code = "return ALL_TOOLS.map(t => t.name)"
    tools = [echo_tool("read"), echo_tool("shell")]
    async with Runtime(document, workers=1) as runtime:
        inside = runtime.run(tools=tools, context=RunContext(is_sandboxed=True))
        outside = runtime.run(tools=tools)
        assert value_of(await inside.exec(code)) == ["read"]
        assert value_of(await outside.exec(code)) == ["read", "shell"]


# Fail closed.


@requirement("security:fails-closed")
async def test_without_a_sandbox_exec_fails_and_the_model_is_shown_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_library() -> Path:
        raise WasmError("the wasmtime package is not installed; reinstall nacre")

    monkeypatch.setattr("nacre.sandbox.pool.library_path", no_library)
    async with Runtime(workers=1) as runtime:
        run = runtime.run(tools=[echo_tool()])
        for _ in range(2):
            failed = failure_of(await run.exec("return 1"))
            assert (failed.code, failed.reason) == ("runtime_unavailable", "runtime_unavailable")
            assert failed.error == "the wasmtime package is not installed; reinstall nacre"
            assert [name_in(each) for each in run.definitions()] == ["exec", "wait"]
        failed = failure_of(await run.call("echo", {}))
        assert "there is no tool 'echo'" in failed.error


@requirement("security:own-engine")
def test_the_engine_comes_with_the_package_and_is_what_it_was_built_with() -> None:
    image = load_image("cell")
    assert Path(nacre.__file__).parent in Path(image.path).parents
    # Refused if it were another.
    assert image.wasm().startswith(b"\0asm")


async def test_a_runtime_makes_runs_only_while_it_is_open() -> None:
    runtime = Runtime(workers=1)
    with pytest.raises(RuntimeUnavailableError, match="not open"):
        runtime.run(tools=[])
    async with runtime:
        pass
    with pytest.raises(RuntimeUnavailableError, match="not open"):
        runtime.run(tools=[])


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"timeoutMs": "soon"}, "config.timeoutMs"),
        ([], "config"),
    ],
)
def test_a_config_that_is_wrong_is_refused_by_its_path(config: Any, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Runtime(config)
    assert caught.value.path == path


@pytest.mark.parametrize("most", [0, -1, True, 1.5, 1_000_000])
def test_the_number_of_suspended_cells_has_limits(most: Any) -> None:
    with pytest.raises(ConfigError, match="whole numbers from 1 to 100000"):
        Runtime(max_suspended_cells=most)


SERVERS: dict[str, Any] = {"tools": {"codeMode": True}, "mcp": {"servers": {"a": {"command": "a"}}}}


async def test_servers_that_a_document_names_have_to_be_opened_by_whoever_gives_it() -> None:
    with pytest.raises(
        ConfigError, match=r"`mcp\.servers` names .* `McpConnections` .*`mcp="
    ) as it:
        async with CodeMode(config=SERVERS, workers=1):
            pass
    assert it.value.path == "mcp.servers"
    async with Runtime(SERVERS, workers=1) as runtime:
        with pytest.raises(ConfigError):
            runtime.run()


async def test_servers_that_are_given_or_not_wanted_are_no_fault_of_the_document() -> None:
    async with CodeMode(config=SERVERS, mcp=[ListedServer("a", [])], workers=1) as code_mode:
        assert value_of(await code_mode.exec("return Object.keys(MCP)")) == ["a"]
    async with CodeMode(config=SERVERS, tools=[echo_tool()], mcp=(), workers=1) as code_mode:
        assert value_of(await code_mode.exec("return Object.keys(MCP)")) == []


# The lifetime of `CodeMode`


async def run_in_task(function: Callable[[], Coroutine[None, None, object]]) -> None:
    """Call the function in a task of its own, as cells of a notebook are."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(function)


async def test_code_mode_is_opened_in_one_task_and_closed_in_another() -> None:
    code_mode = CodeMode(tools=[echo_tool()], workers=1)
    await run_in_task(code_mode.open)
    assert value_of(await code_mode.exec("return await tools.echo({n: 1})")) == {"n": 1}
    await run_in_task(code_mode.aclose)
    assert failure_of(await code_mode.exec("return 1")).reason == "aborted"
    # As in a `finally` after an `async with`.
    await code_mode.aclose()


async def test_the_block_of_code_mode_is_left_in_another_task() -> None:
    code_mode = CodeMode(workers=1)
    await run_in_task(code_mode.__aenter__)
    await run_in_task(partial(code_mode.__aexit__, None, None, None))
    with pytest.raises(RuntimeUnavailableError, match="opened only once"):
        await code_mode.open()


async def test_a_cancelled_block_of_code_mode_closes_it() -> None:
    code_mode = CodeMode(workers=1)
    with anyio.CancelScope() as scope:
        async with code_mode:
            scope.cancel()
            await anyio.sleep_forever()
    with pytest.raises(RuntimeUnavailableError, match="not open"):
        code_mode.runtime.run()


async def test_an_error_of_a_new_run_is_raised_by_open() -> None:
    code_mode = CodeMode(config={"mcp": {"servers": {"a": {"command": "b"}}}}, workers=1)
    with pytest.raises(ConfigError, match="names MCP servers"):
        await code_mode.open()


def test_a_namespace_without_its_plugin_is_refused() -> None:
    with pytest.raises(NamespaceError, match="namespaces has a Namespace; allowed: pairs of"):
        CodeMode(tools=github_tools(), namespaces=[issues()])  # pyright: ignore[reportArgumentType]


def test_a_namespace_of_a_plugin_that_does_not_own_its_tools_is_refused() -> None:
    with pytest.raises(NamespaceError, match="of this plugin; it belongs to 'github'"):
        CodeMode(tools=github_tools(), namespaces=[("gitlab", issues())])
    with pytest.raises(NamespaceError, match="of this plugin; there is none"):
        CodeMode(namespaces=[("github", issues())])
