"""The `approve` command: a person at a terminal answers for a client that cannot ask."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from nacre import ApprovalQueue, Runtime
from nacre.mcp_server.approval_desk import ApprovalDesk, private_directory
from tests.mcp_server.clients import connect, exec_in, wait_in
from tests.mcp_server.test_approvals import asking_server

COMMAND = [sys.executable, "-m", "nacre.mcp_server.approve"]


@pytest.fixture(autouse=True)
def own_runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "nacre"


def approve_at_a_terminal(keys: bytes) -> str:
    """What a person who types these keys sees."""
    terminal, end = pty.openpty()
    try:
        process = subprocess.Popen(COMMAND, stdin=end, stdout=end, stderr=end)
        os.close(end)
        os.write(terminal, keys)
        seen = b""
        while True:
            try:
                chunk = os.read(terminal, 4096)
            except OSError:
                # What Linux says when the last program has left a terminal.
                chunk = b""
            if not chunk:
                break
            seen += chunk
        assert process.wait(30) == 0, seen
        return seen.decode()
    finally:
        os.close(terminal)


def files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (b"y\n", {"n": 1}),
        (b"what?\na\n", {"n": 1}),
        (b"n\n", "the approval was denied"),
    ],
)
async def test_a_person_answers_at_a_terminal(runtime: Runtime, keys: bytes, value: object) -> None:
    desk = ApprovalDesk()
    server = asking_server(runtime, desk=desk)
    async with desk.served() as is_served, connect(server, "legacy") as client:
        assert is_served
        code = "return tools.echo({n: 1}).catch(e => e.message)"
        waiting = await exec_in(client, code)
        seen = await anyio.to_thread.run_sync(approve_at_a_terminal, keys)
        assert "openclaw:core:echo" in seen
        assert '{"n":1}' in seen
        result = await wait_in(client, waiting["runId"])
    assert result["value"] == value


async def test_a_question_that_is_skipped_stays_open(runtime: Runtime) -> None:
    desk = ApprovalDesk()
    async with desk.served(), connect(asking_server(runtime, desk=desk), "legacy") as client:
        await exec_in(client, "return tools.echo({n: 1})")
        await anyio.to_thread.run_sync(approve_at_a_terminal, b"s\n")
        assert len(desk.open_questions()) == 1


def test_where_nothing_waits_it_says_so() -> None:
    assert "nothing waits" in approve_at_a_terminal(b"")


def test_without_a_terminal_it_refuses() -> None:
    ran = subprocess.run(COMMAND, input=b"y\n", capture_output=True, timeout=30, check=False)
    assert ran.returncode == 2
    assert b"terminal" in ran.stderr


async def test_the_socket_is_gone_afterwards(own_runtime_directory: Path) -> None:
    async with ApprovalDesk().served():
        assert len(files_in(own_runtime_directory)) == 1
    assert files_in(own_runtime_directory) == []


async def test_a_socket_that_a_killed_server_left_is_removed(own_runtime_directory: Path) -> None:
    killed = await anyio.open_process([sys.executable, "-c", ""])
    await killed.aclose()
    left = own_runtime_directory / f"{killed.pid}-00000000.sock"
    await anyio.Path(own_runtime_directory).mkdir(mode=0o700)
    await anyio.Path(left).touch()
    async with ApprovalDesk().served() as is_served:
        assert is_served
        assert left not in files_in(own_runtime_directory)
        assert len(files_in(own_runtime_directory)) == 1


async def test_a_directory_that_others_may_enter_is_not_used(
    own_runtime_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await anyio.Path(own_runtime_directory).mkdir()
    await anyio.Path(own_runtime_directory).chmod(0o755)
    async with ApprovalDesk().served() as is_served:
        assert not is_served
    assert "only you may enter" in caplog.text


def test_a_link_in_the_place_of_the_directory_is_not_followed(own_runtime_directory: Path) -> None:
    other = own_runtime_directory.parent / "other"
    other.mkdir(mode=0o700)
    own_runtime_directory.symlink_to(other)
    with pytest.raises(PermissionError):
        private_directory({"XDG_RUNTIME_DIR": str(own_runtime_directory.parent)})


@pytest.mark.parametrize("line", [b"\n", b"not json\n", b'{"answer": 5}\n', b"x" * 100_000])
async def test_nonsense_at_the_socket_harms_nobody(
    own_runtime_directory: Path, line: bytes
) -> None:
    desk = ApprovalDesk()
    desk.add(ApprovalQueue())
    async with desk.served():
        (path,) = files_in(own_runtime_directory)
        with anyio.fail_after(10):
            async with await anyio.connect_unix(path) as nonsense:
                await nonsense.send(line)
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    while await nonsense.receive():
                        pass
            async with await anyio.connect_unix(path) as sound:
                await sound.send(b"{}\n")
                assert await sound.receive() == b'{"approvals":[]}\n'
