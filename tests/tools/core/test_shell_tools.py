"""The shell tools, with real commands and with commands that do not want to end."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from nacre.config.sections import ExecToolConfig
from nacre.tools.core.shell_process import ShellProblem, kill_all_commands
from nacre.tools.core.shell_tools import Processes, shell_tools
from nacre.tools.core.workspace import FileProblem
from tests.tools.core.tool_calls import Calls

# Writes its number where it can be found, deaf to SIGTERM, and so is its child.
DEAF_FAMILY = """
trap '' TERM
(trap '' TERM; echo $$ >/dev/null; while :; do sleep 1000; done) &
echo $! > child
echo $$ > parent
mkfifo gate 2>/dev/null
echo ready
read line < gate
"""


class Shell(Calls):
    """The tools in a folder of a test's own."""

    def __init__(self, root: Path, config: ExecToolConfig) -> None:
        self.root = root.resolve()
        self.processes = Processes()
        super().__init__(shell_tools(config, root, self.processes))

    async def run(self, command: str, **given: object) -> object:
        return await self.call("exec", command=command, **given)


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    opened = Shell(tmp_path, ExecToolConfig(is_enabled=True, ask="never", max_output_bytes=4096))
    yield opened
    await opened.processes.aclose()


async def until(is_so: Callable[[], bool]) -> None:
    """For what the system does and nothing tells of."""
    with anyio.fail_after(30):
        while not await anyio.to_thread.run_sync(is_so):  # noqa: ASYNC110
            await anyio.sleep(0.005)


def is_written(pid_file: Path) -> Callable[[], bool]:
    """Whether it has its number; a shell makes the file before it writes it."""
    return lambda: pid_file.exists() and pid_file.read_text(encoding="utf-8").endswith("\n")


def is_gone(pid_file: Path) -> Callable[[], bool]:
    """Whether the process whose number is in the file has ended; a zombie has."""

    def look() -> bool:
        with suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{int(pid_file.read_text(encoding='utf-8'))}/stat")
            return status.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
        return True

    return look


def test_switched_off_there_are_none(tmp_path: Path) -> None:
    assert shell_tools(ExecToolConfig(), tmp_path, Processes()) == []


@pytest.mark.parametrize(("ask", "reason"), [("always", True), ("never", False)])
def test_a_person_is_asked_as_configured(tmp_path: Path, ask: str, reason: bool) -> None:
    config = ExecToolConfig(is_enabled=True, ask=ask)  # pyright: ignore[reportArgumentType]
    tools = {tool.name: tool for tool in shell_tools(config, tmp_path, Processes())}
    assert bool(tools["exec"].needs_approval) is reason
    assert not tools["process"].needs_approval


async def test_a_command_runs_in_the_workspace(shell: Shell) -> None:
    assert await shell.run("echo out; echo err >&2; pwd; exit 3") == {
        "exitCode": 3,
        "output": f"out\nerr\n{shell.root}\n",
        "outputBytes": len(str(shell.root)) + 9,
    }


async def test_a_program_runs_without_a_shell(shell: Shell) -> None:
    result = await shell.call("exec", argv=["printf", "%s|", "$HOME", "a b"])
    assert result == {"exitCode": 0, "output": "$HOME|a b|", "outputBytes": 10}


async def test_a_command_runs_in_a_folder_of_the_workspace_and_in_no_other(shell: Shell) -> None:
    (shell.root / "sub").mkdir()
    result = await shell.call("exec", command="pwd", folder="sub")
    assert result["output"] == f"{shell.root}/sub\n"
    with pytest.raises(FileProblem, match="outside of the workspace"):
        await shell.run("pwd", folder="..")
    with pytest.raises(FileProblem, match="missing does not exist"):
        await shell.run("pwd", folder="missing")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "either command or argv"),
        ({"command": "true", "argv": ["true"]}, "either command or argv"),
        ({"argv": ["no-such-program"]}, "the program 'no-such-program' does not exist"),
        ({"argv": ["/etc/passwd"]}, "'/etc/passwd' cannot be run: permission denied"),
        ({"command": "echo a\0b"}, "cannot be started: embedded null byte"),
        ({"command": "true " + "x" * 200_000}, "cannot be started: Argument list too long"),
        ({"argv": ["true", *["x" * 60_000] * 20]}, "argv has more than 1000000 characters"),
    ],
)
async def test_what_cannot_be_run_is_refused_with_a_reason(
    shell: Shell, given: dict[str, object], problem: str
) -> None:
    with pytest.raises(ShellProblem, match=problem):
        await shell.call("exec", **given)


