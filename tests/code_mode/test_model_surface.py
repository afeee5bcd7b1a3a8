"""The tools that a model sees in code mode, and programs in other languages or in fences."""

import json
import re
from collections.abc import Mapping, Sequence

import pytest

from nacre import Runtime
from nacre.code_mode.cell import Failed as FailedProgram
from nacre.code_mode.model_surface import (
    ModelSurface,
    add_language_hint,
    exec_description,
    exec_parameters,
    fenced_program,
    has_fences,
    is_code_mode_active,
    is_python,
    is_shell,
    join_within,
    name_index,
    starts_with_hash_comment,
    visible_tools,
    wait_description,
    wait_parameters,
)
from nacre.code_mode.namespaces import Namespace
from nacre.config import LANGUAGES
from nacre.config.code_mode import CodeModeConfig
from nacre.config.tools import tools_config_from
from nacre.errors import CatalogError, ConfigError
from nacre.sandbox import Failed, Sandbox, SandboxOptions
from nacre.tools.catalog import Catalog, build_catalog
from nacre.tools.definition import Tool, format_definition
from tests.code_mode.outcomes import failure_of
from tests.code_mode.simple_tools import simple_tool
from tests.code_mode.tools import echo_tool

ON = CodeModeConfig(enabled=True)
OFF = CodeModeConfig()

SHELL = simple_tool("exec")
READ = simple_tool("read")
GITHUB = simple_tool("create_issue", owner="github", source="mcp")
IMAGE = simple_tool("show_image", catalog_mode="direct-only")
SEARCH = simple_tool("tool_search")
PLUGIN_SEARCH = simple_tool("tool_search", owner="phone")

SHELL_PROGRAMS = [
    "ls -la",
    "ls -la /tmp",
    "ls src",
    "ls ~",
    "cd ..",
    "cd /tmp && ls",
    "cd ./src",
    "curl https://example.com",
    "curl -s https://example.com | jq .",
    "git status",
    "git commit -m 'x'",
    "npm install left-pad",
    "pip install requests",
    "pip3 install -r requirements.txt",
    "cat README.md",
    "cat /etc/passwd",
    "cat <<EOF\nx\nEOF",
    'grep -r "x" .',
    "echo 'hello'",
    'echo "hello" > file.txt',
    "mkdir -p a/b",
    "sudo apt-get update",
    "python3 script.py",
    "python -c 'print(1)'",
    "docker ps",
    "$ ls",
    "$ ./run.sh",
    "#!/bin/bash\necho hi",
    "#!/usr/bin/env sh\nls",
    "\n\n  git log\n",
]

PYTHON = [
    "import os\nprint(os.listdir())",
    "import os, sys",
    "import numpy as np\nnp.zeros(3)",
    "import os.path  # for joins",
    "from os import path",
    "from a.b import (c, d)",
    "def f(x):\n    return x + 1",
    "async def f():\n    pass",
    "class A:\n    pass",
    "class A(B, metaclass=C):\n    pass",
    "x = 1\nif x > 0:\n    print(x)",
    "x = 1\nfor i in range(3):\n    print(i)",
    "for k, v in items.items():\n    pass",
    "while True:\n    break",
    "with open('x') as f:\n    pass",
    "a = 1\nif (a):\n    pass\nelif a == 2:\n    pass",
    'name = "x"\nprint(f"hello {name}")',
    "print 'hello'",
    "#!/usr/bin/env python3\nx = 1",
]

