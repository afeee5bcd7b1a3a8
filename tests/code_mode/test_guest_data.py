"""The shared data and the declaration files that programs read."""

from collections.abc import Mapping
from typing import Any

import pytest

from nacre import NamespaceContext, RunContext, Runtime, namespace_tool
from nacre.code_mode.bridge import GuestViews
from nacre.code_mode.namespaces import NamespaceRuntime, serialise_scope
from nacre.json_types import JsonValue
from nacre.tools import build_catalog
from nacre.tools.definition import ListedServer
from tests.code_mode.issues_namespace import github_tools, issues
from tests.code_mode.mcp_servers import (
    CAUGHT,
    TITLED,
    LazyServer,
    listed,
    mcp_tool,
    outcome,
)
from tests.code_mode.outcomes import value_of
from tests.code_mode.tools import echo_tool
from tests.contract.requirements import requirement

# Equal to Python, and different to a program or at least as text.
EQUAL_TO_PYTHON: list[JsonValue] = [1, True, 1.0]


def opened(flag: JsonValue, global_name: str = "Issues") -> dict[str, NamespaceRuntime]:
    scope = {"flag": flag, "list": namespace_tool("list_issues")}
    runtime = NamespaceRuntime(
        issues(global_name=global_name),
        serialise_scope(scope, tool_names=("list_issues",)),
        plugin_id="github",
        tool_ids={"list_issues": "openclaw:github:list_issues"},
    )
    return {global_name: runtime}


@pytest.fixture
def views() -> GuestViews:
    return GuestViews(build_catalog(github_tools()))


def test_the_same_scope_made_twice_is_one_view(views: GuestViews) -> None:
    assert views.view(opened(1), {}) is views.view(opened(1), {})


def test_scopes_that_are_equal_only_to_python_are_different_views(views: GuestViews) -> None:
    made = [views.view(opened(flag), {}) for flag in EQUAL_TO_PYTHON]
    assert len({view.digest for view in made}) == len(EQUAL_TO_PYTHON)


@pytest.mark.parametrize("order", [EQUAL_TO_PYTHON, EQUAL_TO_PYTHON[::-1]], ids=repr)
def test_a_view_has_the_scope_that_it_was_asked_for_whatever_was_before(
    views: GuestViews, order: list[JsonValue]
) -> None:
    for flag in order:
        alone = GuestViews(build_catalog(github_tools())).view(opened(flag), {})
        assert views.view(opened(flag), {}).parts == alone.parts


def test_a_namespace_of_another_name_is_another_view(views: GuestViews) -> None:
    first = views.view(opened(1), {})
    second = views.view(opened(1, "Tickets"), {})
    assert first.digest != second.digest
    assert (first.parts["globals"], second.parts["globals"]) == (b'["Issues"]', b'["Tickets"]')


async def test_each_session_sees_its_own_scope_with_the_same_tools(runtime: Runtime) -> None:
    """All three runs share one catalog, and so what was made for the run before."""
    flags = dict(zip("abc", EQUAL_TO_PYTHON, strict=True))

    def scope(context: NamespaceContext) -> Mapping[str, object]:
        return {"flag": flags[context.session_id], "list": namespace_tool("list_issues")}

    runtime.namespaces.register("github", issues(create_scope=scope))
    tools = github_tools()
    seen: list[tuple[object, object]] = []
    for session_id in "abca":
        run = runtime.run(tools=tools, context=RunContext(session_id=session_id))
        flag, kind = value_of(await run.exec("return [Issues.flag, typeof Issues.flag]"))
        # As text: to Python, what came back of all of them is equal as well.
        seen.append((str(flag), kind))
    number, boolean = ("1", "number"), ("True", "boolean")
    assert seen == [number, boolean, number, number]


def huge_server(name: str) -> ListedServer:
    return listed(name, *(f"{'x' * 240}_{number}" for number in range(10_000)))


async def test_servers_with_endless_names_do_not_keep_programs_from_running(
    runtime: Runtime,
) -> None:
    """What does not fit into a worker is resolved by the host, as for a server not listed yet."""
    run = runtime.run(mcp=[huge_server("one"), huge_server("two"), listed("small", "echo")])
    code = f"""
        const name = "{"x" * 240}7";
        const found = await MCP.two[name]({{}});
        return [Object.keys(MCP.small), typeof found, (await API.list("mcp")).length]
    """
    assert value_of(await run.exec(code)) == [["echo"], "object", 4]


GITHUB = ListedServer(
    "github",
    [mcp_tool(description="Create an issue", parameters=TITLED), mcp_tool("list_all")],
)

# Of servers.


