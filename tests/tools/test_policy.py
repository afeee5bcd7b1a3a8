"""Which tools a run may use, and what a configuration may say about it."""

from typing import Any

import pytest

from nacre.config.tools import SOURCE_GROUPS, ToolRules, tools_config_from
from nacre.errors import ConfigError
from nacre.run_context import RunContext
from nacre.tools.definition import SOURCES, Tool, ToolCall, ToolSource
from nacre.tools.policy import ToolPolicy, effective_tools, policy_for


async def nothing(given: dict[str, Any], call: ToolCall) -> object:
    raise NotImplementedError


def named(name: str, owner: str = "core", source: ToolSource = "openclaw") -> Tool:
    return Tool(name=name, owner=owner, source=source, execute=nothing)


EXEC = named("exec")
READ = named("read_file")
ISSUES = named("list_issues", owner="github")
QUERY = named("query", owner="db", source="mcp")
PICK = named("pick_colour", owner="app", source="client")
ALL = [EXEC, READ, ISSUES, QUERY, PICK]


def rules_of(value: object) -> ToolRules:
    """The rules of `tools.sandbox.tools`, which has nothing but rules."""
    ((_, rules),) = tools_config_from(
        {"tools": {"sandbox": {"tools": value}}}, "main"
    ).sandbox_rules
    return rules


def permitted(rules: ToolRules) -> list[str]:
    policy = ToolPolicy([("tools", rules)])
    return [tool.name for tool in effective_tools(ALL, policy)]


def names_for(config: dict[str, object], context: RunContext | None = None) -> list[str]:
    context = context or RunContext()
    policy = policy_for(tools_config_from(config, context.agent_id), context)
    return [tool.name for tool in effective_tools(ALL, policy)]


EVERY_NAME = [tool.name for tool in ALL]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("exec", ["exec"]),
        ("EXEC", ["exec"]),
        ("openclaw:core:exec", ["exec"]),
        ("core", ["exec", "read_file"]),
        ("github", ["list_issues"]),
        ("group:mcp", ["query"]),
        ("Group:Client", ["pick_colour"]),
        ("bundle-mcp", ["query"]),
        ("*", EVERY_NAME),
        ("list_*", ["list_issues"]),
        ("*_*e", ["read_file"]),
        ("mcp:*", ["query"]),
        ("ex?c", ["exec"]),
        ("exe", []),
        ("xec", []),
        ("?", []),
    ],
)
def test_a_pattern_matches_name_id_owner_or_group(pattern: str, matched: list[str]) -> None:
    assert permitted(ToolRules(allow=(pattern,))) == matched
    assert permitted(ToolRules(deny=(pattern,))) == [n for n in EVERY_NAME if n not in matched]


@pytest.mark.parametrize(
    ("pattern", "name", "owner"),
    [
        ("group:openclaw", "group:openclaw", "evil"),
        ("openclaw:core:a", "openclaw:core:a", "evil"),
        ("openclaw:*", "openclaw:x", "evil"),
        ("*:core:*", "x:core:y", "evil"),
        ("*:core:*", "core:y", "evil"),
        ("client:app:*", "client:app:x", "evil"),
        ("client:*:safe_*", "x:safe_y", "evil"),
        ("bundle-mcp", "bundle-mcp", "evil"),
        ("core", "core", "evil"),
        ("core", "x", "core"),
        ("CORE", "Core", "evil"),
        ("github", "x", "github"),
        ("git*", "x", "github"),
    ],
)
def test_a_client_cannot_name_its_tool_into_an_allow_rule(
    pattern: str, name: str, owner: str
) -> None:
    tool = named(name, owner=owner, source="client")
    assert not ToolPolicy([("t", ToolRules(allow=(pattern,)))]).permits(tool)
    # What denies stays broad: there a name that looks like something else is reason enough.
    assert not ToolPolicy([("t", ToolRules(deny=(pattern,)))]).permits(tool)


@pytest.mark.parametrize(
    ("pattern", "tool"),
    [
        ("client:app:*", PICK),
        ("*:app:*", PICK),
        ("*:pick_colour", PICK),
        ("pick_*", PICK),
        ("mcp:*:query", QUERY),
        ("mcp:d*", QUERY),
        ("db", QUERY),
        ("group:*", QUERY),
        ("fs:read", named("fs:read", owner="x", source="client")),
        ("client:x:fs:read", named("fs:read", owner="x", source="client")),
    ],
)
def test_an_allow_rule_still_reaches_what_it_names(pattern: str, tool: Tool) -> None:
    assert ToolPolicy([("t", ToolRules(allow=(pattern,)))]).permits(tool)


