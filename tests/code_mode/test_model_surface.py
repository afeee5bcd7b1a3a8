"""What the model is shown of a run's tools, and the check of what is really sent."""

import pytest

from nacre.code_mode.model_surface import ModelSurface, visible_tools
from nacre.config.code_mode import CodeModeConfig
from nacre.errors import CatalogError
from tests.code_mode.simple_tools import simple_tool

ON = CodeModeConfig(enabled=True)
OFF = CodeModeConfig()

SHELL = simple_tool("exec")
READ = simple_tool("read")
GITHUB = simple_tool("create_issue", owner="github", source="mcp")
IMAGE = simple_tool("show_image", catalog_mode="direct-only")
SEARCH = simple_tool("tool_search")
PLUGIN_SEARCH = simple_tool("tool_search", owner="phone")


def test_when_off_all_tools_are_shown_unchanged() -> None:
    tools = [SHELL, READ, GITHUB, IMAGE, SEARCH]
    surface = visible_tools(tools, config=OFF)
    assert surface == ModelSurface(is_code_mode=False, direct_tools=tuple(tools), cataloged=())
    assert surface.tool_names == ("exec", "read", "create_issue", "show_image", "tool_search")


def test_when_on_only_exec_and_wait_are_shown_and_the_shell_is_cataloged() -> None:
    surface = visible_tools([SHELL, READ, GITHUB], config=ON)
    assert surface == ModelSurface(
        is_code_mode=True, direct_tools=(), cataloged=(SHELL, READ, GITHUB)
    )
    assert surface.tool_names == ("exec", "wait")


def test_tools_that_no_catalog_can_hold_are_shown_beside_exec_and_wait() -> None:
    surface = visible_tools([READ, IMAGE], config=ON)
    assert (surface.direct_tools, surface.cataloged) == ((IMAGE,), (READ,))
    assert surface.tool_names == ("exec", "wait", "show_image")


def test_tool_search_controls_are_in_neither_place_but_a_plugin_s_tool_of_that_name_is() -> None:
    surface = visible_tools([READ, SEARCH, PLUGIN_SEARCH], config=ON)
    assert (surface.direct_tools, surface.cataloged) == ((), (READ, PLUGIN_SEARCH))


def test_a_run_without_tools_is_shown_none() -> None:
    assert visible_tools([], config=ON).tool_names == ()
    disabled = visible_tools([READ, IMAGE], config=ON, tools_disabled=True)
    assert (disabled.is_code_mode, disabled.tool_names, disabled.cataloged) == (False, (), ())


@pytest.mark.parametrize("name", ["exec", "wait"])
def test_a_direct_only_tool_may_not_take_the_place_of_exec_or_wait(name: str) -> None:
    taker = simple_tool(name, owner="evil", catalog_mode="direct-only")
    with pytest.raises(CatalogError, match=f"openclaw:evil:{name} .* belongs to code mode"):
        visible_tools([READ, taker], config=ON)


def test_two_direct_only_tools_may_not_share_a_name() -> None:
    other = simple_tool("show_image", owner="other", catalog_mode="direct-only")
    with pytest.raises(CatalogError, match=r"other:show_image .* openclaw:core:show_image"):
        visible_tools([READ, IMAGE, other], config=ON)