JAVASCRIPT = [
    "return 1",
    "ls",
    "const ls = 3, la = 1; return ls -la",
    "const find = (x) => x;\nreturn find (1)",
    "const source = new Map(); return source instanceof Map",
    "const find = 'a', o = {a: 1};\nreturn (find in o)",
    "const cat = `a`; return cat `b`",
    "const $ = 1, x = [1];\nreturn $ in x",
    "source instanceof Map || text('no');\nfunction source() {}",
    "find in {} || text('no')\nvar find = 'a'",
    "$ in {} || text('no'); var $ = 'a'",
    "// git status\nreturn 1",
    "// import os\n// def f():\nreturn 1",
    "/*\ngit status\nimport os\ndef f():\n  pass\n*/\nreturn 1",
    "/*\n```js\nreturn 2\n```\n*/\nreturn 1",
    'const script = `\nimport os\ndef f():\n    print(f"{os.name}")\n`;\nreturn script.length',
    "const command = `git status\nls -la`;\nreturn command",
    "return await tools.exec({command: 'ls -la /tmp'})",
    "text('cd /tmp && npm install'); return null",
    "for (const k in {a: 1}) text(k)",
    "for await (const x of [1]) text(x)",
    "const x = 1;\nif (x) text('a');\nelse text('b')",
    "if (1) label:\nfor (;;) break label",
    "class A { b() { return 1 } }\nreturn new A().b()",
    "class A extends Object {\n}\nreturn 1",
    "switch (1) {\n  case 1:\n    return 'one';\n  default:\n    return 'other'\n}",
    "return {\n  if:\n    1,\n  for:\n    2,\n  try:\n    3,\n  class:\n    4,\n}",
    "const o = {import: 1, from: 2, def: 3, print: 4, with: 5}; return o.import",
    "const print = (x) => text(x);\nprint('hello')",
    "const f = (x) => x, b = f;\nreturn f('x') + b(\"y\")",
    "const def = (name) => name;\nreturn def ('x')",
    "const make = {a: 1}; const {a} = make; return a",
    "const git = {status: () => 1}; return git.status()",
    "const node = {next: null}; node.next = node; return 1",
    "const head = [1], tail = [2];\nreturn [\n  head\n  , tail\n]",
    "const a = 1, b = 0;\nreturn a ? b\n  : a",
    "const re = /^import os$/m; return re.test('import os')",
    "const md = '```js\\nreturn 1\\n```'; return md",
    "const md = `\\`\\`\\`js\nreturn 1\n\\`\\`\\``; return md",
    "'use strict'; return 1",
    "async function main() { return 1 }\nreturn await main()",
    "let total = 0; while (total < 3) total++; return total",
    "class Counter {\n  #n = 0;\n  add() { return ++this.#n }\n}\nreturn new Counter().add()",
    "yield_control; return 1",
    "return [1, 2].map((n) => n * 2).filter(Boolean)",
    "const python = 'x', curl = 2; return {python, curl}",
    "outer: for (;;) break outer",
    "`\nls -la\n`; return 1",
    "tools.search('git status'); return 1",
    "echo = 1; return echo",
    "const touch = 1, rm = 2\ntouch\n/rm/g\nreturn 1",
]


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


CONFIG = CodeModeConfig(enabled=True)


def described(
    tools: list[Tool],
    *namespaces: Namespace,
    mcp_servers: Sequence[str] = (),
    name_index_bytes: int = 1800,
) -> str:
    return exec_description(
        catalog=build_catalog(tools),
        namespaces=namespaces,
        mcp_servers=mcp_servers,
        name_index_bytes=name_index_bytes,
        languages=LANGUAGES,
    )


def many_tools(count: int, owners: int = 10) -> list[Tool]:
    return [
        simple_tool(f"do_something_useful_{number}", owner=f"plugin{number % owners}")
        for number in range(count)
    ]


def namespace(description: str, prompt: str) -> Namespace:
    return Namespace(
        id="fictions",
        global_name="Fictions",
        description=description,
        required_tool_names=("x",),
        create_scope=lambda context: {},
        prompt=prompt,
    )


def definition_bytes(catalog: Catalog, name_index_bytes: int) -> int:
    description = exec_description(
        catalog=catalog,
        namespaces=(),
        name_index_bytes=name_index_bytes,
        languages=CONFIG.languages,
    )
    definitions = [
        format_definition("exec", description, exec_parameters(CONFIG), "openai"),
        format_definition("wait", wait_description("openai"), wait_parameters(), "openai"),
    ]
    return len(json.dumps(definitions, separators=(",", ":")).encode())


@pytest.mark.parametrize("owners", [1, 10, 500])
@pytest.mark.parametrize("name", ["do_something_useful_{}", "größe_{}", 'a"b\\c{}'])
def test_the_definitions_of_500_tools_stay_small(owners: int, name: str) -> None:
    tools = [
        simple_tool(name.format(number), owner=f"plugin{number % owners}") for number in range(500)
    ]
    catalog = build_catalog(tools)
    without = definition_bytes(catalog, 0)
    assert without <= 2000
    assert definition_bytes(catalog, CONFIG.name_index_bytes) <= min(4000, without + 1800)


def test_wait_says_how_long_a_program_waits_where_there_are_turns() -> None:
    assert wait_description("anthropic").endswith("a waiting program ends with its turn.")
    assert "turn" not in wait_description("mcp").replace("Returns", "")


