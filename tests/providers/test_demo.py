"""The demonstration model: what it does with each kind of request, and that it says what it is."""

import json
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

import nacre
from nacre.json_types import JsonObject
from nacre.messages import (
    AssistantMessage,
    Message,
    SentPayload,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    user_message,
)
from nacre.providers.base import Answered, ModelEvent, ModelRequest, TextDelta, ToolCallDelta
from nacre.providers.demo import DEMO_NOTE, DemoProvider


def spec(name: str, *properties: str, description: str = "") -> ToolSpec:
    members: JsonObject = {each: {"type": "string"} for each in properties}
    return ToolSpec(
        name=name,
        description=description,
        parameters={"type": "object", "properties": members},
    )


CODE_MODE = (spec("exec", "code"), spec("wait", "runId"))
SEARCH_CODE = (spec("tool_search_code", "code"),)
SEARCH_TOOLS = (
    spec("tool_search", "query"),
    spec("tool_describe", "id"),
    spec("tool_call", "id", "args"),
)
DIRECT = (
    spec("exec", "command", description="Run a command in a shell"),
    spec("wait", "seconds", description="Do nothing"),
    spec("read", "path", description="Read a file\nwith more to say"),
    spec("list", "path", description="List a folder"),
)
JAVASCRIPT = "```js\nreturn [1, 2].map((n) => n * 2);\n```"


async def events_of(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[ModelEvent]:
    request = ModelRequest(instructions="", messages=messages, tools=tools)
    with anyio.fail_after(5):
        async with DemoProvider().stream(request) as events:
            return [event async for event in events]


async def answer_to(
    prompt: str, *results: str, tools: Sequence[ToolSpec] = CODE_MODE, is_error: bool = False
) -> AssistantMessage:
    """What the model does after these results of its calls."""
    messages: list[Message] = [user_message(prompt)]
    for result in results:
        messages.append(AssistantMessage(parts=()))
        messages.append(ToolMessage(call_id="c", name="exec", content=result, is_error=is_error))
    *_, last = await events_of(messages, tools)
    assert isinstance(last, Answered)
    return last.message


def call_of(answer: AssistantMessage) -> tuple[str, Any]:
    (call,) = answer.tool_calls
    assert answer.finish_reason == "tool_calls"
    return call.name, json.loads(call.arguments)


def words_of(answer: AssistantMessage) -> str:
    """What it says, without the line that every answer has."""
    assert (answer.finish_reason, answer.tool_calls) == ("stop", ())
    words, note = answer.text.split("\n\n(", 1)
    assert f"({note}" == DEMO_NOTE
    return words


def completed(value: object, **more: object) -> str:
    return json.dumps({"status": "completed", "value": value, **more})


@pytest.mark.parametrize(
    "prompt", ["hello", "", "```python\nprint(1)\n```", "on 2026-10-01", "( )"]
)
async def test_what_it_does_not_understand_is_answered_with_what_to_try(prompt: str) -> None:
    words = words_of(await answer_to(prompt))
    assert words.startswith("Hello.")
    assert "What tools are there?" in words


async def test_it_says_what_it_is_and_how_to_have_a_real_model() -> None:
    answer = await answer_to("hello")
    assert "demonstration model" in answer.text
    assert "agents.defaults.model" in answer.text
    assert answer.model == "demo/demo"


async def test_what_it_is_stands_once_in_a_session() -> None:
    first = await answer_to("hello")
    *_, last = await events_of([user_message("hello"), first, user_message("hello")], CODE_MODE)
    assert isinstance(last, Answered)
    assert last.message.text == words_of(first)


async def test_words_come_one_by_one_and_make_up_the_answer() -> None:
    *deltas, last = await events_of([user_message("hello")], CODE_MODE)
    assert isinstance(last, Answered)
    texts = [event.text for event in deltas if isinstance(event, TextDelta)]
    assert len(texts) == len(deltas) > 20
    assert "".join(texts) == last.message.text


async def test_a_call_is_told_before_the_answer_that_holds_it() -> None:
    first, last = await events_of([user_message("2 + 2")], CODE_MODE)
    assert isinstance(first, ToolCallDelta)
    assert isinstance(last, Answered)
    (call,) = last.message.tool_calls
    assert (first.call_id, first.name, first.arguments) == (
        call.call_id,
        call.name,
        call.arguments,
    )


async def test_equal_requests_have_equal_answers_with_tokens_counted() -> None:
    first, second = await answer_to("hello"), await answer_to("hello")
    assert first == second
    assert first.usage.input_tokens > 0
    assert first.usage.output_tokens == len(first.text) // 4 + 1


@pytest.mark.parametrize("prompt", ["What tools are there?", "list tools", "what can you do"])
async def test_tools_are_grouped_by_a_program(prompt: str) -> None:
    name, given = call_of(await answer_to(prompt))
    assert (name, "ALL_TOOLS" in given["code"]) == ("exec", True)
    answer = await answer_to(prompt, completed("There are 2 tools:\n- core: list, read"))
    assert words_of(answer) == "It returned:\nThere are 2 tools:\n- core: list, read"


@pytest.mark.parametrize(
    ("prompt", "query"),
    [
        ("search weather", "weather"),
        ("Search for weather.", "weather"),
        ("please find a tool for reading mail?", "reading mail"),
        ('find me tools to "quote \\ things"', "quote \\ things"),
    ],
)
async def test_a_search_is_a_program(prompt: str, query: str) -> None:
    name, given = call_of(await answer_to(prompt))
    assert name == "exec"
    assert f"tools.search({json.dumps(query)}" in given["code"]
    assert words_of(await answer_to(prompt, completed("- a:b:c: C"))) == "It returned:\n- a:b:c: C"


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        ("What is 12 * (3 + 4)?", "return 12 * (3 + 4);"),
        ("2^10", "return 2**10;"),
        ("how much is 7 / 2 (roughly)", "return 7 / 2;"),
        ("-3 - -4.5.", "return -3 - -4.5;"),
    ],
)
async def test_a_sum_is_computed_by_a_program(prompt: str, code: str) -> None:
    assert call_of(await answer_to(prompt)) == ("exec", {"code": code})
    assert words_of(await answer_to(prompt, completed(84))) == "It returned:\n84"


