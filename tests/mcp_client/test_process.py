"""The processes of stdio servers: their last output, and how they are stopped."""

import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from nacre.errors import ToolServerError
from nacre.mcp_client import process
from nacre.mcp_client.process import OutputTail, kill_all_groups
from tests.mcp_client.conftest import Opening
from tests.mcp_client.peers import (
    PATIENCE_SECONDS,
    ROOT,
    call,
    ended,
    is_alive,
    raw,
    text_of,
)


def test_only_the_last_lines_are_kept() -> None:
    tail = OutputTail()
    tail.add(b"".join(b"line %d\n" % number for number in range(100)))
    assert tail.lines == tuple(f"line {number}" for number in range(80, 100))


def test_a_line_may_come_in_pieces_and_need_not_end() -> None:
    tail = OutputTail()
    for piece in (b"first ", b"half\nsec", b"ond"):
        tail.add(piece)
    assert tail.lines == ("first half", "second")
    assert tail.last == "second"


def test_long_lines_and_odd_bytes_are_shown_short_and_plain() -> None:
    tail = OutputTail()
    tail.add(b"\x1b[31mred\x00\xff\n" + b"x" * 1_000_000 + b"\n" + b"y" * 1_000_000)
    red, long, open_line = tail.lines
    assert red == "[31mred \N{REPLACEMENT CHARACTER}"
    assert len(long) == len(open_line) == 400


def test_secrets_are_taken_out() -> None:
    tail = OutputTail(lambda line: line.replace("hunter2", "[redacted]"))
    tail.add(b"password hunter2\n")
    assert tail.lines == ("password [redacted]",)


async def test_a_stubborn_server_and_its_children_are_gone_after_the_end(
    opening: Opening,
) -> None:
    connections = await opening.all(raw("stubborn"), raw(name="other"))
    stubborn, other = connections.servers()
    children = [int(text_of(await call(server, "family"))) for server in (stubborn, other)]
    pids = [server.status().pid or 0 for server in (stubborn, other)]
    with anyio.fail_after(PATIENCE_SECONDS):
        await connections.aclose()
    assert not [pid for pid in pids if is_alive(pid)]
    # They were killed; nobody waits until the system has cleared them away.
    await ended(*children)
    assert [status.state for status in connections.status()] == ["closed", "closed"]


async def test_a_server_that_never_spoke_is_not_given_time_to_finish(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    for grace in ("_EXIT_SECONDS", "_TERM_SECONDS"):
        monkeypatch.setattr(process, grace, 600.0)
    server = await opening.one(raw("silent", startup_seconds=0.5))
    with (
        anyio.fail_after(PATIENCE_SECONDS),
        pytest.raises(ToolServerError, match="did not start within"),
    ):
        await server.tools()


KILLED = """
import anyio
from nacre.mcp_client import McpConnections
from tests.mcp_client.peers import call, raw, text_of

async def main():
    async with McpConnections([raw("stubborn")]) as connections:
        (server,) = connections.servers()
        child = text_of(await call(server, "family"))
        print(f"{child} {server.status().pid}", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_a_stubborn_server_and_its_children_do_not_survive_a_killed_client() -> None:
    async with await anyio.open_process(
        [sys.executable, "-c", KILLED], stderr=None, cwd=ROOT
    ) as client:
        assert client.stdout is not None
        with anyio.fail_after(PATIENCE_SECONDS):
            line = await BufferedByteReceiveStream(client.stdout).receive_until(b"\n", 1000)
        child, server = line.split()
        client.kill()
    await ended(int(child), int(server))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_the_guard_starts_before_its_first_server(opening: Opening) -> None:
    server = await opening.one(raw())
    await call(server, "family")
    ages = await anyio.to_thread.run_sync(ages_of_children)
    guards = [age for command, age in ages.values() if "while read" in command]
    assert guards
    assert min(guards) < ages[server.status().pid or 0][1]


def ages_of_children() -> dict[int, tuple[str, tuple[int, int]]]:
    """The command of each child of this process, and when it started, by pid."""
    ages: dict[int, tuple[str, tuple[int, int]]] = {}
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, children.read_bytes().split()):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            started = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19]
            ages[pid] = (command, (int(started), pid))
    return ages


async def test_all_servers_and_their_children_can_be_killed_at_once(opening: Opening) -> None:
    connections = await opening.all(raw("stubborn", name="a"), raw("stubborn", name="b"))
    servers = connections.servers()
    children = [int(text_of(await call(server, "family"))) for server in servers]
    pids = [server.status().pid for server in servers]
    kill_all_groups()
    await ended(*children, *pids)