async def test_secrets_of_the_gateway_are_not_passed_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    result = await shell.call("exec", argv=["env"])
    names = {line.partition("=")[0] for line in result["output"].splitlines()}
    assert {"PATH", "HOME", "LANG"} <= names
    assert "OPENAI_API_KEY" not in names
    assert "sk-secret" not in result["output"]


async def test_its_input_is_empty(shell: Shell) -> None:
    assert await shell.run("cat; echo done") == {
        "exitCode": 0,
        "output": "done\n",
        "outputBytes": 5,
    }


async def test_no_open_file_of_the_gateway_is_passed_on(shell: Shell) -> None:
    secret = os.open(shell.root, os.O_RDONLY)
    try:
        result = await shell.call("exec", command="ls /proc/self/fd")
    finally:
        os.close(secret)
    assert set(result["output"].split()) <= {"0", "1", "2", "3"}


async def test_a_signal_is_named(shell: Shell) -> None:
    result = await shell.call("exec", command="kill -USR1 $$")
    assert (result["exitCode"], result["signal"]) == (None, "SIGUSR1")


async def test_of_a_flood_the_beginning_and_the_end_are_kept(shell: Shell) -> None:
    result = await shell.call(
        "exec", command="echo begin; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end"
    )
    assert result["output"].startswith("begin\nxxx")
    assert result["output"].endswith("xxx\nend\n")
    assert result["outputBytes"] == 5_000_011
    assert result["leftOutBytes"] == 5_000_011 - 4096
    assert len(result["output"]) < 4200


async def test_bytes_that_are_no_text_are_shown_as_such(shell: Shell) -> None:
    result = await shell.call("exec", command="printf 'a\\377b'")
    assert (result["output"], result["outputBytes"]) == ("a\ufffdb", 3)


async def test_a_command_that_takes_too_long_is_ended_and_its_output_kept(shell: Shell) -> None:
    result = await shell.call("exec", command=DEAF_FAMILY, timeoutSeconds=2)
    assert result == {
        "exitCode": None,
        "signal": "SIGKILL",
        "output": "ready\n",
        "outputBytes": 6,
        "timedOut": True,
        "note": "the command was ended after 2 s",
    }
    await until(is_gone(shell.root / "child"))
    await until(is_gone(shell.root / "parent"))


async def test_an_endless_flood_is_ended_as_well(shell: Shell) -> None:
    result = await shell.call("exec", command="yes", timeoutSeconds=1)
    assert (result["timedOut"], result["signal"]) == (True, "SIGTERM")
    assert result["leftOutBytes"] > 0


async def test_children_end_with_the_command_that_left_them(shell: Shell) -> None:
    result = await shell.call(
        "exec", command="(trap '' TERM; sleep 1000) & echo $! > child; echo started"
    )
    assert (result["exitCode"], result["output"]) == (0, "started\n")
    assert "use background" in result["note"]
    await until(is_gone(shell.root / "child"))


async def test_an_abort_ends_the_command_and_its_children(shell: Shell) -> None:
    async def run() -> None:
        with shell.abort.signal.cancelling():
            await shell.run(DEAF_FAMILY)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await until(is_written(shell.root / "parent"))
        shell.abort.abort("enough")
    await until(is_gone(shell.root / "child"))
    await until(is_gone(shell.root / "parent"))


