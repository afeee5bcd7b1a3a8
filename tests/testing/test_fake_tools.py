"""Tools for tests, called as a model would call them."""

import anyio

import nacre
from nacre.testing import HeldTool, RecordingTool


async def test_a_recording_tool_remembers_what_it_was_given() -> None:
    mail = RecordingTool("send_mail", result="sent", description="Send mail", owner="post")
    assert mail.tool.id == "openclaw:post:send_mail"
    async with nacre.CodeMode(tools=[mail.tool]) as code_mode:
        result = await code_mode.exec("return tools.send_mail({ to: 'Ada' })")
    assert result.to_json()["value"] == "sent"
    assert mail.inputs == [{"to": "Ada"}]


async def test_a_recording_tool_raises_what_it_was_told_to() -> None:
    mail = RecordingTool("send_mail", result=OSError("no post today"))
    async with nacre.CodeMode(tools=[mail.tool]) as code_mode:
        result = await code_mode.exec("return tools.send_mail({}).catch((e) => e.message)")
    assert "no post today" in str(result.to_json()["value"])


async def test_held_calls_are_all_in_before_any_is_answered() -> None:
    slow = HeldTool("slow")
    results: list[object] = []
    async with nacre.CodeMode(tools=[slow.tool]) as code_mode:

        async def run() -> None:
            program = "return Promise.all([1, 2].map((n) => tools.slow({ n })))"
            results.append((await code_mode.exec(program)).to_json()["value"])

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await slow.wait_for_calls(2)
                assert results == []
                slow.answer("at last")
    assert (slow.inputs, slow.cancelled) == ([{"n": 1}, {"n": 2}], [])
    assert results == [["at last", "at last"]]


async def test_a_held_call_tells_that_it_was_cancelled() -> None:
    slow = HeldTool("slow")
    async with nacre.CodeMode(tools=[slow.tool]) as code_mode:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(code_mode.exec, "return tools.slow({})")
                await slow.wait_for_calls()
                await code_mode.run.abort("enough")
    assert len(slow.cancelled) == 1
