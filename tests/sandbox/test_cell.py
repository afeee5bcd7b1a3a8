"""Cells: values, output, errors, aborting, and the states of a cell."""

import anyio
import pytest

from nacre.errors import CellStateError
from nacre.json_types import decode_json, encode_json
from nacre.sandbox import (
    CellState,
    Completed,
    Failed,
    ImageOutput,
    JsonOutput,
    Limits,
    Sandbox,
    TextOutput,
    Waiting,
)
from nacre.sandbox.sandbox import check_transition, state_after_leg
from tests.contract.requirements import requirement
from tests.sandbox.cell_results import failure_of, value_of
from tests.sandbox.conftest import HeldHandler


async def test_the_returned_value_is_the_value_of_the_cell(sandbox: Sandbox) -> None:
    assert await value_of(sandbox, "return {sum: 1 + 1, list: [1, null, 'x']}") == {
        "sum": 2,
        "list": [1, None, "x"],
    }


async def test_a_program_without_return_has_the_value_null(sandbox: Sandbox) -> None:
    assert await value_of(sandbox, "1 + 1") is None


async def test_output_is_kept_in_the_order_of_the_calls(sandbox: Sandbox) -> None:
    code = "text('a'); json({b: [1]}); console.log('c', {d: 2n}); console.error('e')"
    result = await sandbox.cell(code).run()
    assert result.output == (
        TextOutput(text="a"),
        JsonOutput(value={"b": [1]}),
        TextOutput(text='c {"d":"2"}'),
        TextOutput(text="e"),
    )


async def test_images_are_output_with_a_marker_for_the_model(sandbox: Sandbox) -> None:
    code = """
        image("data:image/gif;base64," + btoa("GIF89a one"));
        await yield_control();
        return {content: [{type: "image", mimeType: "image/gif", data: btoa("GIF89a two!")}]};
    """
    cell = sandbox.cell(code, limits=Limits(max_output_bytes=1024))
    first, second = await cell.run(), await cell.resume()
    one = ImageOutput(media_type="image/gif", data="R0lGODlhIG9uZQ==")
    two = ImageOutput(media_type="image/gif", data="R0lGODlhIHR3byE=")
    assert (first.images, second.images) == ((one,), (two,))
    assert one.url == "data:image/gif;base64,R0lGODlhIG9uZQ=="
    marker = {"type": "image", "mimeType": "image/gif", "bytes": 10}
    assert first.for_model()["output"] == [marker]
    assert second.for_model()["value"] == {"content": [{**marker, "bytes": 11}]}
    assert "R0lGOD" not in repr(second)


async def test_images_do_not_count_as_output(sandbox: Sandbox) -> None:
    code = "image({mimeType: 'image/gif', data: btoa('GIF89a'.padEnd(300000))}); return 1"
    result = await sandbox.cell(code, limits=Limits(max_output_bytes=1024)).run()
    assert isinstance(result, Completed)
    assert [image.size_bytes for image in result.images] == [300_000]


@pytest.mark.parametrize(
    ("image", "note"),
    [
        ("{mimeType: 'image/svg+xml', data: ''}", "its type is 'image/svg+xml'; known: "),
        ("{mimeType: 'image/png', data: 'R0lG'}", "its data is not image/png"),
        ("'data:image/png;base64,?'", "its data is not base64"),
        ("{mimeType: 'image/gif\\nx', data: 'R0lG'}", "its data is not base64"),
    ],
)
async def test_an_image_that_no_model_takes_becomes_a_note(
    sandbox: Sandbox, image: str, note: str
) -> None:
    result = await sandbox.cell(f"image({image})").run()
    (output,) = result.output
    assert isinstance(output, TextOutput)
    assert output.text.startswith(f"[image left out: {note}")


