"""A process that writes turns until it is killed; started by test_killed_writer.py.

Each line on standard input is a session: a fork prints its own number, writes turns into the
session and prints the run id of each that has ended. Forking spares the test twenty imports of
SQLAlchemy.
"""

import os
import sys

import anyio

from nacre.messages import AssistantMessage, TextPart, Usage, user_message
from nacre.storage import database, open_store, store

# Loaded before the fork, so that none of them pays for it.
LOADED = (database, store)


async def write_turns(url: str, session_id: str) -> None:
    async with open_store(url) as opened:
        await opened.add_session(id=session_id, agent_id="main")
        for number in range(1_000_000):
            run_id = f"{session_id}-{number}"
            prompt = user_message(f"{run_id} asks")
            answer = AssistantMessage(parts=(TextPart(text=f"{run_id} says " + "x" * 5_000),))
            await opened.begin_turn(
                run_id=run_id, session_id=session_id, prompt=prompt, model="m", surface="direct"
            )
            await opened.end_turn(
                run_id, status="completed", messages=[prompt, answer], usage=Usage()
            )
            os.write(1, f"{run_id}\n".encode())


def main() -> None:
    url = sys.argv[1]
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            # Said by itself: the parent could say it too late, among the run ids.
            os.write(1, f"{os.getpid()}\n".encode())
            anyio.run(write_turns, url, line.strip())
        os.waitpid(child, 0)
        os.write(1, b"gone\n")


if __name__ == "__main__":
    main()
