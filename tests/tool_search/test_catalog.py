"""What is in the catalog at one moment: tools of the run, and of servers that come and go."""

import threading
from collections.abc import Iterable

import anyio
import pytest

from nacre.config.tools import ToolRules
from nacre.errors import CatalogError
from nacre.tool_search.catalog import LiveCatalog
from nacre.tools import ToolPolicy
from nacre.tools.catalog import NearestNames
from nacre.tools.definition import ListedServer
from tests.code_mode.mcp_servers import BrokenServer, LazyServer, listed, mcp_tool
from tests.code_mode.tools import echo_tool
from tests.tool_search.runs import failure_of, run_with

OPEN = ToolPolicy()


def ids_of(catalog: LiveCatalog) -> list[str]:
    return [entry.id for entry in catalog.listing().catalog.entries]


def test_the_tools_of_listed_servers_are_there_at_once() -> None:
    catalog = LiveCatalog([echo_tool()], servers=[listed("github", "search")], policy=OPEN)
    assert ids_of(catalog) == ["openclaw:core:echo", "mcp:github:search"]


def test_a_listing_stays_the_same_until_a_server_lists_anew() -> None:
    server = listed("github", "search", "create")
    catalog = LiveCatalog([], servers=[server], policy=OPEN)
    before = catalog.listing()
    assert catalog.listing() is before
    server.known_tools = [mcp_tool("create", "github")]
    assert ids_of(catalog) == ["mcp:github:create"]
    assert before.resolve("mcp:github:search") is not None


def test_what_policy_denies_is_in_no_listing() -> None:
    policy = ToolPolicy([("tools", ToolRules(deny=("delete*",)))])
    tools = [echo_tool(), echo_tool("delete_all")]
    catalog = LiveCatalog(tools, servers=[listed("github", "search", "delete_repo")], policy=policy)
    assert ids_of(catalog) == ["openclaw:core:echo", "mcp:github:search"]
    for denied in ("openclaw:core:delete_all", "mcp:github:delete_repo"):
        assert catalog.listing().resolve(denied) is None
        tool = catalog.find_denied(denied)
        assert tool is not None and tool.id == denied
    assert catalog.find_denied("mcp:github:search") is None


async def test_asking_for_all_starts_what_is_not_started() -> None:
    server = LazyServer("github", "search")
    catalog = LiveCatalog([], servers=[server], policy=OPEN)
    assert ids_of(catalog) == []
    listing, problems = await catalog.started_listing()
    assert listing.resolve("mcp:github:search") is not None
    assert problems == {}
    await catalog.started_listing()
    assert server.starts == 1


async def test_asking_for_one_starts_its_server_alone() -> None:
    github, mail = LazyServer("github", "search"), LazyServer("mail", "send")
    catalog = LiveCatalog([echo_tool()], servers=[github, mail], policy=OPEN)
    await catalog.listing_for("openclaw:core:echo")
    await catalog.listing_for("send")
    listing, problem = await catalog.listing_for("mcp:mail:send")
    assert (listing.resolve("mcp:mail:send") is not None, problem) == (True, "")
    assert (github.starts, mail.starts) == (0, 1)


async def test_a_broken_server_is_named_and_spoils_nothing() -> None:
    servers = [
        BrokenServer(),
        BrokenServer("odd", error=RuntimeError("what is this")),
        LazyServer("github", "search"),
    ]
    catalog = LiveCatalog([], servers=servers, policy=OPEN)
    listing, problems = await catalog.started_listing()
    assert [entry.id for entry in listing.catalog.entries] == ["mcp:github:search"]
    assert problems == {
        "broken": "the MCP server broken does not start: no such file",
        "odd": "the MCP server odd could not be asked for its tools: what is this",
    }