async def test_a_fenced_program_is_run_just_as_it_is() -> None:
    code = "return [1, 2].map((n) => n * 2);\n"
    assert call_of(await answer_to(f"run\n{JAVASCRIPT}")) == ("exec", {"code": code})
    assert words_of(await answer_to(JAVASCRIPT, completed([2, 4]))) == "It returned:\n[2,4]"


async def test_a_fence_of_typescript_says_so() -> None:
    answer = await answer_to("```ts\nreturn 1 as number;\n```")
    assert call_of(answer) == ("exec", {"code": "return 1 as number;\n", "language": "typescript"})


@pytest.mark.parametrize(
    ("prompt", "tool_id", "path"),
    [
        ("list the files", "openclaw:core:list", "."),
        ("What files are there in src/nacre?", "openclaw:core:list", "src/nacre"),
        ("read README.md", "openclaw:core:read", "README.md"),
        ("Please open the file `docs/a-b.txt`.", "openclaw:core:read", "docs/a-b.txt"),
    ],
)
async def test_files_are_read_and_listed_by_the_core_tools(
    prompt: str, tool_id: str, path: str
) -> None:
    name, given = call_of(await answer_to(prompt))
    assert name == "exec"
    assert f'tools.call("{tool_id}", {{"path": "{path}"}})' in given["code"]
    assert words_of(await answer_to(prompt, completed("text"))) == "It returned:\ntext"


async def test_a_waiting_program_is_continued_and_all_its_output_told() -> None:
    waiting = json.dumps(
        {"status": "waiting", "runId": "run_7", "output": [{"type": "text", "text": "half"}]}
    )
    name, given = call_of(await answer_to("do something slow"))
    assert (name, "yield_control" in given["code"]) == ("exec", True)
    assert call_of(await answer_to("slow", waiting)) == ("wait", {"runId": "run_7"})
    end = completed("done", output=[{"type": "json", "value": {"n": 1}}])
    assert words_of(await answer_to("slow", waiting, end)) == (
        'The program wrote:\nhalf\n{"n":1}\nIt returned:\ndone'
    )


