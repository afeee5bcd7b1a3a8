"""The inputs of `exec` and `wait`, and detecting programs in other languages."""

import pytest

from nacre.code_mode.cells import CellRefused
from nacre.code_mode.model_surface import (
    ExecInput,
    exec_parameters,
    fenced_program,
    has_fences,
    is_python,
    is_shell,
    parse_exec_input,
    parse_wait_input,
    starts_with_hash_comment,
    wait_parameters,
)
from nacre.config.code_mode import CodeModeConfig
from nacre.ids import new_cell_id
from nacre.sandbox import Failed, Sandbox, SandboxOptions

BOTH = CodeModeConfig(enabled=True)
JAVASCRIPT_ONLY = CodeModeConfig(enabled=True, languages=("javascript",))
TYPESCRIPT_ONLY = CodeModeConfig(enabled=True, languages=("typescript",))


def read(arguments: object, config: CodeModeConfig = BOTH) -> ExecInput:
    return parse_exec_input(arguments, config)


def refusal_of(arguments: object, config: CodeModeConfig = BOTH) -> CellRefused:
    with pytest.raises(CellRefused) as caught:
        read(arguments, config)
    return caught.value


@pytest.mark.parametrize(
    ("config", "languages"),
    [
        (BOTH, ["javascript", "typescript"]),
        (JAVASCRIPT_ONLY, ["javascript"]),
        (TYPESCRIPT_ONLY, ["typescript"]),
    ],
)
def test_the_schema_is_flat_and_names_the_enabled_languages(
    config: CodeModeConfig, languages: list[str]
) -> None:
    assert exec_parameters(config) == {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "language": {"type": "string", "enum": languages},
        },
        "required": ["code"],
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {"code": "return 1"},
        {"command": "return 1"},
        {"code": "return 1", "command": "return 1"},
        {"code": "", "command": "return 1"},
        {"code": "return 1", "command": None, "language": None},
        {"code": "return 1", "language": "javascript"},
        # Nothing that `exec` has; nothing that would change what runs.
        {"code": "return 1", "timeout": 5, "description": "one"},
    ],
)
def test_code_and_its_other_name_are_taken(arguments: object) -> None:
    assert read(arguments) == ExecInput(code="return 1", language="javascript")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (None, "the input is a NoneType, not an object"),
        ("return 1", "the input is a str, not an object"),
        ([], "the input is a list, not an object"),
        ({}, "`code` is empty"),
        ({"code": "  \n"}, "`code` is empty"),
        ({"code": None, "command": ""}, "`code` is empty"),
        ({"script": "return 1", "x": 2}, "`code` is missing; given: script, x"),
        ({"code": 1}, "`code` is a int, not text"),
        ({"code": ["return 1"]}, "`code` is a list, not text"),
        ({"code": "return 1", "command": 5}, "`command` is a int, not text"),
        ({"code": "return 1", "command": "return 2"}, "`code` and `command` differ; give one"),
    ],
)
def test_other_arguments_are_refused_and_the_message_says_what_exec_takes(
    arguments: object, problem: str
) -> None:
    refusal = refusal_of(arguments)
    assert refusal.message.startswith(problem)
    assert "exec takes a JavaScript program as `code`" in refusal.message
    assert (refusal.reason, str(refusal)) == ("invalid_input", refusal.message)


@pytest.mark.parametrize(
    "language", ["python", "", "JavaScript", 5, ["javascript"], {}, "x" * 9999]
)
def test_a_language_that_exec_does_not_run_is_refused(language: object) -> None:
    refusal = refusal_of({"code": "return 1", "language": language})
    assert refusal.reason == "unsupported_language"
    assert refusal.message.endswith('exec runs "javascript" or "typescript"')
    assert len(refusal.message) < 200


def test_a_language_that_is_switched_off_is_refused() -> None:
    refusal = refusal_of({"code": "return 1", "language": "typescript"}, JAVASCRIPT_ONLY)
    assert (refusal.reason, refusal.message) == (
        "unsupported_language",
        'typescript is switched off (`tools.codeMode.languages`); exec runs "javascript"',
    )
    refusal = refusal_of({"code": "```ts\nreturn 1\n```"}, JAVASCRIPT_ONLY)
    assert refusal.reason == "unsupported_language"