async def test_a_slow_server_holds_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nacre.tools.servers._FIRST_WAIT_SECONDS", 0.01)
    slow = LazyServer("slow", "wait_long", is_held=True)
    catalog = LiveCatalog([echo_tool()], servers=[slow], policy=OPEN)
    with anyio.fail_after(5):
        listing, problems = await catalog.started_listing()
    assert [entry.id for entry in listing.catalog.entries] == ["openclaw:core:echo"]
    assert problems == {"slow": "the MCP server slow is still starting; try again later"}


async def test_a_server_that_lists_a_tool_twice_is_left_out_and_named() -> None:
    twice = ListedServer("twice", [mcp_tool("a", "twice"), mcp_tool("a", "twice")])
    catalog = LiveCatalog([], servers=[twice, listed("github", "search")], policy=OPEN)
    listing, problems = await catalog.started_listing()
    assert [entry.id for entry in listing.catalog.entries] == ["mcp:github:search"]
    assert "two tools have the id 'mcp:twice:a'" in problems["twice"]


async def test_a_server_that_lists_tools_of_others_is_left_out_and_named() -> None:
    for foreign in (mcp_tool("search", "github"), echo_tool()):
        thief = ListedServer("thief", [mcp_tool("a", "thief"), foreign])
        catalog = LiveCatalog(
            [echo_tool()], servers=[thief, listed("github", "search")], policy=OPEN
        )
        listing, problems = await catalog.started_listing()
        ids = [entry.id for entry in listing.catalog.entries]
        assert ids == ["openclaw:core:echo", "mcp:github:search"]
        assert problems == {"thief": "it lists tools that are not its own"}


def test_what_a_server_offers_besides_tools_is_no_tool() -> None:
    catalog = LiveCatalog([], servers=[listed("docs", "search", "$resources.read")], policy=OPEN)
    assert ids_of(catalog) == ["mcp:docs:search"]


def test_two_servers_of_one_name_are_refused() -> None:
    with pytest.raises(CatalogError, match="two MCP servers are named 'github'"):
        LiveCatalog([], servers=[listed("github"), listed("github")], policy=OPEN)
    with pytest.raises(CatalogError, match="two MCP servers are named 'github'"):
        LiveCatalog([mcp_tool()], servers=[listed("github")], policy=OPEN)


def test_a_name_means_a_tool_only_if_one_alone_has_it() -> None:
    tools = [echo_tool("read", owner="a"), echo_tool("read", owner="b"), echo_tool("write")]
    tools.append(echo_tool("mcp:secret:read", owner="c"))
    listing = LiveCatalog(tools, servers=[], policy=OPEN).listing()
    write = listing.resolve("write")
    assert write is not None and write.id == "openclaw:core:write"
    assert listing.resolve("read") is None
    # Named like an id that this run does not have.
    assert listing.resolve("mcp:secret:read") is None


@pytest.mark.parametrize("wanted", ["mcp:github:create_isue", "create_isue", "Create-Issue"])
def test_a_wrong_id_is_answered_with_the_nearest(wanted: str) -> None:
    tools = [mcp_tool("create_issue"), mcp_tool("list_files")]
    listing = LiveCatalog(tools, servers=[], policy=OPEN).listing()
    assert listing.nearest(wanted) == ["mcp:github:create_issue"]
    assert listing.nearest("x" * 1_000_000) == []


async def test_names_of_thousands_are_made_comparable_outside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    makers: list[threading.Thread] = []
    make = NearestNames.__init__

    def noted(self: NearestNames, names: Iterable[str]) -> None:
        makers.append(threading.current_thread())
        make(self, names)

    monkeypatch.setattr(NearestNames, "__init__", noted)
    run = await run_with(
        tools=[echo_tool(f"echo_{number}") for number in range(600)], config={"mode": "tools"}
    )
    failed = failure_of(await run.call("tool_describe", {"id": "ecko_7"}))
    assert "nearest: openclaw:core:echo_7" in failed.error
    assert len(makers) == 1 and makers[0] is not threading.current_thread()
