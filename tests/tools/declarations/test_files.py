"""Declaration files for programs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nacre.json_types import JsonValue
from nacre.tools.declarations.files import (
    MAX_FILE_CHARACTERS,
    DeclaredServer,
    DeclaredTool,
    function_declaration,
    mcp_index_file,
    mcp_server_file,
    tools_file,
)
from nacre.tools.declarations.typescript import comment_lines
from tests.tools.declarations.test_types import HOSTILE, SCHEMAS, TREE
from tests.tools.declarations.typescript_compiler import TypeScriptCompiler

CREATE_ISSUE: JsonValue = {
    "type": "object",
    "properties": {
        "owner": {"type": "string", "description": "Who owns the repository"},
        "repo": {"type": "string", "description": "Which repository"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "draft": {"type": "boolean", "default": False},
    },
    "required": ["owner", "repo"],
}
WORDS = ["delete", "new", "default", "import", "let", "await", "class", "enum", "搜索", "a b", '"']


def test_a_function_is_declared_with_its_comment() -> None:
    assert function_declaration(
        "createIssue", description="Open an issue.\nIt is shown.", parameters=CREATE_ISSUE
    ) == (
        "/**\n"
        " * Open an issue. It is shown.\n"
        " * @param owner Who owns the repository\n"
        " * @param repo Which repository\n"
        " * @param draft (default false)\n"
        " */\n"
        "function createIssue(input: {\n"
        "  owner: string;\n"
        "  repo: string;\n"
        "  labels?: string[];\n"
        "  draft?: boolean;\n"
        "}): Promise<McpToolResult>;"
    )


@pytest.mark.parametrize(
    ("parameters", "input_text"),
    [
        ({"type": "object", "properties": {}}, "input?: {}"),
        ({"type": "object"}, "input?: {}"),
        ({"properties": {"a": {"type": "string"}}}, "input?: { a?: string }"),
        ({"properties": {"a": True}, "required": ["a"]}, "input: { a: unknown }"),
        ({}, "input?: object"),
        (None, "input?: object"),
        (
            {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "input: { a: unknown } | { b: unknown }",
        ),
        (
            {"anyOf": [{"required": ["a"]}, {"type": "object"}]},
            "input?: { a: unknown } | { [key: string]: unknown }",
        ),
        ({"allOf": [{"required": ["a"]}, {}]}, "input: { a: unknown }"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"required": ["a"]}}}, "input: { a: unknown }"),
        ({"properties": {"a": {"$ref": "#"}}}, "input?: XInput"),
        ({"type": "object", "allOf": [{"$ref": "#"}]}, "input?: {}"),
    ],
)
def test_the_input_may_be_left_out_when_nothing_is_required(
    parameters: JsonValue, input_text: str
) -> None:
    assert f"function x({input_text}): Promise<" in function_declaration("x", parameters=parameters)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_schema_can_be_declared(kind: str) -> None:
    assert "function x(input" in function_declaration("x", parameters=HOSTILE[kind])


def test_an_output_schema_types_the_structured_content() -> None:
    output: JsonValue = {"properties": {"number": {"type": "integer"}}, "required": ["number"]}
    assert function_declaration("x", parameters={}, output_schema=output) == (
        "function x(input?: object): Promise<McpToolResult<{ number: number }>>;"
    )


def test_an_ordinary_tool_resolves_to_its_value() -> None:
    output: JsonValue = {"type": "array", "items": {"type": "string"}}
    assert function_declaration("x", parameters={}, output_schema=output, result="value") == (
        "function x(input?: object): Promise<string[]>;"
    )


def test_a_server_is_a_namespace_with_its_own_functions_first(compiler: TypeScriptCompiler) -> None:
    text = mcp_server_file(
        "github",
        [
            DeclaredTool(name="createIssue", description="Open one.", parameters=CREATE_ISSUE),
            DeclaredTool(name="walk", parameters=TREE),
        ],
        has_resources=True,
        has_prompts=True,
    )
    assert text.startswith("type McpToolResult<T = unknown> = {\n  content?: unknown[];\n")
    assert "\ndeclare namespace MCP.github {\n  /** This header" in text
    assert "\n  function $api(toolName?: string, options?: { schema?: boolean }): " in text
    assert "\n  const resources: {\n    list(input?: { cursor?: string }): " in text
    assert "\n  const prompts: {\n" in text
    assert "\n   * Open one.\n   * @param owner Who owns the repository\n" in text
    assert "\n  function createIssue(input: {\n    owner: string;\n" in text
    assert "\n  type WalkInputTree = {" in text
    assert "\n  function walk(input: WalkInputTree): Promise<McpToolResult>;\n}\n" in text
    assert compiler.meaning_problems([text]) == []


def test_a_server_without_resources_and_prompts_declares_none() -> None:
    text = mcp_server_file("github", [])
    assert "resources" not in text
    assert "prompts" not in text


def test_words_of_the_language_are_members_of_an_object(compiler: TypeScriptCompiler) -> None:
    tools = [DeclaredTool(name=name, parameters=TREE) for name in ("delete", "create")]
    text = mcp_server_file("files", tools)
    assert "\ndeclare const MCP: {\n  files: {\n    /** This header" in text
    assert '\n    "delete"(input: DeleteInputTree): Promise<McpToolResult>;\n' in text
    assert "\n    create(input: CreateInputTree): Promise<McpToolResult>;\n" in text
    assert compiler.meaning_problems([text]) == []


@pytest.mark.parametrize("name", ["delete", "搜索"])
def test_a_single_function_with_an_odd_name_is_exported_under_it(name: str) -> None:
    text = function_declaration(name, parameters={})
    assert f' as "{name}" }};' in text


def test_the_index_names_servers_their_files_and_functions(compiler: TypeScriptCompiler) -> None:
    text = mcp_index_file(
        [
            DeclaredServer(name="github", description="Issues */", tool_names=("createIssue", "b")),
            DeclaredServer(name="delete", tool_names=("a",)),
        ]
    )
    assert text.startswith("declare const MCP: {\n  /** Find functions")
    assert (
        "\n  /**\n   * Issues *\\/\n   * 2 functions in mcp/github.d.ts: createIssue, b\n   */\n"
        "  github: object;\n"
    ) in text
    assert '\n  /** 1 function in mcp/delete.d.ts: a */\n  "delete": object;\n' in text
    assert compiler.meaning_problems([text]) == []


def test_ordinary_tools_are_members_of_tools() -> None:
    entry = DeclaredTool(
        name="read_file",
        description="Read.",
        parameters={"properties": {"path": {"type": "string"}}, "required": ["path"]},
        output_schema={"type": "string"},
    )
    text = tools_file("core */", [entry])
    assert text == (
        "/** Tools of core *\\/. */\n"
        "declare namespace tools {\n"
        "  /** Read. */\n"
        "  function read_file(input: { path: string }): Promise<string>;\n"
        "}\n"
    )


def test_types_of_two_tools_are_told_apart(compiler: TypeScriptCompiler) -> None:
    tools = [
        DeclaredTool(name="a_b", parameters=TREE, output_schema=TREE),
        DeclaredTool(name="aB", parameters=TREE, output_schema=TREE),
    ]
    assert compiler.meaning_problems([mcp_server_file("x", tools), tools_file("x", tools)]) == []


def test_a_file_that_grew_too_large_goes_on_with_names_alone() -> None:
    tools = [
        DeclaredTool(name=f"tool{n}", description="long " * 1000, parameters=CREATE_ISSUE)
        for n in range(1000)
    ]
    text = mcp_server_file("x", tools)
    assert len(text) < 1.2 * MAX_FILE_CHARACTERS
    assert "\n  function tool999(input?: object /* shortened */): Promise<McpToolResult>;\n" in text


def test_every_kind_of_file_means_something_to_the_compiler(compiler: TypeScriptCompiler) -> None:
    plain = [
        DeclaredTool(name=f"tool{n}", description=kind, parameters=schema, output_schema=schema)
        for n, (kind, schema) in enumerate(HOSTILE.items())
    ]
    odd = [DeclaredTool(name=name, parameters=TREE, output_schema=TREE) for name in WORDS]
    servers = [DeclaredServer(name=name, tool_names=tuple(WORDS)) for name in WORDS]
    files = [
        mcp_server_file("plain", plain, has_resources=True, has_prompts=True),
        mcp_server_file("odd", [*plain, *odd], has_resources=True, has_prompts=True),
        *(mcp_server_file(name, plain[:2]) for name in WORDS),
        mcp_index_file(servers),
        mcp_index_file([]),
        tools_file("plain", plain),
        tools_file("odd", odd),
        tools_file("none", []),
    ]
    assert compiler.meaning_problems(files) == []


def test_whatever_a_server_says_its_file_parses(compiler: TypeScriptCompiler) -> None:
    texts: list[str] = []
    names = st.one_of(st.sampled_from(WORDS), st.text(max_size=6))

    # Collected first, so that one process of the compiler serves all.
    @settings(max_examples=200, deadline=None)
    @given(names, names, st.text(max_size=20), SCHEMAS, SCHEMAS)
    def collect(
        server: str, name: str, description: str, parameters: object, output_schema: object
    ) -> None:
        tool = DeclaredTool(
            name=name,
            description=description,
            parameters=parameters,
            output_schema=output_schema,
        )
        texts.append(mcp_server_file(server, [tool]))
        texts.append(tools_file(server, [tool]))
        texts.append(function_declaration(name, description=description, parameters=parameters))
        texts.append(mcp_index_file([DeclaredServer(name=server, description=description)]))

    collect()
    assert compiler.syntax_problems(texts) == []


@pytest.mark.parametrize(
    "key",
    [
        "*/ evil(); /*",
        "a\n*/ evil();\n/**",
        "*\x00/ evil(); /*",
        "a\u2028*/ evil()",
        "\ud800*/",
        "*",
    ],
)
def test_the_name_of_a_property_cannot_leave_the_comment(
    compiler: TypeScriptCompiler, key: str
) -> None:
    schema: JsonValue = {"properties": {key: {"type": "string", "description": "it */ evil()"}}}
    nested: JsonValue = {"properties": {"outer": schema}}
    texts = [
        function_declaration("f", description="Two lines", parameters=parameters)
        for parameters in (schema, nested)
    ]
    assert compiler.syntax_problems(texts) == []
    comment, end, rest = texts[0].partition("*/")
    assert end
    assert "@param" in comment
    assert rest.startswith("\nfunction f(")


def test_a_comment_is_closed_by_nothing_but_its_end() -> None:
    assert comment_lines(["a */ b\nc", "d\r\n*/"]) == "/**\n * a *\\/ b c\n * d *\\/\n */"
