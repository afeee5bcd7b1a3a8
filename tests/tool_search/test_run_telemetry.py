"""What a run counts, and what the record of a session says of it."""

from typing import Any, cast

from nacre.json_types import encode_json
from nacre.messages import SentPayload
from nacre.sandbox import Sandbox
from nacre.tool_search import ToolSearchTelemetry
from nacre.tools.catalog import MAX_COUNTED_IDS
from nacre.trajectory import project
from tests.code_mode.mcp_servers import listed
from tests.code_mode.tools import echo_tool
from tests.contract.requirements import requirement
from tests.tool_search.runs import program, run_with, value_of

TOOLS = {"mode": "tools"}
CODE = """
    await openclaw.tools.search("echo"); await openclaw.tools.search("issue");
    await openclaw.tools.describe("echo");
    await openclaw.tools.call("echo", {});
    await openclaw.tools.call("mcp:github:create_issue", {});
    return openclaw.tools.call("echo", {});
"""


@requirement("tool-search:telemetry")
async def test_the_prompt_of_a_request_is_its_body_without_the_tools(sandbox: Sandbox) -> None:
    run = await run_with(sandbox, tools=[echo_tool()])
    sent = SentPayload(tool_names=run.visible_names, tool_bytes=100, payload_bytes=350)
    for _ in range(2):
        run.verify_payload(sent)
    telemetry = run.telemetry().to_json()
    assert (telemetry["toolBytesSent"], telemetry["promptBytesSent"]) == (200, 500)


@requirement("tool-search:telemetry")
async def test_bytes_catalog_counts_and_tools_called_are_counted(sandbox: Sandbox) -> None:
    tools = [echo_tool(), echo_tool("pick", owner="app", source="client")]
    run = await run_with(sandbox, tools=tools, servers=[listed("github", "create_issue")])
    definitions = run.definitions("anthropic")
    for _ in range(2):
        run.note_request(definitions, prompt="Grüße")
    value_of(await program(run, CODE))
    direct = await run_with(tools=tools, config=False)
    github = await run_with(tools=listed("github", "create_issue").known_tools, config=False)
    telemetry = run.telemetry().to_json()
    shown_directly = telemetry.pop("directToolBytes")
    assert telemetry == {
        "mode": "code",
        "visibleTools": ["tool_search_code"],
        "toolBytes": len(encode_json(run.definitions("openai"))),
        "requests": 2,
        "toolBytesSent": 2 * len(encode_json(definitions)),
        "promptBytesSent": 14,
        "catalogSize": 3,
        "sources": {"openclaw": 1, "mcp": 1, "client": 1},
        "searchCount": 2,
        "describeCount": 1,
        "callCount": 3,
        "calledTools": [
            {"id": "openclaw:core:echo", "source": "openclaw", "count": 2},
            {"id": "mcp:github:create_issue", "source": "mcp", "count": 1},
        ],
    }
    lists = [encode_json([*direct.definitions(), *github.definitions()])]
    # But for brackets and commas.
    assert abs(cast("int", shown_directly) - len(lists[0])) < 10


@requirement("tool-search:session-log")
async def test_the_record_of_a_program_answers_what_a_session_wants_to_know(
    sandbox: Sandbox,
) -> None:
    run = await run_with(sandbox, tools=[echo_tool()], servers=[listed("github", "create_issue")])
    value_of(await program(run, CODE, "call_1"))
    [control] = project(run.trajectory.events)
    assert (control.call_id, control.tool_name) == ("call_1", "tool_search_code")
    telemetry: Any = cast("dict[str, Any]", control.result)["telemetry"]
    assert telemetry["visibleTools"] == ["tool_search_code"]
    assert (telemetry["searchCount"], telemetry["describeCount"]) == (2, 1)
    called = [(child.tool_id, child.source, child.outcome) for child in control.children]
    assert called == [
        ("openclaw:core:echo", "openclaw", "completed"),
        ("mcp:github:create_issue", "mcp", "completed"),
        ("openclaw:core:echo", "openclaw", "completed"),
    ]


@requirement("tool-search:session-log")
async def test_the_record_of_structured_calls_answers_the_same() -> None:
    run = await run_with(tools=[echo_tool()], config=TOOLS)
    await run.call("tool_search", {"query": "echo"})
    await run.call("tool_describe", {"id": "echo"})
    await run.call("tool_call", {"id": "echo", "args": {"a": 1}})
    calls = project(run.trajectory.events)
    assert [call.tool_name for call in calls] == ["tool_search", "tool_describe", "tool_call"]
    [final] = calls[2].children
    assert (final.tool_id, final.input, final.result) == (
        "openclaw:core:echo",
        {"a": 1},
        {"a": 1},
    )
    telemetry: Any = cast("dict[str, Any]", calls[2].result)["telemetry"]
    assert telemetry["visibleTools"] == ["tool_search", "tool_describe", "tool_call"]
    counts = ("searchCount", "describeCount", "callCount")
    assert [telemetry[name] for name in counts] == [1, 1, 1]


async def test_a_large_catalog_is_measured_like_a_small_one() -> None:
    sizes: list[int] = []
    for count in (500, 1_000):
        run = await run_with(tools=[echo_tool(f"tool_{n:04}") for n in range(count)], config=TOOLS)
        await run.call("tool_describe", {"id": "tool_0000"})
        sizes.append(run.telemetry().direct_tool_bytes)
        [control] = project(run.trajectory.events)
        telemetry: Any = cast("dict[str, Any]", control.result)["telemetry"]
        assert telemetry["directToolBytes"] == sizes[-1]
    # But for the brackets around what is shown directly, which is nothing here.
    assert sizes[1] - 2 == 2 * (sizes[0] - 2)


def test_ids_that_are_too_many_to_list_have_no_source() -> None:
    called = {f"mcp:s:{n}": 1 for n in range(MAX_COUNTED_IDS)} | {"other": 7}
    wire = ToolSearchTelemetry(mode="tools", called_tools=called).to_json()
    listed_tools = cast("list[Any]", wire["calledTools"])
    assert listed_tools[-1] == {"id": "other", "source": "other", "count": 7}
