"""Fingerprints of schemas."""

import gc

from nacre.tools import schema_digests
from nacre.tools.definition import Tool, ToolCall
from nacre.tools.schema_digests import schema_digest


async def nothing(input: dict[str, object], call: ToolCall) -> object:
    return None


def tool(description: str) -> Tool:
    return Tool(
        name="t", parameters={"type": "object", "description": description}, execute=nothing
    )


def test_equal_schemas_have_equal_digests_and_others_do_not() -> None:
    one, same, other = tool("a"), tool("a"), tool("b")
    assert schema_digest(one) == schema_digest(same) == schema_digest(one)
    assert schema_digest(other) != schema_digest(one)


def test_nothing_is_kept_of_a_tool_that_is_gone() -> None:
    kept = schema_digests._DIGESTS  # pyright: ignore[reportPrivateUsage]
    gc.collect()
    before = len(kept)
    mortal = tool("mortal")
    schema_digest(mortal)
    assert len(kept) == before + 1
    del mortal
    gc.collect()
    assert len(kept) == before