@pytest.mark.parametrize(
    "pattern", ["caf\u00e9", "cafe\u0301", "CAFE\u0301", "caf?", "*:caf\u00c9"]
)
def test_an_accent_is_the_same_however_it_is_typed(pattern: str) -> None:
    for name in ("caf\u00e9", "cafe\u0301"):
        assert not ToolPolicy([("t", ToolRules(deny=(pattern,)))]).permits(named(name))
        assert ToolPolicy([("t", ToolRules(allow=(pattern,)))]).permits(named(name))


def test_without_rules_every_tool_is_permitted() -> None:
    assert permitted(ToolRules()) == EVERY_NAME
    assert effective_tools(ALL, ToolPolicy()) == ALL


def test_an_empty_allow_list_permits_nothing() -> None:
    assert permitted(ToolRules(allow=())) == []


def test_also_allow_adds_to_allow_and_does_not_narrow_everything() -> None:
    assert permitted(ToolRules(allow=("exec",), also_allow=("github",))) == ["exec", "list_issues"]
    assert permitted(ToolRules(allow=(), also_allow=("github",))) == ["list_issues"]
    assert permitted(ToolRules(also_allow=("github",))) == EVERY_NAME


def test_deny_wins_over_allow_in_every_form() -> None:
    rules = ToolRules(allow=("*", "exec"), also_allow=("exec",), deny=("ex*",))
    assert "exec" not in permitted(rules)


def test_every_place_has_to_permit_a_tool() -> None:
    policy = ToolPolicy(
        [("tools", ToolRules(allow=("core",))), ("agent", ToolRules(allow=("exec", "query")))]
    )
    assert effective_tools(ALL, policy) == [EXEC]


def test_a_refusal_names_the_setting() -> None:
    policy = ToolPolicy([("tools", ToolRules(allow=("core",), deny=("EX*",)))])
    assert policy.refusal(EXEC) == 'exec is not permitted: `tools.deny` has "EX*"'
    assert policy.refusal(QUERY) == "query is not permitted: `tools.allow` does not name it"
    assert policy.refusal(READ) is None


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("a*b*c", "a__b__c", True),
        ("a*b*c", "a__c__b", False),
        ("***", "anything", True),
        ("a*", "a*b", True),
        ("?*?", "ab", True),
        ("a?", "a", False),
        ("*ab", "aab", True),
        ("[ae]*", "exec", False),
        ("STRASSE", "straße", True),
    ],
)
def test_wildcards_are_the_only_special_characters(pattern: str, name: str, is_match: bool) -> None:
    tool = named(name, owner="zz")
    assert ToolPolicy([("t", ToolRules(allow=(pattern,)))]).permits(tool) is is_match


def test_a_pattern_of_many_stars_takes_no_longer_than_others() -> None:
    policy = ToolPolicy([("tools", ToolRules(deny=("*a" * 100 + "*!",)))])
    assert policy.permits(named("a" * 256))