def test_it_names_all_that_a_program_can_use() -> None:
    text = described([simple_tool("read")])
    for part in (
        *("JavaScript or TypeScript", "async function", "return", "await", "plain data"),
        *("tools.search", "tools.describe", "tools.call(id, input)", "tools.<name>(input)"),
        *("ALL_TOOLS", "text(value)", "json(value)", "console.log", "Promise.all"),
        *("yield_control", "runId", "No imports, files or network", "throws"),
    ):
        assert part in text


def test_it_names_only_the_languages_that_are_enabled() -> None:
    text = exec_description(
        catalog=build_catalog([]), namespaces=(), name_index_bytes=0, languages=("javascript",)
    )
    assert "Run a JavaScript program" in text


def test_mcp_servers_are_named_only_when_there_are_some() -> None:
    assert "MCP" not in described([simple_tool("read")])
    # Tools of a server are not called through `tools`, so the index leaves them out.
    issues = simple_tool("create_issue", owner="github", source="mcp")
    text = described([simple_tool("read"), issues], mcp_servers=("docs", "github"))
    assert "MCP servers: docs, github." in text
    assert "MCP.<server>.<tool>(input)" in text
    assert "create_issue" not in text


def test_without_ordinary_tools_nothing_is_said_of_them() -> None:
    text = described([], mcp_servers=("github",))
    assert "tools.search" not in text
    assert "ALL_TOOLS" not in text


def test_many_mcp_servers_are_counted_not_listed() -> None:
    text = described([], mcp_servers=[f"server{number}" for number in range(900)])
    assert " more). await MCP" in text
    assert len(text) < 2500


def test_a_namespace_is_described_in_one_line() -> None:
    text = described(
        [simple_tool("x")],
        namespace("Fiction\nhelpers.", "Use Fictions.audit().\n\ntools.<name> by owner:"),
    )
    assert (
        "\nGlobal Fictions: Fiction helpers. Use Fictions.audit(). tools.<name> by owner:\n" in text
    )
    assert "Fictions" not in described([simple_tool("x")])


def test_braces_in_what_others_wrote_are_left_as_they_are() -> None:
    assert "Global Fictions: {count} {0} end" in described(
        [simple_tool("x")], namespace("{count}", "{0} end")
    )


def index_of(tools: list[Tool], max_bytes: int = 1800) -> str:
    return name_index(build_catalog(tools), max_bytes=max_bytes)


def json_bytes(text: str) -> int:
    return len(json.dumps("\n" + text)) - 2


def tools_of_owners(count: int, owners: int) -> list[Tool]:
    return [simple_tool(f"tool_{number}", owner=f"p{number % owners}") for number in range(count)]


def test_all_names_are_shown_by_owner_when_they_fit() -> None:
    tools = [
        simple_tool("write"),
        simple_tool("read"),
        simple_tool("list-issues", owner="github"),
        simple_tool("select", owner="app", source="client"),
    ]
    assert index_of(tools) == (
        "tools.<name> by owner:\ncore: read, write\ngithub: list_issues\napp: select"
    )


def test_a_tool_without_a_name_of_its_own_is_shown_by_its_id() -> None:
    tools = [
        simple_tool("same", owner="a"),
        simple_tool("same", owner="b"),
        simple_tool("search"),
    ]
    assert index_of(tools) == (
        "tools.<name> by owner:\ncore: openclaw:core:search\na: openclaw:a:same\nb: openclaw:b:same"
    )


def test_nothing_to_show_or_no_room_is_no_index() -> None:
    assert index_of([]) == ""
    assert index_of([simple_tool("x", owner="docs", source="mcp")]) == ""
    assert index_of([simple_tool("read")], max_bytes=0) == ""
    assert index_of(tools_of_owners(500, 10), max_bytes=30) == ""


@pytest.mark.parametrize("owners", [1, 7, 60])
@pytest.mark.parametrize("max_bytes", [1000, 1800, 4000])
def test_when_not_all_fit_every_owner_shows_and_the_rest_is_counted(
    owners: int, max_bytes: int
) -> None:
    text = index_of(tools_of_owners(1000, owners), max_bytes)
    lines = text.splitlines()
    shown = [name for line in lines[1:-1] for name in line.split(": ")[1].split(", ")]
    counts = [len(line.split(", ")) for line in lines[1:-1]]
    assert len(counts) == owners
    # Owners take turns; a name that just fits may go to one of them at the end.
    assert max(counts) - min(counts) <= 2
    assert lines[-1] == f"(+{1000 - len(shown)} more: tools.search)"
    assert max_bytes - 60 < json_bytes(text) <= max_bytes


