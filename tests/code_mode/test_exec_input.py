"""The inputs of `exec` and `wait`."""

import pytest

from nacre.code_mode.cell import CellRefused
from nacre.code_mode.model_surface import (
    ExecInput,
    exec_parameters,
    parse_exec_input,
    parse_wait_input,
    wait_parameters,
)
from nacre.config.code_mode import CodeModeConfig
from nacre.sandbox.results import new_cell_id

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
        (None, "the input is null, not an object"),
        ("return 1", "the input is a string, not an object"),
        ([], "the input is an array, not an object"),
        ({}, "`code` is empty"),
        ({"code": "  \n"}, "`code` is empty"),
        ({"code": None, "command": ""}, "`code` is empty"),
        ({"script": "return 1", "x": 2}, "`code` is missing; given: script, x"),
        ({"code": 1}, "`code` is a number, not a string"),
        ({"code": ["return 1"]}, "`code` is an array, not a string"),
        ({"code": "return 1", "command": 5}, "`command` is a number, not a string"),
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
        ({"runId": 7}, "`runId` is a number, not a string"),
        ({"runId": ["run_1"]}, "`runId` is an array, not a string"),
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
