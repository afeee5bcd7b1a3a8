"""What cells find in their worker: made once, and made anew when anything in it differs."""

from collections.abc import Mapping

import pytest

from nacre import NamespaceContext, RunContext, Runtime, namespace_tool
from nacre.code_mode.guest_view import GuestViews
from nacre.code_mode.namespace_scope import serialise_scope
from nacre.code_mode.namespaces import NamespaceRuntime
from nacre.json_types import JsonValue
from nacre.tools import build_catalog
from nacre.tools.definition import ListedServer
from tests.code_mode.issues_namespace import github_tools, issues
from tests.code_mode.mcp_servers import listed
from tests.code_mode.outcomes import value_of

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
