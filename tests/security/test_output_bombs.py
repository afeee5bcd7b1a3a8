"""Programs that drown the host in output: stopped at the limit, with what fitted before."""

from typing import cast

import pytest

from nacre.sandbox import Limits, Sandbox
from tests.contract.requirements import requirement
from tests.security.attacks import attack, completed, verdict

LIMIT = 4096
LIMITS = Limits(timeout_ms=10_000, max_output_bytes=LIMIT)

HUGE = {
    "text": "text('x'.repeat(1 << 20))",
    "text_of_an_object": "text({a: 'x'.repeat(1 << 20)})",
    "json": "json(new Array(10000).fill(1))",
    "log": "console.log('x'.repeat(1 << 20))",
    "log_of_many_arguments": "console.log(...new Array(10000).fill('x'))",
    "log_of_huge_arguments": "console.log('a'.repeat(1 << 16), 'b'.repeat(1 << 16))",
    "log_with_placeholders": "console.log('%s'.repeat(1000), ...new Array(1000).fill('12345'))",
    "table": "console.table(new Array(10000).fill({a: 1}))",
    "caught": "for (;;) try { text('x'.repeat(1 << 20)) } catch {}",
    "in_a_timer": "await new Promise(() => setTimeout(() => text('x'.repeat(1 << 20)), 0))",
    "after_an_answer": "await echo(1); text('x'.repeat(1 << 20))",
}


@pytest.mark.parametrize("code", HUGE.values(), ids=HUGE.keys())
async def test_one_huge_output_ends_the_cell_and_none_of_it_is_kept(
    sandbox: Sandbox, code: str
) -> None:
    result = await attack(sandbox, f"text('before'); {code}", limits=LIMITS)
    assert verdict(result) == ("failed", "output_limit_exceeded", "output_limit_exceeded")
    assert result["output"] == [{"type": "text", "text": "before"}]
    assert f"of {LIMIT} bytes are left (maxOutputBytes)" in str(result["error"])


@pytest.mark.parametrize(
    "call", ["text('x')", "text('')", "json(1)", "console.log()", "console.error(1)"]
)
@requirement("validation:output-cap", "security:caps")
async def test_a_million_small_outputs_end_the_cell_and_those_that_fitted_are_kept(
    sandbox: Sandbox, call: str
) -> None:
    result = await attack(sandbox, f"for (let i = 0; i < 1e6; i++) {call}", limits=LIMITS)
    assert verdict(result) == ("failed", "output_limit_exceeded", "output_limit_exceeded")
    output = result["output"]
    assert isinstance(output, list)
    # An item counts for more than its text, so that empty ones end as well.
    assert 0 < len(output) <= LIMIT / 16
    assert output == [output[0]] * len(output)


IMAGES = {
    "one": "image({mimeType: 'image/gif', data: 'x'.repeat(9e6)})",
    "many": "for (;;) image({mimeType: 'image/gif', data: 'x'.repeat(1e5)})",
    "in_the_value": "const data = 'x'.repeat(5e6), image = {type: 'image', mimeType: 'a', data};"
    "return [image, {...image}]",
    "of_a_type": "image({mimeType: 'x'.repeat(9e6), data: ''})",
}


@pytest.mark.parametrize("code", IMAGES.values(), ids=IMAGES.keys())
async def test_too_many_bytes_of_images_end_the_cell(sandbox: Sandbox, code: str) -> None:
    limits = Limits(timeout_ms=20_000, memory_limit_bytes=128 << 20, max_output_bytes=1 << 20)
    result = await attack(sandbox, code, limits=limits)
    assert verdict(result) == ("failed", "output_limit_exceeded", "output_limit_exceeded")
    assert "bytes are left for images" in str(result["error"])


async def test_empty_images_end_the_cell_at_its_output_limit(sandbox: Sandbox) -> None:
    code = "for (;;) image({mimeType: 'x'.repeat(1000), data: ''})"
    result = await attack(sandbox, code, limits=LIMITS)
    assert verdict(result) == ("failed", "output_limit_exceeded", "output_limit_exceeded")
    assert sum(len(str(item)) for item in cast("list[object]", result["output"])) <= LIMIT


async def test_a_program_shows_at_most_twenty_images(sandbox: Sandbox) -> None:
    code = "for (let i = 0; i < 22; i++) image({mimeType: 'image/gif', data: btoa('GIF89a')})"
    result = await attack(sandbox, code)
    kinds = [item["type"] for item in cast("list[dict[str, str]]", result["output"])]
    assert kinds == ["image"] * 20 + ["text"] * 2


async def test_a_huge_value_ends_the_cell_and_says_how_large_it_is(sandbox: Sandbox) -> None:
    assert await attack(sandbox, "text('kept'); return 'x'.repeat(100000)", limits=LIMITS) == {
        "status": "failed",
        "error": f"the value of 100002 bytes does not fit: {LIMIT - 20} of {LIMIT} bytes are left "
        "(maxOutputBytes); return or print less",
        "code": "output_limit_exceeded",
        "reason": "output_limit_exceeded",
        "output": [{"type": "text", "text": "kept"}],
    }


@requirement("validation:output-cap")
async def test_the_limit_holds_across_waits(sandbox: Sandbox) -> None:
    code = (
        f"text('x'.repeat({LIMIT - 100})); await yield_control(); text('y'.repeat(200)); return 1"
    )
    cell = sandbox.cell(code, limits=LIMITS)
    assert type(await cell.run()).__name__ == "Waiting"
    resumed = await cell.resume()
    assert (type(resumed).__name__, getattr(resumed, "reason", "")) == (
        "Failed",
        "output_limit_exceeded",
    )
    assert resumed.output == ()


async def test_a_huge_error_is_cut_to_what_a_model_can_read(sandbox: Sandbox) -> None:
    result = await attack(sandbox, "throw new Error('x'.repeat(1 << 20))", limits=LIMITS)
    assert verdict(result) == ("failed", "internal_error", "guest_error")
    assert str(result["error"]).startswith("Error: xxx")
    assert len(str(result["error"])) < 10_000


async def test_a_huge_stack_is_cut_to_what_a_model_can_read(sandbox: Sandbox) -> None:
    code = "const e = new Error('x'); e.stack = '    at f (cell.js:1:1)\\n'.repeat(1e4); throw e"
    result = await attack(sandbox, code, limits=LIMITS)
    assert result["error"] == "Error: x" + "\n    at f cell.js:1:1" * 6


async def test_output_just_below_the_limit_passes(sandbox: Sandbox) -> None:
    assert await attack(sandbox, f"text('x'.repeat({LIMIT - 100})); return 1", limits=LIMITS) == {
        **completed(1),
        "output": [{"type": "text", "text": "x" * (LIMIT - 100)}],
    }