async def test_a_program_that_never_ends_is_not_waited_for_without_end() -> None:
    waiting = json.dumps({"status": "waiting", "runId": "run_7"})
    assert call_of(await answer_to("slow", *[waiting] * 5))[0] == "wait"
    assert "still waiting" in words_of(await answer_to("slow", *[waiting] * 6))


async def test_what_went_wrong_is_told() -> None:
    failed = json.dumps({"status": "failed", "error": "TypeError: no", "code": "internal_error"})
    assert words_of(await answer_to(JAVASCRIPT, failed)) == "That failed: TypeError: no"
    assert words_of(await answer_to("2 + 2", "denied", is_error=True)) == ("It failed:\ndenied")


@pytest.mark.parametrize("value", [None, "x" * 100_000, [[]], {"count": 1}, {"hits": 5, "top": 0}])
@pytest.mark.parametrize("prompt", ["list tools", "search x", "2 + 2", JAVASCRIPT])
async def test_odd_and_huge_results_are_told_in_few_words(prompt: str, value: object) -> None:
    words = words_of(await answer_to(prompt, completed(value)))
    assert 0 < len(words) < 2_500


@pytest.mark.parametrize("result", ["", "{", "[1]", '{"status": 5}', '{"status":"completed"'])
async def test_a_result_that_is_none_is_shown_as_it_is(result: str) -> None:
    words = words_of(await answer_to("search x", result))
    assert words


async def test_a_later_message_of_the_person_is_what_counts() -> None:
    messages: list[Message] = [
        user_message("2 + 2"),
        ToolMessage(call_id="c", name="exec", content=completed(4)),
        SystemMessage(text="a note"),
        user_message("3 + 3"),
    ]
    *_, last = await events_of(messages, CODE_MODE)
    assert isinstance(last, Answered)
    assert call_of(last.message) == ("exec", {"code": "return 3 + 3;"})


# Other surfaces.


@pytest.mark.parametrize(
    ("prompt", "given"),
    [
        ("read a.txt", {"id": "openclaw:core:read", "args": {"path": "a.txt"}}),
        ("search mail", {"query": "mail", "limit": 5}),
    ],
)
async def test_tool_search_is_used_where_that_is_the_surface(
    prompt: str, given: JsonObject
) -> None:
    _, arguments = call_of(await answer_to(prompt, tools=SEARCH_TOOLS))
    assert arguments == given
    hits = completed([{"id": "a:b:c", "description": "C"}])
    words = words_of(await answer_to(prompt, hits, tools=SEARCH_TOOLS))
    assert "a:b:c" in words


@pytest.mark.parametrize("prompt", ["search mail", "read a.txt", "2 + 2", JAVASCRIPT])
async def test_programs_of_tool_search_are_used_where_that_is_the_surface(prompt: str) -> None:
    name, given = call_of(await answer_to(prompt, tools=SEARCH_CODE))
    assert name == "tool_search_code"
    assert "openclaw.tools" in given["code"] or prompt in ("2 + 2", JAVASCRIPT)


async def test_direct_tools_are_called_by_their_names() -> None:
    assert call_of(await answer_to("read a.txt", tools=DIRECT)) == ("read", {"path": "a.txt"})
    assert call_of(await answer_to("list files", tools=DIRECT)) == ("list", {"path": "."})
    words = words_of(await answer_to("read a.txt", '{"status": "open"}', tools=DIRECT))
    assert words == 'It returned:\n{"status": "open"}'


async def test_direct_tools_are_listed_without_a_call() -> None:
    listed = words_of(await answer_to("what tools are there?", tools=DIRECT))
    assert listed.splitlines()[0] == "This agent has 4 tools:"
    assert "- read: Read a file" in listed.splitlines()


