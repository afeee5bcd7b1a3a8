"""An app-server that misbehaves as its arguments say.

hang            answers nothing
version=X       says that it is version X
garbage         prints lines that are not JSON, also before the handshake
broken          breaks its answers into several lines, inside of a text
exit=N          exits with status N when a request after the handshake comes
overload=N      says N times that it is overloaded, instead of an answer
reverse         answers two requests in reverse order
image=PATH      runs turns without text that generate an image, twice with the same id
tokens=N        with `image`: says that the turn used N tokens of input
lines=PATH      runs turns that print the lines of this file
ask=METHOD      sends a request of its own, and reports the answer as a notification; it takes the
                request back when `resolve` comes
"""

import json
import sys
from collections.abc import Iterator
from typing import Any


def send(message: dict[str, Any], *, is_broken: bool = False) -> None:
    text = json.dumps(message)
    write(text.replace("\\n", "\n") if is_broken else text)


def write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def answer_with_image(message: dict[str, Any], path: str, tokens: int) -> None:
    method, request_id = message["method"], message["id"]
    if method == "thread/start":
        send({"id": request_id, "result": {"thread": {"id": "t"}}})
    elif method == "turn/start":
        item = {"type": "imageGeneration", "id": "ig_1", "status": "completed", "savedPath": path}
        turn: dict[str, Any] = {"id": "u", "status": "completed", "items": []}
        send({"id": request_id, "result": {"turn": {"id": "u"}}})
        for name, params in (
            ("turn/started", {"turn": {"id": "u"}}),
            ("item/completed", {"turnId": "u", "item": item}),
            ("item/completed", {"turnId": "u", "item": item}),
            ("thread/tokenUsage/updated", {"tokenUsage": {"last": {"inputTokens": tokens}}}),
            ("turn/completed", {"turn": turn}),
        ):
            send({"method": name, "params": {"threadId": "t", **params}})
    else:
        send({"id": request_id, "result": {"data": []}})


def answer_with_lines(message: dict[str, Any], path: str) -> None:
    method, request_id = message["method"], message["id"]
    if method == "turn/start":
        send({"id": request_id, "result": {"turn": {"id": "u"}}})
        sys.stdout.flush()
        with open(path, "rb") as file:
            sys.stdout.buffer.write(file.read())
        sys.stdout.buffer.flush()
    else:
        send({"id": request_id, "result": {"thread": {"id": "t"}, "data": []}})


def answer_turn(message: dict[str, Any], steps: dict[str, str]) -> None:
    if "lines" in steps:
        answer_with_lines(message, steps["lines"])
    else:
        answer_with_image(message, steps["image"], int(steps.get("tokens", "0")))


def is_refused(message: dict[str, Any], overloads: Iterator[int]) -> bool:
    if message.get("method") == "initialize" or next(overloads, None) is None:
        return False
    error = {"code": -32001, "message": "Server overloaded; retry later."}
    send({"id": message["id"], "error": error})
    return True


def main() -> None:
    parts = [part.partition("=") for part in sys.argv[1:]]
    steps = {name: value for name, _, value in parts}
    if "garbage" in steps:
        write("Welcome to Codex!\n{ not json\n[1, 2]\n")
    held: list[int] = []
    overloads = iter(range(int(steps.get("overload", "0"))))
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if "hang" in steps or method == "initialized" or is_refused(message, overloads):
            continue
        if method == "initialize":
            agent = f"nacre/{steps.get('version', '0.163.0')} (Test 1.0)"
            send({"id": message["id"], "result": {"userAgent": agent}})
        elif {"image", "lines"} & {*steps} and method is not None and "id" in message:
            answer_turn(message, steps)
        elif "exit" in steps:
            sys.stderr.write("fatal: token=sk-abcdefghijklmnopqrstuvwxyz0123456789\n")
            sys.exit(int(steps["exit"]))
        elif method is None:
            params = {"threadId": "reports", "answer": message}
            send({"method": "answered", "params": params})
        elif method == "ask":
            request = {"id": "own", "method": steps["ask"], "params": {"threadId": "t"}}
            send(request)
            send({"id": message["id"], "result": {}})
        elif method == "resolve":
            params = {"threadId": "t", "requestId": "own"}
            send({"method": "serverRequest/resolved", "params": params})
            send({"id": message["id"], "result": {}})
        elif "reverse" in steps and len(held) < 1:
            held.append(message["id"])
        else:
            text = "one\ntwo\n\nthree"
            for request_id in (message["id"], *held):
                result = {"text": text, "id": request_id}
                send({"id": request_id, "result": result}, is_broken="broken" in steps)
            held.clear()


main()