@pytest.mark.parametrize("max_bytes", range(0, 400, 7))
def test_the_budget_holds_at_every_size(max_bytes: int) -> None:
    tools = [
        simple_tool("ä" * 30, owner="ö"),
        simple_tool('"' * 200, owner="quotes"),
        *tools_of_owners(20, 3),
    ]
    text = index_of(tools, max_bytes)
    assert text == "" or json_bytes(text) <= max_bytes


def test_one_long_name_does_not_keep_the_others_out() -> None:
    text = index_of([simple_tool("x" * 250, owner="a"), *tools_of_owners(100, 1)], max_bytes=200)
    assert "p0: tool_0, tool_1" in text
    assert re.search(r"\(\+\d+ more: tools\.search\)$", text)


def test_equal_sets_of_tools_give_equal_text() -> None:
    tools = tools_of_owners(500, 9)
    assert index_of(tools) == index_of(tools[::-1])


def test_names_beyond_a_budget_are_counted() -> None:
    assert join_within(["a", "b"], 100) == "a, b"
    assert join_within(["aaaa", "bbbb", "cccc"], 14) == "aaaa, bbbb (+1 more)"


ACTIVE = CodeModeConfig(enabled=True)


def code_mode_config_for(document: Mapping[str, object], agent_id: str) -> CodeModeConfig:
    return tools_config_from(document, agent_id).code_mode


def test_it_is_on_when_enabled_and_the_run_has_tools() -> None:
    assert is_code_mode_active(ACTIVE, tools=[simple_tool("read")])
    assert is_code_mode_active(ACTIVE, tools=[simple_tool("image", catalog_mode="direct-only")])


@pytest.mark.parametrize("config", [None, False, {}, {"timeoutMs": 500}, {"enabled": False}])
def test_it_is_off_without_enabled_true(config: object) -> None:
    settings = code_mode_config_for({"tools": {"codeMode": config}}, "main")
    assert not is_code_mode_active(settings, tools=[simple_tool("read")])


def test_a_run_without_tools_stays_without_tools() -> None:
    assert not is_code_mode_active(ACTIVE, tools=[])
    assert not is_code_mode_active(ACTIVE, tools=[simple_tool("read")], tools_disabled=True)
    # What is left of a run whose real tools were all denied.
    assert not is_code_mode_active(
        ACTIVE, tools=[simple_tool("tool_search"), simple_tool("tool_call")]
    )


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
    assert code_mode_config_for(config, "main") == ACTIVE


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


@pytest.mark.parametrize("code", SHELL_PROGRAMS)
def test_shell_is_told(code: str) -> None:
    assert is_shell(code)
    assert not is_python(code)


@pytest.mark.parametrize("code", PYTHON)
def test_python_is_told(code: str) -> None:
    assert is_python(code)
    assert not is_shell(code)


@pytest.mark.parametrize("code", JAVASCRIPT)
def test_javascript_is_left_to_the_engine(code: str) -> None:
    assert not is_shell(code)
    assert not is_python(code)
    assert not has_fences(code)
    assert not starts_with_hash_comment(code)
    assert fenced_program(code) is None


async def test_the_programs_that_have_to_pass_are_javascript_to_the_engine() -> None:
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        for code in JAVASCRIPT:
            result = await sandbox.cell(code).run()
            assert not isinstance(result, Failed) or result.reason != "syntax_error", code


TYPESCRIPT = [
    "interface A { b: string }\nconst a: A = {b: 'x'}; return a.b",
    "type Names = 'a' | 'b';\nreturn 1",
    "enum Level { Low = 1 }\nreturn Level.Low",
    "const find: any = 1;\nreturn find as number",
    "declare const print: (x: string) => void;\nreturn 1",
    "namespace N { export const x = 1 }\nreturn N.x",
]


@pytest.mark.parametrize("code", TYPESCRIPT)
def test_typescript_is_left_to_the_engine(code: str) -> None:
    assert not is_shell(code)
    assert not is_python(code)


