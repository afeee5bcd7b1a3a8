"""Programs in other languages, and programs inside Markdown fences."""

import pytest

from nacre import Runtime
from nacre.code_mode.cell import Failed as FailedProgram
from nacre.code_mode.language_detection import (
    add_language_hint,
    fenced_program,
    has_fences,
    is_python,
    is_shell,
    starts_with_hash_comment,
)
from nacre.config import LANGUAGES
from nacre.sandbox import Failed, Sandbox, SandboxOptions
from tests.code_mode.outcomes import failure_of
from tests.code_mode.tools import echo_tool

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
