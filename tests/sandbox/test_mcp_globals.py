"""`MCP` and `API` in real cells: what programs find in the shared data, and what they ask for."""

import json

import anyio
import pytest

from nacre.errors import HostRequestError
from nacre.json_types import JsonValue
from nacre.sandbox import (
    Completed,
    Failed,
    HostRequest,
    Limits,
    Sandbox,
    SandboxOptions,
    SharedData,
    Waiting,
)

METHODS = ("mcp.call", "mcp.api", "mcp.search", "api.list", "api.read")
SERVERS: JsonValue = {
    "github": {"tools": ["createIssue", "délai"]},
    "later": {"tools": None},
}
FILES: JsonValue = {"mcp/index.d.ts": "// “index” 🦪", "mcp/github.d.ts": "declare"}


def shared_data(**parts: JsonValue) -> SharedData:
    texts = {name: json.dumps(part).encode() for name, part in parts.items()}
    return SharedData(texts, methods=METHODS)


COMPLETE = shared_data(mcp=SERVERS, api=FILES, apiComplete={"": True})


async def echo(request: HostRequest) -> JsonValue:
    return [request.method, request.payload]


async def run(
    sandbox: Sandbox, code: str, shared: SharedData = COMPLETE, limits: Limits | None = None
) -> Completed | Failed | Waiting:
    with anyio.fail_after(50):
        return await sandbox.cell(code, shared=shared, handler=echo, limits=limits).run()


async def value_of(sandbox: Sandbox, code: str, shared: SharedData = COMPLETE) -> JsonValue:
    result = await run(sandbox, code, shared)
    assert isinstance(result, Completed), result
    return result.value


async def test_a_program_finds_its_servers_and_calls_their_functions(sandbox: Sandbox) -> None:
    code = """
        return [
            Object.keys(MCP), Object.keys(MCP.github), Object.keys(MCP.later),
            await MCP.github.createIssue({title: "a"}), await MCP.github.délai(),
            await MCP.later.anything({a: [1]}), await MCP.github.resources.read({uri: "u"}),
            await MCP.$api(), await MCP.github.$api("createIssue", {schema: true}),
            await MCP.$search("issues", {limit: 2}),
        ]
    """
    assert await value_of(sandbox, code) == [
        ["github", "later"],
        ["createIssue", "délai"],
        [],
        ["mcp.call", {"server": "github", "path": ["createIssue"], "input": {"title": "a"}}],
        ["mcp.call", {"server": "github", "path": ["délai"], "input": {}}],
        ["mcp.call", {"server": "later", "path": ["anything"], "input": {"a": [1]}}],
        ["mcp.call", {"server": "github", "path": ["resources", "read"], "input": {"uri": "u"}}],
        ["mcp.api", {"server": None, "tool": None, "schema": False}],
        ["mcp.api", {"server": "github", "tool": "createIssue", "schema": True}],
        ["mcp.search", {"query": "issues", "limit": 2}],
    ]


async def test_files_that_are_all_there_need_no_request(sandbox: Sandbox) -> None:
    code = """
        return [await API.list("mcp"), await API.read("mcp/index.d.ts")]
    """
    # Without methods, a request would cost the worker.
    parts = {name: COMPLETE.parts[name] for name in ("api", "apiComplete")}
    assert await value_of(sandbox, code, SharedData(parts, methods=())) == [
        [{"path": "mcp/index.d.ts", "size": 13}, {"path": "mcp/github.d.ts", "size": 7}],
        "// “index” 🦪",
    ]


async def test_files_that_are_not_there_yet_come_from_the_host(sandbox: Sandbox) -> None:
    code = """
        return [await API.list("mcp"), await API.read("mcp/later.d.ts"),
            await API.read("mcp/github.d.ts")]
    """
    assert await value_of(sandbox, code, shared_data(mcp=SERVERS, api=FILES)) == [
        ["api.list", {"prefix": "mcp"}],
        ["api.read", {"path": "mcp/later.d.ts"}],
        "declare",
    ]


