"""The names under which a program may call tools."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.tools.definition import Tool, ToolCall
from nacre.tools.tool_names import HELPER_NAMES, convenience_names, safe_name


async def nothing(input: dict[str, object], call: ToolCall) -> object:
    return None


def tool(name: str, owner: str = "core") -> Tool:
    return Tool(name=name, owner=owner, execute=nothing)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("web_search", "web_search"),
        ("web-search", "web_search"),
        ("files.read", "files_read"),
        ("3d_render", "_3d_render"),
        ("$cost", "$cost"),
        ("delete", "delete"),
        ("搜索", "搜索"),
        ("cafe\u0301", "café"),
        ("a\u200bb", "a_b"),
        ("\U0001f600go", "_go"),
        ("-", "_"),
    ],
)
def test_a_safe_name_is_an_identifier_near_the_name(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@pytest.mark.parametrize(
    "name",
    [
        *sorted(HELPER_NAMES),
        "then",
        "toJSON",
        "constructor",
        "prototype",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "toLocaleString",
        "toString",
        "valueOf",
        "__proto__",
        "__defineGetter__",
        "__openclaw_call",
        "--proto--",
        "-_proto__",
    ],
)
def test_helpers_and_what_every_object_has_are_never_names_of_tools(name: str) -> None:
    assert safe_name(name) is None
    assert convenience_names([tool(name)]) == {}


@given(st.text(min_size=1, max_size=12))
def test_whatever_the_name_a_safe_name_is_an_identifier(name: str) -> None:
    safe = safe_name(name)
    assert safe is None or safe.replace("$", "_").isidentifier()


def test_each_tool_is_found_under_its_safe_name() -> None:
    tools = [tool("read-file"), tool("exec"), tool("issues", owner="github")]
    assert convenience_names(tools) == {
        "read_file": "openclaw:core:read-file",
        "exec": "openclaw:core:exec",
        "issues": "openclaw:github:issues",
    }


def test_names_that_become_the_same_belong_to_neither_tool() -> None:
    tools = [tool("read-file"), tool("read.file"), tool("read_file"), tool("write")]
    assert convenience_names(tools) == {"write": "openclaw:core:write"}


def test_the_same_name_of_two_owners_belongs_to_neither() -> None:
    assert convenience_names([tool("send", owner="mail"), tool("send", owner="chat")]) == {}
