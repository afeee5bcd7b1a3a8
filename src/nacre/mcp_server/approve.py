"""`python -m nacre.mcp_server.approve`: answers approvals for MCP clients that cannot ask.

Only at a terminal: a model with a shell must not be able to agree to its own calls by the way.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, Final, cast

from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.mcp_server.approval_desk import private_directory, sockets_in

if TYPE_CHECKING:
    from pathlib import Path

    from nacre.json_types import JsonObject

_SECONDS: Final = 5.0
_DECISIONS: Final = {"y": "allow-once", "a": "allow-always", "n": "deny"}


def main() -> int:
    """Go through the open approvals of all servers; returns the exit status."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        sys.stderr.write("approve has to be run by a person at a terminal\n")
        return 2
    try:
        directory = private_directory(os.environ)
    except OSError as error:
        sys.stderr.write(f"there is nothing to approve: {error}\n")
        return 1
    count = sum(_go_through(path) for path in sockets_in(directory))
    if not count:
        sys.stdout.write("nothing waits for an approval\n")
    return 0


def _go_through(path: Path) -> int:
    """Ask about each question of one server; returns how many there were."""
    questions = (_request(path, {}) or {}).get("approvals")
    if not isinstance(questions, list):
        return 0
    for question in cast("list[JsonObject]", questions):
        decision = _decision_about(question)
        if decision is not None:
            reply = _request(path, {"answer": question["id"], "decision": decision}) or {}
            sys.stdout.write(f"{reply.get('error', decision)}\n")
    return len(questions)


def _decision_about(question: JsonObject) -> str | None:
    """None for one that stays open."""
    sys.stdout.write(
        f"\n{question.get('toolId')}\n  why you are asked: {question.get('reason')}\n"
        f"  input: {question.get('input')}\n"
    )
    while True:
        answer = input("allow? y(es, once) a(lways, this input) n(o) s(kip): ").strip().lower()[:1]
        if answer == "s":
            return None
        if answer in _DECISIONS:
            return _DECISIONS[answer]


def _request(path: Path, request: JsonObject) -> JsonObject | None:
    """The reply; None where nobody is behind the socket any more."""
    try:
        with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as replies:
            connection.settimeout(_SECONDS)
            connection.connect(str(path))
            connection.sendall(encode_json(request) + b"\n")
            reply = decode_json(replies.readline())
    except ConnectionRefusedError:
        # Left behind by a server that was killed.
        path.unlink(missing_ok=True)
        return None
    except (OSError, NotJsonError):
        return None
    return reply if isinstance(reply, dict) else None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, EOFError):
        sys.exit(130)
