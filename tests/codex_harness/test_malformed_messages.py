"""An app-server that prints garbage and malformed messages in the middle of a turn."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from nacre.codex_harness import client
from nacre.messages import AssistantMessage
from tests.codex_harness.codex_setup import fake_server
from tests.codex_harness.test_harness import open_setup
from tests.contract.requirements import requirement

WRONG: tuple[Any, ...] = (1, "x", None, [], {}, True, 1e308, [[1]], {"a": None})
"""Values that no member of a message should have, or that it may have only sometimes."""
NOTIFICATIONS = (
    "item/started",
    "item/completed",
    "item/agentMessage/delta",
    "item/reasoning/textDelta",
    "thread/tokenUsage/updated",
    "turn/plan/updated",
    "hook/started",
    "hook/completed",
    "error",
    "serverRequest/resolved",
)
ITEMS = (
    "agentMessage",
    "reasoning",
    "plan",
    "commandExecution",
    "fileChange",
    "mcpToolCall",
    "dynamicToolCall",
    "imageGeneration",
    "userMessage",
    "contextCompaction",
    "collabAgentToolCall",
    "unheard-of",
    *WRONG,
)
ITEM_MEMBERS = (
    *("text", "summary", "content", "command", "cwd", "status", "changes", "server", "tool"),
    *("arguments", "result", "savedPath", "receiverThreadIds", "agentThreadId", "exitCode"),
    *("aggregatedOutput", "durationMs", "clientId", "phase", "error"),
)
REQUESTS = (
    "item/tool/call",
    "item/commandExecution/requestApproval",
    "item/fileChange/requestApproval",
    "item/permissions/requestApproval",
    "mcpServer/elicitation/request",
    "item/tool/requestUserInput",
    "attestation/generate",
)
REQUEST_MEMBERS = (
    *("callId", "tool", "namespace", "arguments", "itemId", "command", "cwd", "changes"),
    *("permissions", "questions", "_meta", "requestedSchema", "availableDecisions", "reason"),
)


def message(method: str, members: dict[str, Any], **more: Any) -> bytes:
    params = {"threadId": "t", "turnId": "u", **members}
    return json.dumps({**more, "method": method, "params": params}).encode()


def garbage() -> Iterator[bytes]:
    yield b"\x00\xff\xfe Welcome!"
    yield b"{" * 5_000
    yield b'{"method":"x","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    yield b'{"id":null,"method":null}'
    yield b'{"id":true,"result":1}'
    yield b'{"id":99999999999999999999999,"result":1}'
    yield b'{"id":[1],"method":"item/tool/requestUserInput","params":[]}'


def malformed() -> Iterator[bytes]:
    for wrong in WRONG:
        for method in NOTIFICATIONS:
            for name in ("item", "delta", "itemId", "tokenUsage", "run", "error", "requestId"):
                yield message(method, {name: wrong})
            for kind in ITEMS:
                members = dict.fromkeys(ITEM_MEMBERS, wrong)
                yield message(method, {"item": {"type": kind, "id": wrong, **members}})
        usage = {"inputTokens": wrong, "outputTokens": wrong}
        tokens = {"last": usage, "modelContextWindow": wrong}
        yield message("thread/tokenUsage/updated", {"tokenUsage": tokens})
        for turn in (wrong, {"id": wrong}):
            yield message("turn/completed", {"turn": turn})
        yield json.dumps({"method": "turn/completed", "params": wrong}).encode()
        for method in REQUESTS:
            members = dict.fromkeys(REQUEST_MEMBERS, wrong)
            yield message(method, members, id=f"{method} {wrong}")


def answer(text: str) -> Iterator[bytes]:
    completed: dict[str, Any] = {"id": "u", "status": "completed", "items": []}
    # A delta without an end: the model was steered.
    yield message("item/agentMessage/delta", {"itemId": "old", "delta": "I beg"})
    yield message("item/completed", {"item": {"type": "agentMessage", "id": "m", "text": text}})
    for _ in range(2):
        yield message("turn/completed", {"turn": completed})


@requirement("codex:malformed-messages")
async def test_garbage_and_malformed_messages_do_not_cost_the_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MAX_LINE_BYTES", 300_000)
    long_item = {"type": "agentMessage", "id": "long", "text": "x" * 400_000}
    lines = [
        message("turn/started", {"turn": {"id": "u"}}),
        *garbage(),
        message("item/completed", {"item": long_item}),
        message("item/tool/call", {"arguments": "x" * 400_000}, id="long"),
        *malformed(),
        *answer("Fine."),
    ]
    path = tmp_path / "lines"
    await anyio.to_thread.run_sync(path.write_bytes, b"\n".join(lines) + b"\n")
    server = fake_server(f"lines={path}")
    async with open_setup(tmp_path, [], codex={"appServer": server}) as setup:
        run = await setup.turn("hello")
        assert run.result is not None
        assert (run.result.error, run.result.text) == ("", "Fine.")
        assert setup.system.approvals.pending == ()
        stored = [it.message for it in await setup.system.store.messages(run.session_id)]
    (last,) = [it for it in stored if isinstance(it, AssistantMessage)]
    assert last.text.endswith("Fine.")
    assert "I beg" not in last.text
    assert [record for record in caplog.records if record.exc_info] == []