@requirement("validation:mcp-declarations")
async def test_the_file_of_a_server_declares_its_functions(runtime: Runtime) -> None:
    result = await runtime.run(mcp=[GITHUB]).exec("return API.read('mcp/github.d.ts')")
    text = value_of(result)
    assert "declare namespace MCP.github {" in text
    assert "function $api(toolName?: string" in text
    assert "* Create an issue" in text
    assert "@param title What it is about" in text
    assert (
        "function createIssue(input: { title: string; labels?: string[] }): Promise<McpToolResult>;"
    ) in text
    assert "function listAll(input?: {}): Promise<McpToolResult>;" in text
    assert result.usage.requests == 0


@requirement("validation:mcp-declarations")
async def test_files_of_listed_servers_are_listed_without_asking_the_host(
    runtime: Runtime,
) -> None:
    code = (
        "const files = await API.list('mcp');"
        "const texts = await Promise.all(files.map(file => API.read(file.path)));"
        "return [files.map(f => f.path), files.every((f, i) => f.size === texts[i].length),"
        " (await API.list('mcp/')).length, (await API.list('mcp/github.d.ts')).length,"
        " await API.list('mcp/git'), await API.list('mcp/nope')]"
    )
    result = await runtime.run(mcp=[GITHUB, listed("docs", "look_up")], tools=[echo_tool()]).exec(
        code
    )
    paths = ["mcp/index.d.ts", "mcp/github.d.ts", "mcp/docs.d.ts"]
    assert value_of(result) == [paths, True, 3, 1, [], []]
    assert result.usage.requests == 0


async def test_the_index_names_every_server_and_the_file_to_read(runtime: Runtime) -> None:
    result = await runtime.run(mcp=[GITHUB, LazyServer("later", "a")]).exec(
        "return API.read('mcp/index.d.ts')"
    )
    text = value_of(result)
    for expected in ("$search(", "github", "mcp/github.d.ts: createIssue, listAll", "later"):
        assert expected in text
    assert "mcp/later.d.ts" in text
    assert result.usage.requests == 0


async def test_a_server_cannot_take_the_place_of_the_index(runtime: Runtime) -> None:
    found = await outcome(
        runtime,
        "const [name] = Object.keys(MCP); const {file} = await MCP[name].$api();"
        "return [name, file, (await API.list('mcp')).map(f => f.path),"
        " (await API.read('mcp/index.d.ts')).includes('$search('),"
        " (await API.read(file)).includes('function look(')]",
        listed("index", "look"),
    )
    name, file, paths, has_index, has_file = found
    assert (file, paths) == (f"mcp/{name}.d.ts", ["mcp/index.d.ts", file])
    assert (file != "mcp/index.d.ts", has_index, has_file) == (True, True, True)


async def test_a_lazy_server_is_listed_without_being_started_and_started_when_its_file_is_read(
    runtime: Runtime,
) -> None:
    lazy = LazyServer("lazy", "do_it")
    run = runtime.run(mcp=[GITHUB, lazy])
    files = value_of(await run.exec("return API.list('mcp')"))
    assert [file["path"] for file in files] == [
        "mcp/index.d.ts",
        "mcp/github.d.ts",
        "mcp/lazy.d.ts",
    ]
    # How long a file will be is not known before it is made.
    assert ["size" in file for file in files] == [True, True, False]
    assert lazy.starts == 0
    text = value_of(await run.exec("return API.read('mcp/lazy.d.ts')"))
    assert ("function doIt(" in text, lazy.starts) == (True, 1)
    again = await run.exec("return API.read('mcp/lazy.d.ts')")
    assert (value_of(again), again.usage.requests) == (text, 0)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "",
            "/",
            ".",
            "mcp",
            "mcp/",
            "mcp/nope.d.ts",
            "mcp/later",
            "later.d.ts",
            "MCP/later.d.ts",
        ),
        *("tools/later.d.ts", "tools/nope.d.ts", "tools/core", "mcp/mcp/later.d.ts"),
        *("mcp/__proto__.d.ts", "mcp/constructor.d.ts", "__proto__", "constructor", "toString"),
        *("mcp/../mcp/later.d.ts", "./mcp/later.d.ts", "/mcp/later.d.ts", "mcp//later.d.ts"),
        *("mcp\\later.d.ts", "mcp/later.d.ts/", "mcp/later.d.ts\0", "../../etc/passwd"),
    ],
)
@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_path_that_is_none_is_refused_and_starts_nothing(
    runtime: Runtime, path: str, is_listed: bool
) -> None:
    later = listed("later", "a") if is_listed else LazyServer("later", "a")
    found = await outcome(
        runtime,
        f"return API.read({path!r}).then(() => 'read', e => e.message)",
        later,
        tools=[echo_tool()],
    )
    assert "there is no" in found or "takes a path such as" in found
    if isinstance(later, LazyServer):
        assert later.starts == 0