async def test_without_parts_there_are_no_servers_and_no_files(sandbox: Sandbox) -> None:
    code = "return [Object.keys(MCP), MCP.github ?? null, await API.list(), `${typeof MCP.$api}`]"
    assert await value_of(sandbox, code, shared_data(apiComplete={"": True})) == [
        [],
        None,
        [],
        "function",
    ]


async def test_without_shared_data_there_is_neither_mcp_nor_api(sandbox: Sandbox) -> None:
    with anyio.fail_after(50):
        result = await sandbox.cell("return [typeof MCP, typeof API]").run()
    assert isinstance(result, Completed), result
    assert result.value == ["undefined", "undefined"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (
            "MCP.gitlab.list()",
            "TypeError: cannot read property 'list' of undefined "
            "(MCP.gitlab does not exist; servers: github, later)",
        ),
        (
            "MCP.github.close.now()",
            "TypeError: not a function (MCP.github.close does not exist; see MCP.github.$api())",
        ),
        (
            "await API.read('../secret')",
            "Error: API.read takes a path such as mcp/index.d.ts, without . or .. or empty names; "
            'it was given: "../secret"',
        ),
    ],
)
async def test_a_program_that_misses_something_learns_what_to_do(
    sandbox: Sandbox, code: str, error: str
) -> None:
    result = await run(sandbox, f"\n{code}")
    assert isinstance(result, Failed)
    assert result.error.splitlines()[0] == error
    assert "cell.js:2:" in result.error


async def test_hostile_names_are_found_nowhere(sandbox: Sandbox) -> None:
    code = r"""
        const names = [
            "__proto__", "constructor", "toString", "hasOwnProperty", "valueOf", "then", "toJSON",
            "", "0", "\ud800", "\0", "github\0", "$x", "a b", "__defineGetter__", "prototype",
        ];
        return names.filter((name) => [MCP, MCP.github, MCP.later].some((object) =>
            object[name] !== undefined || name in object))
    """
    assert await value_of(sandbox, code) == []


async def test_an_error_of_a_server_that_nobody_caught_is_a_failed_nested_call(
    sandbox: Sandbox,
) -> None:
    async def refuse(request: HostRequest) -> JsonValue:
        raise HostRequestError("the server is gone", name="ToolError")

    with anyio.fail_after(50):
        cell = sandbox.cell("await MCP.github.createIssue()", shared=COMPLETE, handler=refuse)
        result = await cell.run()
    assert isinstance(result, Failed)
    assert result.reason == "nested_tool_failed"
    assert result.error.splitlines()[0] == "ToolError: the server is gone"


async def test_a_suspended_program_goes_on_with_its_servers_and_files() -> None:
    code = """
        const {createIssue} = MCP.github;
        await yield_control();
        return [MCP.github.createIssue === createIssue, await createIssue(), Object.keys(MCP),
            await API.read("mcp/github.d.ts")]
    """
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        cell = sandbox.cell(code, shared=COMPLETE, handler=echo)
        with anyio.fail_after(50):
            assert isinstance(await cell.run(), Waiting)
            result = await cell.resume()
    assert isinstance(result, Completed), result
    assert result.value == [
        True,
        ["mcp.call", {"server": "github", "path": ["createIssue"], "input": {}}],
        ["github", "later"],
        "declare",
    ]


async def test_files_larger_than_the_memory_of_a_program_fail_only_the_program_that_reads_them(
    sandbox: Sandbox,
) -> None:
    large = shared_data(api={"a": "x" * (4 << 20), "b": "small"}, apiComplete={"": True})
    limits = Limits(memory_limit_bytes=2 << 20)
    result = await run(sandbox, "return await API.read('a')", large, limits)
    assert isinstance(result, Failed)
    assert result.reason == "memory_limit_exceeded"
    result = await run(sandbox, "return await API.read('b')", large, limits)
    assert isinstance(result, Completed), result
    assert result.value == "small"