@pytest.mark.parametrize(
    "code",
    [
        "import " + "a." * 200_000 + "!",
        "if x" + ": " * 200_000 + "x",
        "\n".join(["if x" + ":\t" * 190 + "x"] * 5000),
        "`` " * 300_000,
        "import a" + ", a" * 200_000 + "!",
        "\n" * 1_000_000,
        "// x\n" * 200_000,
    ],
    ids=range(7),
)
def test_huge_texts_are_judged_without_going_back_and_forth_in_them(code: str) -> None:
    # A pattern that backtracks would be busy with these for minutes.
    assert not is_shell(code)
    assert not is_python(code)
    assert not has_fences(code)
    assert fenced_program(code) is None


@pytest.mark.parametrize("code", ["```\n" * 200_000, "`" * 1_000_000], ids=range(2))
def test_a_text_of_nothing_but_fences_is_judged(code: str) -> None:
    assert has_fences(code)
    assert fenced_program(code) is None


# Hints in errors of the engine.

MAYBE_PYTHON = [
    "x = [i for i in range(3)]\nreturn x",
    "try:\n    x = 1\nexcept Exception as e:\n    pass",
    "x = lambda a: a + 1",
    "return not x",
    "# find it\nx = tools.search('a')\nif (x):\n    return x",
    "return f'{1} files'",
]


@pytest.mark.parametrize("code", MAYBE_PYTHON)
async def test_a_syntax_error_in_python_says_so(runtime: Runtime, code: str) -> None:
    failed = failure_of(await runtime.run(tools=[echo_tool()]).exec(code))
    assert "looks like Python" in failed.error or "`#`" in failed.error


@pytest.mark.parametrize(
    "code",
    [
        "const n: number = 1; return n",
        "interface A { b: string }\nreturn 1",
        "type Names = string[];\nreturn 1",
        "const f = (a: string, b?: number) => a; return f('x')",
        "function f(a): Promise<string> { return a }",
        "const list = [] as string[]; return list",
        "const map = new Map<string, number>(); return map",
        "const { items } = await tools.echo({}); return items[0]!.name",
    ],
)
async def test_a_syntax_error_with_types_suggests_typescript(runtime: Runtime, code: str) -> None:
    failed = failure_of(await runtime.run(tools=[echo_tool()]).exec(code))
    message, position = failed.error.split("\n", 1)
    assert message.endswith('for a program with types, pass language: "typescript")')
    assert position.startswith("    at cell.js:1:")


@pytest.mark.parametrize(
    "code",
    [
        "return {",
        "const a = 'this is: not Python and no type'; return (",
        "const x = 1; x ==== 2",
        "return items.map((item) => item.name))",
        "// lambda x: x, as string\nreturn ]",
        "if (a) { return b ? 'c' : d } else { return [e, } }",
    ],
)
async def test_other_syntax_errors_get_no_hint(runtime: Runtime, code: str) -> None:
    failed = failure_of(await runtime.run(tools=[echo_tool()]).exec(code))
    assert failed.reason == "syntax_error"
    assert "looks like" not in failed.error


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("return None", "(this is Python; JavaScript has null)"),
        ("return {ok: True}", "(this is Python; JavaScript has true)"),
        ("print('x')", "(this is Python; JavaScript has text(value) and console.log(value))"),
        ("return len([1])", "(this is Python; JavaScript has value.length)"),
    ],
)
async def test_a_name_of_python_is_translated(runtime: Runtime, code: str, hint: str) -> None:
    failed = failure_of(await runtime.run(tools=[echo_tool()]).exec(code))
    assert failed.error.split("\n")[0].endswith(f" is not defined {hint}")


async def test_other_undefined_names_get_no_hint(runtime: Runtime) -> None:
    failed = failure_of(await runtime.run(tools=[echo_tool()]).exec("return toString2"))
    assert failed.error.split("\n")[0] == "ReferenceError: toString2 is not defined"


def test_typescript_that_is_switched_off_is_not_suggested() -> None:
    failed = FailedProgram(error="SyntaxError: no", reason="syntax_error")
    hinted = add_language_hint(
        failed, "let a: string", language="javascript", languages=("javascript",)
    )
    assert failure_of(hinted).error == (
        "SyntaxError: no (this looks like TypeScript; leave the types out)"
    )


@pytest.mark.parametrize("text", ["(", "a<", "f(a: ", ") : a", "lambda ", "for a,", "'"])
def test_huge_programs_with_a_syntax_error_are_judged_at_once(text: str) -> None:
    failed = FailedProgram(error="SyntaxError: no", reason="syntax_error")
    line = text * (399 // len(text))
    # A pattern that backtracks would be busy with these for minutes.
    add_language_hint(failed, f"{line}\n" * 1000, language="javascript", languages=LANGUAGES)