async def test_progress_is_told_while_the_command_runs(shell: Shell) -> None:
    await anyio.to_thread.run_sync(os.mkfifo, shell.root / "gate")
    results: list[object] = []

    async def run() -> None:
        results.append(await shell.run("echo one; read line < gate; echo $line"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(30):
            await shell.updated.wait()
        assert shell.updates == [{"output": "one\n", "outputBytes": 4}]
        await anyio.Path(shell.root / "gate").write_text("two\n", encoding="utf-8")
    assert results == [{"exitCode": 0, "output": "one\ntwo\n", "outputBytes": 8}]


async def test_a_command_in_the_background_is_read_bit_by_bit_until_it_ends(shell: Shell) -> None:
    await anyio.to_thread.run_sync(os.mkfifo, shell.root / "gate")
    command = "echo one; read line < gate; echo $line; exit 4"
    started = await shell.run(command, background=True)
    assert started == {"processId": "p1", "status": "running"}
    first = await shell.call("process", action="output", processId="p1", waitSeconds=10)
    assert first == {
        "processId": "p1",
        "command": f"/bin/sh -c {command}",
        "status": "running",
        "outputBytes": 4,
        "output": "one\n",
        "next": 4,
    }
    await anyio.Path(shell.root / "gate").write_text("two\n", encoding="utf-8")
    text, position = "", first["next"]
    while True:
        part = await shell.call(
            "process", action="output", processId="p1", after=position, waitSeconds=10
        )
        text, position = text + part["output"], part["next"]
        if part["status"] == "ended":
            break
    assert (text, part["exitCode"]) == ("two\n", 4)
    listed = await shell.call("process", action="list")
    assert [(each["processId"], each["status"]) for each in listed["processes"]] == [
        ("p1", "ended")
    ]


async def test_all_commands_can_be_killed_at_once_with_their_children(shell: Shell) -> None:
    await shell.run(DEAF_FAMILY, background=True)
    await until(is_written(shell.root / "parent"))
    kill_all_commands()
    await until(is_gone(shell.root / "parent"))
    await until(is_gone(shell.root / "child"))


async def test_a_command_in_the_background_is_killed_with_its_children(shell: Shell) -> None:
    await shell.run(DEAF_FAMILY, background=True)
    await until(is_written(shell.root / "parent"))
    killed = await shell.call("process", action="kill", processId="p1")
    assert (killed["status"], killed["signal"]) == ("ended", "SIGKILL")
    await until(is_gone(shell.root / "child"))
    again = await shell.call("process", action="kill", processId="p1")
    assert again == killed


async def test_another_session_sees_nothing_of_it(shell: Shell) -> None:
    await shell.run("sleep 1000", background=True, session_id="mine")
    listed = await shell.call("process", action="list", session_id="yours")
    assert listed == {"processes": []}
    for action in ("output", "kill"):
        with pytest.raises(ShellProblem, match="has no process 'p1'; it has: none"):
            await shell.call("process", action=action, processId="p1", session_id="yours")
    with pytest.raises(ShellProblem, match="has no process ''; it has: p1"):
        await shell.call("process", action="kill", session_id="mine")


async def test_no_session_has_more_than_its_share_even_if_it_starts_all_at_once(
    shell: Shell,
) -> None:
    refusals: list[str] = []

    async def start() -> None:
        try:
            await shell.run("sleep 1000", background=True)
        except ShellProblem as problem:
            refusals.append(str(problem))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(start)
    assert len(refusals) == 2
    assert "8 processes of this session run in the background" in refusals[0]
    started = await shell.run("sleep 1000", background=True, session_id="other")
    assert started == {"processId": "p9", "status": "running"}


async def test_of_ended_processes_only_the_last_are_kept(shell: Shell) -> None:
    for number in range(1, 21):
        await shell.run("true", background=True)
        await shell.call("process", action="output", processId=f"p{number}", waitSeconds=10)
    listed = await shell.call("process", action="list")
    kept = [each["processId"] for each in listed["processes"]]
    assert kept == [f"p{number}" for number in range(5, 21)]


async def test_all_end_when_the_tools_are_closed(tmp_path: Path) -> None:
    shell = Shell(tmp_path, ExecToolConfig(is_enabled=True))
    results: list[object] = []

    async def run() -> None:
        results.append(await shell.run("echo $$ > front; exec sleep 1000"))

    await shell.run(DEAF_FAMILY, background=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await until(is_written(tmp_path / "parent"))
        await until(is_written(tmp_path / "front"))
        await shell.processes.aclose()
    for name in ("child", "parent", "front"):
        await until(is_gone(tmp_path / name))
    assert results == [{"exitCode": None, "signal": "SIGTERM", "output": "", "outputBytes": 0}]
    with pytest.raises(ShellProblem, match="shutting down"):
        await shell.run("true")


async def test_many_commands_leave_nothing_open(shell: Shell) -> None:
    before = set(await anyio.to_thread.run_sync(os.listdir, "/proc/self/fd"))
    async with anyio.create_task_group() as tasks:
        for _ in range(40):
            tasks.start_soon(shell.run, "echo hello")
    assert set(await anyio.to_thread.run_sync(os.listdir, "/proc/self/fd")) <= before


def test_the_test_knows_a_process_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "me").write_text(str(os.getpid()), encoding="utf-8")
    assert not is_gone(tmp_path / "me")()