@pytest.mark.parametrize("prefix", ["..", "mcp/..", "/mcp", "mcp//", "mcp\\x", "./mcp"])
async def test_a_folder_that_is_no_plain_path_is_refused(runtime: Runtime, prefix: str) -> None:
    code = f"return API.list({prefix!r}).catch(e => e.message)"
    found = await outcome(runtime, code, LazyServer("later", "a"))
    assert "takes a path such as" in found


@pytest.mark.parametrize("given", ["5", "null", "{}", "['mcp']"])
async def test_a_path_has_to_be_text(runtime: Runtime, given: str) -> None:
    code = f"return [await API.read({given}){CAUGHT}, await API.list({given}){CAUGHT}]"
    read, listing = await outcome(runtime, code, GITHUB)
    assert (read["name"], listing["name"]) == ("TypeError", "TypeError")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("mcp/docs-server.d.ts", "mcp/docsServer.d.ts"),
        ("mcp/docs_server", "mcp/docsServer.d.ts"),
        ("mcp/docServer.d.ts", "mcp/docsServer.d.ts"),
        ("tools/issue-tracker.d.ts", "tools/issueTracker.d.ts"),
    ],
)
@pytest.mark.parametrize("is_listed", [True, False])
async def test_the_error_of_an_unknown_path_names_the_file_that_is_meant(
    runtime: Runtime, path: str, meant: str, is_listed: bool
) -> None:
    server = listed("docs-server", "a") if is_listed else LazyServer("docs-server", "a")
    found = await outcome(
        runtime,
        f"return API.read({path!r}).catch(e => e.message)",
        server,
        tools=[echo_tool("find", owner="issue-tracker")],
    )
    assert f"did you mean {meant!r}? API.list() names all paths" in found


async def test_tools_that_cannot_be_called_are_named_in_the_listing(runtime: Runtime) -> None:
    server = listed("docs", "a")
    note = "tool 'two words': left out: its name has a space */"
    setattr(server, "left_out", [note])  # noqa: B010
    code = "return [await API.read('mcp/docs.d.ts'), await MCP.docs.$api()]"
    file, header = await outcome(runtime, code, server)
    assert "/** tool 'two words': left out: its name has a space *\\/ */" in file
    assert (header["leftOut"], header["tools"]) == ([note], ["a"])


async def test_a_huge_path_is_refused_in_few_words(runtime: Runtime) -> None:
    code = "return API.read('mcp/' + 'x'.repeat(200000)).catch(e => e.message.length)"
    assert await outcome(runtime, code, LazyServer("later", "a")) < 600


# Of ordinary tools.


async def test_files_of_ordinary_tools_are_listed_by_owner_and_made_when_they_are_read(
    runtime: Runtime,
) -> None:
    tools = [
        echo_tool("read_file", parameters=TITLED, output_schema={"type": "string"}),
        echo_tool("find", owner="issue-tracker"),
        mcp_tool("hidden", "github"),
    ]
    found = await outcome(
        runtime,
        "return [(await API.list('tools')).map(f => f.path), (await API.list()).map(f => f.path),"
        " await API.read('tools/core.d.ts'), await API.read('tools/issueTracker.d.ts')]",
        tools=tools,
    )
    in_tools, in_all, core, tracker = found
    assert in_tools == ["tools/core.d.ts", "tools/issueTracker.d.ts"]
    assert in_all == ["mcp/index.d.ts", "mcp/github.d.ts", *in_tools]
    assert "declare namespace tools {" in core
    assert (
        "function read_file(input: { title: string; labels?: string[] }): Promise<string>" in core
    )
    assert "function find(" in tracker
    for text in (core, tracker):
        assert "hidden" not in text


@pytest.mark.parametrize("policy", [{"deny": ["secret"]}, {"allow": ["read"]}])
async def test_files_of_ordinary_tools_leave_out_what_is_denied(policy: dict[str, Any]) -> None:
    async with Runtime({"tools": {"codeMode": True, **policy}}, workers=1) as runtime:
        found = await outcome(
            runtime,
            "return API.read('tools/core.d.ts')",
            tools=[echo_tool("read"), echo_tool("secret")],
        )
    assert ("function read(" in found, "secret" in found) == (True, False)


async def test_a_run_without_servers_has_no_files_of_servers(runtime: Runtime) -> None:
    found = await outcome(
        runtime,
        f"return [await API.list('mcp'), await API.read('mcp/index.d.ts'){CAUGHT},"
        " (await API.list()).map(f => f.path)]",
        tools=[echo_tool()],
    )
    in_mcp, index, in_all = found
    assert (in_mcp, in_all) == ([], ["tools/core.d.ts"])
    assert "there is no" in index["message"]