@pytest.mark.parametrize("tools", [(), DIRECT, SEARCH_TOOLS])
@pytest.mark.parametrize("prompt", ["2 + 2", "wait", JAVASCRIPT])
async def test_what_needs_code_mode_says_so_where_there_is_none(
    prompt: str, tools: Sequence[ToolSpec]
) -> None:
    assert "tools.codeMode.enabled" in words_of(await answer_to(prompt, tools=tools))


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("read a.txt", "This agent has no tool `read`."),
        ("list tools", "This agent has 0 tools:"),
        ("search x", "That takes code mode; set `tools.codeMode.enabled: true` to enable it."),
    ],
)
async def test_without_any_tools_it_says_that(prompt: str, words: str) -> None:
    assert words_of(await answer_to(prompt, tools=())) == words


# What is checked before it answers.


async def test_the_check_sees_the_tools_before_anything_is_answered() -> None:
    seen: list[SentPayload] = []

    def refuse(sent: SentPayload) -> None:
        seen.append(sent)
        raise ValueError("not these tools")

    request = ModelRequest(
        instructions="be brief",
        messages=[user_message("2 + 2")],
        tools=CODE_MODE,
        check=refuse,
    )
    async with DemoProvider().stream(request) as events:
        with pytest.raises(ValueError, match="not these tools"):
            await anext(events)
    (sent,) = seen
    assert sent.tool_names == ("exec", "wait")
    assert 0 < sent.tool_bytes < sent.payload_bytes


async def test_whoever_leaves_in_the_middle_hears_no_more() -> None:
    request = ModelRequest(instructions="", messages=[user_message("hello")])
    async with DemoProvider().stream(request) as events:
        await anext(events)
    with pytest.raises(StopAsyncIteration):
        await anext(events)


# Its programs, for real.


@nacre.tool(name="read")
async def read_file(path: str) -> str:
    """Read a file of the workspace."""
    return f"the text of {path}"


@nacre.tool(owner="sky")
async def forecast(city: str) -> str:
    """Tell the weather of a city."""
    return f"sun over {city}"


async def conversation(run: nacre.CodeMode | nacre.ToolSearch, prompt: str) -> str:
    """A small turn loop."""
    specs = [
        ToolSpec(
            name=each["function"]["name"],
            description=each["function"]["description"],
            parameters=each["function"]["parameters"],
        )
        for each in json.loads(json.dumps(run.definitions("openai")))
    ]
    messages: list[Message] = [user_message(prompt)]
    with anyio.fail_after(20):
        while True:
            *_, last = await events_of(messages, specs)
            assert isinstance(last, Answered)
            if not last.message.tool_calls:
                return words_of(last.message)
            messages.append(last.message)
            for call in last.message.tool_calls:
                result = await run.call(call.name, call.arguments, call_id=call.call_id)
                content = json.dumps(result.to_json())
                messages.append(ToolMessage(call_id=call.call_id, name=call.name, content=content))


async def test_its_programs_work_in_code_mode() -> None:
    async with nacre.CodeMode(tools=[read_file, forecast]) as code_mode:
        heard = {
            prompt: await conversation(code_mode, prompt)
            for prompt in (
                "what tools are there?",
                "find a tool for the weather",
                "12 * (3 + 4)",
                "read a.txt",
                "list files",
                "wait",
                JAVASCRIPT,
            )
        }
    listed, found, computed, read, missing, waited, ran = heard.values()
    assert "- core: read\n- sky: forecast" in listed
    assert found == "It returned:\n- openclaw:sky:forecast: Tell the weather of a city."
    assert computed == "It returned:\n84"
    assert read == "It returned:\nthe text of a.txt"
    assert missing.startswith("That failed:")
    assert waited.startswith("The program wrote:\nThe first half is done.\nIt returned:")
    assert ran == "It returned:\n[2,4]"


async def test_its_programs_work_in_tool_search() -> None:
    async with nacre.ToolSearch(tools=[read_file, forecast]) as tool_search:
        found = await conversation(tool_search, "find a tool for the weather")
        read = await conversation(tool_search, "read a.txt")
    assert "- openclaw:sky:forecast" in found
    assert read == "It returned:\nthe text of a.txt"