async def test_notes_about_images_stay_below_the_output_limit(sandbox: Sandbox) -> None:
    # Each of these characters has an escape of ten characters.
    code = "for (;;) image({mimeType: '\\u{e0001}'.repeat(100), data: ''})"
    result = await sandbox.cell(code, limits=Limits(max_output_bytes=4096)).run()
    assert isinstance(result, Failed)
    texts = [item.text for item in result.output if isinstance(item, TextOutput)]
    assert texts[0].startswith("[image left out: its type is ")
    assert len("".join(texts).encode()) <= 4096


async def test_the_deepest_value_fits_into_a_result(sandbox: Sandbox) -> None:
    code = "let a = []; for (let i = 1; i < 240; i++) a = [a]; json(a); return a"
    result = await sandbox.cell(code).run()
    assert isinstance(result, Completed)
    assert decode_json(encode_json({"result": result.to_json()})) == {"result": result.to_json()}


async def test_output_is_told_as_it_comes_while_the_program_still_runs(sandbox: Sandbox) -> None:
    told: list[object] = []
    first = anyio.Event()

    def on_output(item: object) -> None:
        told.append(item)
        first.set()

    cell = sandbox.cell(
        "text('early'); for (;;);", limits=Limits(timeout_ms=60000), on_output=on_output
    )
    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cell.run)
            await first.wait()
            await cell.abort()
    assert told == [TextOutput(text="early")]


async def test_output_is_kept_when_the_cell_fails(sandbox: Sandbox) -> None:
    result = await failure_of(sandbox, "text('before');\nthrow new TypeError('bad')")
    assert (result.reason, result.output) == ("guest_error", (TextOutput(text="before"),))
    assert result.error == "TypeError: bad\n    at cell.js:2:11"


async def test_an_error_names_the_lines_of_the_program_through_nested_functions(
    sandbox: Sandbox,
) -> None:
    code = (
        "function inner() {\n  null.x;\n}\nasync function outer() {\n  inner();\n}\nawait outer()"
    )
    result = await failure_of(sandbox, code)
    assert result.position is not None
    assert (result.position.line, result.position.column) == (2, 3)
    assert "at inner cell.js:2:3\n    at outer cell.js:5:3\n    at cell.js:7:7" in result.error


@pytest.mark.parametrize(
    ("code", "position"),
    [("let x = ;", (1, 9)), ("\n\n  if (", (3, 7)), ("return 1 }", (1, 11))],
)
async def test_a_syntax_error_names_the_line_of_the_program(
    sandbox: Sandbox, code: str, position: tuple[int, int]
) -> None:
    result = await failure_of(sandbox, code)
    assert (result.code, result.reason) == ("invalid_input", "syntax_error")
    assert result.position is not None
    assert (result.position.line, result.position.column) == position