def test_without_javascript_the_default_is_typescript() -> None:
    assert read({"code": "return 1"}, TYPESCRIPT_ONLY).language == "typescript"


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("```js\nreturn 1\n```", "javascript"),
        ("```javascript\nreturn 1\n```", "javascript"),
        ("```\nreturn 1\n```", "javascript"),
        ("\n  ```JS title=x\nreturn 1\n  ```\n\n", "javascript"),
        ("````js\nreturn 1\n````", "javascript"),
        ("```ts\nreturn 1\n```", "typescript"),
        ("```typescript\nreturn 1\n```", "typescript"),
    ],
)
def test_one_fence_is_taken_off_and_says_the_language(code: str, language: str) -> None:
    assert read({"code": code}) == read({"code": "return 1", "language": language})


def test_a_language_that_was_given_wins_over_the_fence() -> None:
    given = read({"code": "```ts\nreturn 1\n```", "language": "javascript"})
    assert given == ExecInput(code="return 1", language="javascript")
    given = read({"code": "```js\nreturn 1\n```", "language": "typescript"})
    assert given.language == "typescript"


def test_lines_with_carriage_returns_are_fenced_too() -> None:
    assert read({"code": "```js\r\nreturn 1\r\n```\r\n"}).code.strip() == "return 1"


@pytest.mark.parametrize(
    "code",
    [
        "Here is the program:\n```js\nreturn 1\n```",
        "```js\nreturn 1\n```\nThis returns 1.",
        "```js\nconst a = 1\n```\n```js\nreturn a\n```",
        "```js\nreturn 1",
        "```js\nreturn 1```",
    ],
)
def test_markdown_around_a_program_is_refused(code: str) -> None:
    refusal = refusal_of({"code": code})
    assert refusal.message.startswith("the code is Markdown: send the program alone")
    assert refusal.reason == "invalid_input"


@pytest.mark.parametrize("language", ["python", "bash", "json", "sh"])
def test_a_fence_of_another_language_is_refused(language: str) -> None:
    refusal = refusal_of({"code": f"```{language}\nx\n```"})
    assert refusal.message.startswith(f"the code is fenced as {language!r}")


def test_an_empty_fence_is_refused() -> None:
    assert refusal_of({"code": "```js\n\n```"}).message.startswith("the Markdown fence is empty")


def test_shell_python_and_hash_comments_are_told_apart() -> None:
    assert "looks like a shell command" in refusal_of({"code": "git status"}).message
    assert "looks like Python" in refusal_of({"code": "import os\nprint(os.name)"}).message
    assert "starts with `#`" in refusal_of({"code": "# Step 1\nreturn 1"}).message
    assert "looks like Python" in refusal_of({"code": "```\ndef f():\n  pass\n```"}).message


def test_the_schema_asks_for_a_run_id() -> None:
    assert wait_parameters() == {
        "type": "object",
        "properties": {"runId": {"type": "string"}},
        "required": ["runId"],
    }


def test_the_id_of_a_run_is_taken() -> None:
    cell_id = new_cell_id()
    assert parse_wait_input({"runId": cell_id, "extra": 1}) == cell_id
    assert parse_wait_input({"runId": f" {cell_id}\n"}) == cell_id


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (None, "wait takes an object: {runId}"),
        ("run_1", "wait takes an object: {runId}"),
        ({}, "wait needs `runId`"),
        ({"run_id": "run_1"}, "wait needs `runId`"),
        ({"runId": None}, "wait needs `runId`"),
        ({"runId": 7}, "`runId` is a int, not text"),
        ({"runId": ["run_1"]}, "`runId` is a list, not text"),
    ],
)
def test_what_is_no_text_is_refused(arguments: object, problem: str) -> None:
    with pytest.raises(CellRefused) as caught:
        parse_wait_input(arguments)
    assert caught.value.message.startswith(problem)
    assert caught.value.reason == "invalid_input"


@pytest.mark.parametrize(
    "given", ["", "call_1", "run_", "run_../x", "run_1 run_2", "run_" + "a" * 10_000]
)
def test_text_that_is_no_run_id_is_a_run_that_is_not_there(given: str) -> None:
    with pytest.raises(CellRefused) as caught:
        parse_wait_input({"runId": given})
    assert caught.value.message.startswith(
        f"code mode run is unavailable or expired. {given[:60]!r} is not a run id of exec; "
    )
    assert caught.value.reason == "run_unavailable"
    assert len(caught.value.message) < 250


SHELL = [
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


@pytest.mark.parametrize("code", SHELL)
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