def test_rules_are_read() -> None:
    value = {"allow": ["a"], "deny": ["b"], "alsoAllow": ["c", "c*"]}
    expected = ToolRules(allow=("a",), deny=("b",), also_allow=("c", "c*"))
    assert rules_of(value) == expected
    assert rules_of(None) == rules_of({"allow": None}) == ToolRules()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "`x` is a number; allowed: an object"),
        ({"allowed": []}, '`x` has the unknown key "allowed"; did you mean `allow`?'),
        ({"x": []}, '`x` has the unknown key "x"; known: allow, deny, alsoAllow'),
        ({"allow": "exec"}, '`x.allow` is "exec"; allowed: a list of names, ids or owners'),
        ({"deny": [3]}, "`x.deny[0]` is 3; allowed: names, ids or owners of tools"),
        ({"deny": ["a", ""]}, '`x.deny[1]` is ""; allowed: a tool\'s name'),
        ({"deny": [" exec"]}, '`x.deny[0]` is " exec"; allowed: a tool\'s name'),
        (
            {"deny": ["group:files"]},
            '`x.deny[0]` is "group:files"; known groups: group:client, group:fs, group:mcp, '
            "group:messaging, group:openclaw, group:runtime, group:web",
        ),
    ],
)
def test_rules_that_could_never_hold_are_refused_by_path(value: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules_of(value)
    assert str(caught.value).replace("tools.sandbox.tools", "x").startswith(message)


def test_every_source_is_a_group() -> None:
    assert {f"group:{source}" for source in SOURCES} == set(SOURCE_GROUPS)


def test_a_config_without_rules_permits_everything() -> None:
    assert names_for({}) == EVERY_NAME
    assert names_for({"tools": {"codeMode": True, "toolSearch": {}}}) == EVERY_NAME


def test_global_and_agent_rules_both_hold() -> None:
    config: dict[str, object] = {
        "tools": {"codeMode": True, "deny": ["exec"]},
        "agents": {
            "defaults": {"model": "m"},
            "list": [
                {"id": "main", "tools": {"allow": ["core", "query"]}},
                {"id": "other", "tools": {"allow": []}},
            ],
        },
    }
    assert names_for(config) == ["read_file", "query"]
    assert names_for(config, RunContext(agent_id="Other")) == []
    assert names_for(config, RunContext(agent_id="third")) == [n for n in EVERY_NAME if n != "exec"]


def test_agents_may_be_a_map() -> None:
    config: dict[str, object] = {"agents": {"main": {"tools": {"allow": ["exec"]}}, "b": {}}}
    assert names_for(config) == ["exec"]
    assert names_for(config, RunContext(agent_id="b")) == EVERY_NAME


def test_sandbox_rules_hold_for_sandboxed_runs_only() -> None:
    config: dict[str, object] = {
        "tools": {"sandbox": {"tools": {"allow": ["exec"], "alsoAllow": ["bundle-mcp"]}}}
    }
    assert names_for(config) == EVERY_NAME
    assert names_for(config, RunContext(is_sandboxed=True)) == ["exec", "query"]


def test_an_agents_own_sandbox_rules_hold_as_well() -> None:
    agent = {"id": "main", "tools": {"sandbox": {"tools": {"deny": ["exec"]}}}}
    config: dict[str, object] = {"agents": {"list": [agent]}}
    assert "exec" in names_for(config)
    assert "exec" not in names_for(config, RunContext(is_sandboxed=True))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"tools": []}, "`tools` is a list; allowed: an object"),
        ({"tools": {"denny": ["a"]}}, '`tools` has the unknown key "denny"; did you mean `deny`?'),
        (
            {"tools": {"also_allow": ["a"]}},
            '`tools` has the unknown key "also_allow"; did you mean `alsoAllow`?',
        ),
        ({"tools": {"sandbox": 1}}, "`tools.sandbox` is a number; allowed: an object"),
        ({"tools": {"sandbox": {"tools": {"x": 1}}}}, "`tools.sandbox.tools` has the unknown key"),
        ({"agents": {"list": {}}}, "`agents.list` is an object; allowed: a list of agents"),
        ({"agents": {"list": [5]}}, "`agents.list[0]` is a number; allowed: an object"),
        (
            {"agents": {"list": [{"id": "main", "tools": {"deny": 1}}]}},
            "`agents.list[0].tools.deny` is 1; allowed: a list",
        ),
    ],
)
def test_mistakes_in_a_config_are_named_by_path(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tools_config_from(config, "main")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("rules", "is_possible"),
    [
        ({}, True),
        ({"deny": ["github"]}, False),
        ({"deny": ["bundle-mcp"]}, False),
        ({"deny": ["group:mcp"]}, False),
        ({"deny": ["mcp:github:*"]}, False),
        ({"deny": ["*"]}, False),
        ({"deny": ["mcp:github:delete_*", "create_issue"]}, True),
        ({"deny": ["docs"]}, True),
        ({"allow": []}, False),
        ({"allow": ["read_file"]}, True),
        ({"allow": ["read"]}, False),
        ({"allow": ["Read", "git*"]}, True),
        ({"allow": ["read", "github"]}, True),
        ({"allow": ["read", "*"]}, True),
        ({"allow": ["group:mcp"]}, True),
        ({"allow": ["group:*"]}, True),
        ({"allow": ["bundle-mcp"]}, True),
        ({"allow": ["group:fs", "core"]}, False),
        ({"allow": ["openclaw:*", "client:*:*", "mcp:docs:*"]}, False),
        ({"allow": ["mcp:*"]}, True),
        ({"allow": ["*:read_file"]}, True),
        ({"allow": ["mcp:github:create_issue"]}, True),
        ({"allow": ["mcp:git*:create_issue"]}, True),
    ],
)
def test_a_server_is_ruled_out_when_no_tool_of_it_could_be_permitted(
    rules: dict[str, object], is_possible: bool
) -> None:
    policy = ToolPolicy([("tools", rules_of(rules))])
    assert policy.may_permit_server("github", other_names=["read"]) is is_possible


@pytest.mark.parametrize(
    ("group", "members"),
    [
        ("group:fs", ["read", "write", "edit", "list", "search"]),
        ("group:runtime", ["exec", "process"]),
        ("group:web", ["web_fetch"]),
        ("group:messaging", ["message"]),
    ],
)
def test_core_tools_are_grouped_by_what_they_touch(group: str, members: list[str]) -> None:
    names = ["read", "write", "edit", "list", "search", "exec", "process", "web_fetch", "message"]
    core = [named(name) for name in names]
    foreign = [named(name, owner="evil") for name in names]
    policy = ToolPolicy([("tools", ToolRules(allow=(group,)))])
    assert [tool.name for tool in effective_tools([*foreign, *core], policy)] == members
    policy = ToolPolicy([("tools", ToolRules(deny=(group,)))])
    left = [tool.name for tool in effective_tools(core, policy)]
    assert left == [name for name in names if name not in members]
