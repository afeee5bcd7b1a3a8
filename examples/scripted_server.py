"""Stands in for a hosted model: answers on loopback, from a script, in the wire formats of OpenAI's
chat completions and Anthropic's messages. There is no model behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Calls:
    """The model calls a tool."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Says:
    """The model answers with text, which ends the turn."""

    text: str


Turn: TypeAlias = Callable[[dict[str, Any]], Calls | Says]
"""The next action of the model, given the result of its last call."""

_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


@contextmanager
def scripted_server(turns: Sequence[Turn]) -> Generator[str]:
    """The URL of a server that plays the turns of one conversation."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = _ANSWERS[self.path](body, turns)
            encoded = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing, so that only the example prints."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _openai_answer(body: dict[str, Any], turns: Sequence[Turn]) -> dict[str, Any]:
    results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    did = _next_turn(turns, results)
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    if isinstance(did, Says):
        message["content"] = did.text
    else:
        function = {"name": did.name, "arguments": json.dumps(did.arguments)}
        call = {"id": f"call_{len(results) + 1}", "type": "function", "function": function}
        message["tool_calls"] = [call]
    reason = "stop" if isinstance(did, Says) else "tool_calls"
    return {
        "id": f"chatcmpl-{len(results) + 1}",
        "object": "chat.completion",
        "created": 1_767_225_600,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": _USAGE,
    }


def _anthropic_answer(body: dict[str, Any], turns: Sequence[Turn]) -> dict[str, Any]:
    results = [
        part["content"]
        for message in body["messages"]
        if message["role"] == "user" and not isinstance(message["content"], str)
        for part in message["content"]
        if part["type"] == "tool_result"
    ]
    did = _next_turn(turns, results)
    part: dict[str, Any] = {"type": "text", "text": did.text} if isinstance(did, Says) else {
        "type": "tool_use",
        "id": f"toolu_{len(results) + 1}",
        "name": did.name,
        "input": did.arguments,
    }  # fmt: skip
    return {
        "id": f"msg_{len(results) + 1}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [part],
        "stop_reason": "end_turn" if isinstance(did, Says) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def _next_turn(turns: Sequence[Turn], results: Sequence[str]) -> Calls | Says:
    last: dict[str, Any] = json.loads(results[-1]) if results else {}
    return turns[len(results)](last)


_ANSWERS = {"/v1/chat/completions": _openai_answer, "/v1/messages": _anthropic_answer}

# One conversation for both formats: a program that yields, and its end.
_PROGRAM = """
const overdue = await tools.list_orders({ status: "overdue" });
const owed = new Map();
for (const { customer, total } of overdue) owed.set(customer, (owed.get(customer) ?? 0) + total);
text(`${overdue.length} overdue orders of ${owed.size} customers`);
await yield_control("about to send reminders");
const letters = [...owed].map(([customer, amount]) => ({ customer, amount }));
return Promise.all(letters.map((letter) => tools.send_reminder(letter)));
"""


def _runs_program(_last: dict[str, Any]) -> Calls:
    return Calls("exec", {"code": _PROGRAM})


def _continues_it(last: dict[str, Any]) -> Calls:
    return Calls("wait", {"runId": last["runId"]})


def _reports(last: dict[str, Any]) -> Says:
    return Says(f"Done: {'; '.join(last['value'])}.")


REMINDERS: Sequence[Turn] = (_runs_program, _continues_it, _reports)