async def test_a_fault_in_on_output_is_logged_and_nothing_is_lost(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(item: object) -> None:
        raise ValueError("mine")

    result = await sandbox.cell("text('a'); return 1", on_output=broken).run()
    assert isinstance(result, Completed)
    assert result.output == (TextOutput(text="a"),)
    assert "on_output failed" in caplog.text


async def test_abort_ends_an_endless_loop_and_its_worker_serves_on(sandbox: Sandbox) -> None:
    started = anyio.Event()
    cell = sandbox.cell(
        "text('in'); for (;;);",
        limits=Limits(timeout_ms=60000),
        on_output=lambda _: started.set(),
    )
    results: list[object] = []

    async def run() -> None:
        results.append(await cell.run())

    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await started.wait()
            await cell.abort("enough")
    result = results[0]
    assert isinstance(result, Failed)
    assert (result.reason, result.error, cell.state) == ("aborted", "enough", CellState.ABORTED)
    assert await value_of(sandbox, "return 'next'") == "next"


@requirement("validation:abort-cleans-up")
async def test_abort_of_a_waiting_cell_cancels_its_calls(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    cell = sandbox.cell(
        "call(); await yield_control(); return 1", functions=("call",), handler=held
    )
    assert isinstance(await cell.run(), Waiting)
    await held.received(1)
    await cell.abort()
    await anyio.wait_all_tasks_blocked()
    assert (held.cancelled, cell.state, cell.snapshot) == ([1], CellState.ABORTED, None)
    with pytest.raises(CellStateError, match="aborted, not waiting"):
        await cell.resume()


async def test_cancelling_the_caller_ends_the_cell_and_its_calls(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    cell = sandbox.cell("return await call()", functions=("call",), handler=held)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cell.run)
        await held.received(1)
        tasks.cancel_scope.cancel()
    await anyio.wait_all_tasks_blocked()
    assert (held.cancelled, cell.state) == ([1], CellState.ABORTED)
    assert await value_of(sandbox, "return 'next'") == "next"


async def test_a_cell_cannot_be_run_twice_nor_resumed_before_it_waits(sandbox: Sandbox) -> None:
    cell = sandbox.cell("return 1")
    with pytest.raises(CellStateError, match="new, not waiting"):
        await cell.resume()
    await cell.run()
    with pytest.raises(CellStateError, match="completed, not new"):
        await cell.run()


async def test_a_second_resume_at_the_same_time_is_refused_and_the_first_goes_on(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    cell = sandbox.cell(
        "const c = call(); await yield_control(); return await c",
        functions=("call",),
        handler=held,
    )
    assert isinstance(await cell.run(), Waiting)
    results: list[object] = []

    async def resume() -> None:
        results.append(await cell.resume())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resume)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(CellStateError, match="running, not waiting"):
            await cell.resume()
        held.answer(1, "ok")
    assert isinstance(results[0], Completed)


async def test_every_cell_has_its_own_random_seed(sandbox: Sandbox) -> None:
    seen = {str(await value_of(sandbox, "return Math.random()")) for _ in range(8)}
    assert len(seen) == 8


async def test_typescript_keeps_its_lines_also_where_it_has_to_be_printed_anew(
    sandbox: Sandbox,
) -> None:
    code = (
        "enum Level {\n  Low = 1,\n  High,\n}\ninterface A { b: string }\nthrow new Error(Level[2])"
    )
    result = await sandbox.cell(code, language="typescript").run()
    assert isinstance(result, Failed)
    assert result.error == "Error: High\n    at cell.ts:6:17"


async def test_a_typescript_diagnostic_has_line_and_column(sandbox: Sandbox) -> None:
    result = await sandbox.cell("const a: number = 1;\nlet b: = 2", language="typescript").run()
    assert isinstance(result, Failed)
    assert (result.code, result.reason) == ("invalid_input", "typescript_transform_failed")
    assert result.position is not None
    assert (result.position.line, result.position.column) == (2, 8)


@pytest.mark.parametrize("functions", ["lookup", [1], [None]])
async def test_functions_that_are_not_names_are_refused(
    sandbox: Sandbox, functions: list[str]
) -> None:
    with pytest.raises(TypeError, match="functions must be a list of names"):
        sandbox.cell("return 1", functions=functions)


async def test_code_that_is_not_text_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(TypeError, match="code must be a string, not a bytes"):
        sandbox.cell(b"return 1")  # pyright: ignore[reportArgumentType]


ENDS = (CellState.COMPLETED, CellState.FAILED, CellState.ABORTED)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("state", list(CellState))
def test_nothing_follows_an_end(end: CellState, state: CellState) -> None:
    with pytest.raises(CellStateError, match=f"cannot go from {end.value} to {state.value}"):
        check_transition(end, state)


@pytest.mark.parametrize("state", [CellState.NEW, CellState.WAITING])
def test_what_does_not_run_can_only_run_or_be_aborted(state: CellState) -> None:
    for after in (CellState.RUNNING, CellState.ABORTED):
        check_transition(state, after)
    for after in (CellState.WAITING, CellState.COMPLETED, CellState.FAILED):
        with pytest.raises(CellStateError):
            check_transition(state, after)


def test_a_leg_without_a_result_was_aborted() -> None:
    assert state_after_leg(None) is CellState.ABORTED
    assert state_after_leg(Failed(error="no", reason="guest_error")) is CellState.FAILED
    assert state_after_leg(Completed(value=1)) is CellState.COMPLETED
