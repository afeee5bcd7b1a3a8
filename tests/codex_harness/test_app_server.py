"""App-server processes: start, version, sharing, replacement, and processes that survived."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest

from nacre.codex_harness import AppServers
from nacre.codex_harness.app_server import plan_launch
from nacre.errors import CodexError
from nacre.json_types import JsonObject
from tests.codex_harness.codex_setup import codex_config, fake_server
from tests.contract.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture
async def servers() -> AsyncIterator[AppServers]:
    before = set(psutil.Process().children(recursive=True))
    async with AppServers() as servers:
        yield servers
    left = await anyio.to_thread.run_sync(
        lambda: set(psutil.Process().children(recursive=True)) - before
    )
    assert not left


def children() -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        # One that has just ended has no command line.
        with suppress(psutil.NoSuchProcess):
            if "fake_app_server.py" in " ".join(process.cmdline()):
                found.append(process)
    return found


async def test_sessions_of_an_agent_share_a_process_and_other_settings_replace_it(
    servers: AppServers, tmp_path: Path
) -> None:
    config = await codex_config(tmp_path, fake_server())
    async with servers.use(config, "Main") as first, servers.use(config, "main") as second:
        assert first is second
        async with servers.use(config, "helper") as helper:
            assert helper is not first
        changed = await codex_config(tmp_path, fake_server("version=0.170.0"))
        async with servers.use(changed, "main") as third:
            assert third.version == (0, 170, 0)
            # The old one goes on for those who use it.
            assert not first.is_closed
            await first.request("anything", {})
    with anyio.fail_after(30):
        await first.wait_closed()
    assert not third.is_closed
    assert len(await anyio.to_thread.run_sync(children)) == 2


@requirement("codex:crash-of-the-process")
async def test_a_process_that_died_is_started_again(servers: AppServers, tmp_path: Path) -> None:
    config = await codex_config(tmp_path, fake_server())
    async with servers.use(config, "main") as client:
        (process,) = await anyio.to_thread.run_sync(children)
        process.kill()
        with anyio.fail_after(30):
            error = await client.wait_closed()
        assert "was killed by SIGKILL" in str(error)
    async with servers.use(config, "main") as again:
        assert again is not client
        await again.request("anything", {})


@requirement("codex:fails-closed")
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"command": "/no/such/codex"}, "is '/no/such/codex', which is not a program"),
        (fake_server("version=0.124.9"), "is Codex 0.124.9; Nacre needs 0.125.0 or newer"),
        (fake_server("version=0.125.0-alpha.3"), "is Codex 0.125.0-alpha.3; Nacre needs 0.125.0"),
        (fake_server("version=unknown"), "does not tell its version; Nacre needs 0.125.0 or newer"),
        (
            fake_server("hang", "garbage", requestTimeoutMs=3000),
            "is not a working Codex app-server: Codex did not answer initialize within 3 seconds; "
            "it wrote: unexpected output: [1, 2]",
        ),
        ({"command": "false"}, "is not a working Codex app-server: the Codex app-server exited"),
    ],
)
async def test_a_program_that_is_no_usable_app_server_is_refused(
    servers: AppServers, tmp_path: Path, settings: JsonObject, problem: str
) -> None:
    with pytest.raises(CodexError) as raised:
        async with servers.use(await codex_config(tmp_path, settings), "main"):
            pass
    assert problem in str(raised.value)
    assert servers.running == ()


@requirement("codex:fails-closed")
@pytest.mark.parametrize("part", ["", "main", ".processes"])
async def test_a_directory_that_cannot_be_used_is_named(
    servers: AppServers, tmp_path: Path, part: str
) -> None:
    config = await codex_config(tmp_path, fake_server())
    place = config.homes / part
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("not a directory")
    with pytest.raises(CodexError, match=f"{re.escape(str(place))}.* cannot be created"):
        async with servers.use(config, "main"):
            pass
    # Nothing has to be started again when it is repaired.
    place.unlink()
    async with servers.use(config, "main") as client:
        assert not client.is_closed


@requirement("codex:fails-closed")
async def test_a_directory_that_cannot_be_written_is_named(
    servers: AppServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = await codex_config(tmp_path, fake_server())

    # Not with its mode: root can write everywhere.
    def can_use(path: Path, _mode: int) -> bool:
        return path != config.homes / "main"

    monkeypatch.setattr(os, "access", can_use)
    problem = f"the directory {config.homes / 'main'} for Codex cannot be written"
    with pytest.raises(CodexError, match=re.escape(problem)):
        async with servers.use(config, "main"):
            pass


async def test_the_home_is_private_and_secrets_of_nacre_stay_out_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: AppServers
) -> None:
    secrets = ("NACRE_GATEWAY_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CODEX_API_KEY")
    for name in (*secrets, "OF_A_TOOL", "CLEARED"):
        monkeypatch.setenv(name, "secret")
    settings = fake_server(clearEnv=["CLEARED", "HOME", "CODEX_HOME"])
    config = await codex_config(tmp_path, settings)
    launch = await anyio.to_thread.run_sync(plan_launch, config, "main", dict(os.environ))

    assert {"HOME", "OF_A_TOOL"} <= set(launch.environment)
    assert not {*secrets, "CLEARED"} & set(launch.environment)
    assert launch.environment["CODEX_HOME"] == str(config.homes / "main") == str(launch.home)
    temporary = Path(launch.environment["TMPDIR"])
    assert not launch.home.is_relative_to(temporary)
    async with servers.use(config, "main"):
        info = await anyio.to_thread.run_sync(launch.home.stat)
    assert stat.S_IMODE(info.st_mode) == 0o700


STARTER = """
import anyio, os, signal, sys
from pathlib import Path
from nacre.codex_harness import AppServers
from tests.codex_harness.codex_setup import codex_config, fake_server

async def main():
    async with AppServers() as servers:
        config = await codex_config(Path(sys.argv[1]), fake_server())
        async with servers.use(config, "main"):
            print("started", flush=True)
            await anyio.sleep_forever()

anyio.run(main)
"""


@requirement("codex:dies-with-its-parent")
async def test_an_app_server_ends_with_a_killed_parent(tmp_path: Path) -> None:
    starter = await anyio.open_process([sys.executable, "-c", STARTER, str(tmp_path)], stderr=None)
    assert starter.stdout is not None
    with anyio.fail_after(60):
        assert (await starter.stdout.receive()).startswith(b"started")
    server = await anyio.to_thread.run_sync(_find_fake_child, starter.pid)
    starter.kill()
    await starter.wait()
    with anyio.fail_after(30):
        await anyio.to_thread.run_sync(lambda: psutil.wait_procs([server], timeout=20))
    assert not server.is_running()
    await starter.aclose()


def _find_fake_child(pid: int) -> psutil.Process:
    found = psutil.Process(pid).children(recursive=True)
    (server,) = [it for it in found if "fake_app_server.py" in " ".join(it.cmdline())]
    return server


@requirement("codex:orphans-are-ended")
async def test_the_next_start_ends_an_app_server_whose_parent_is_gone_and_no_other(
    servers: AppServers, tmp_path: Path
) -> None:
    config = await codex_config(tmp_path, fake_server())
    records = config.homes / ".processes"
    async with servers.use(config, "other"):
        (own,) = await anyio.to_thread.run_sync(lambda: list(records.glob("*.json")))
        record = json.loads(await anyio.to_thread.run_sync(own.read_bytes))

        def start_orphans() -> list[subprocess.Popen[bytes]]:
            # The first one: its parent is gone. The second: the number was used again.
            orphans = [
                subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, process_group=0)
                for _ in range(2)
            ]
            for at, orphan in enumerate(orphans):
                fields = Path(f"/proc/{orphan.pid}/stat").read_text("ascii").split(")")[1].split()
                process = {
                    "pid": orphan.pid,
                    "boot": record["parent"]["boot"],
                    "started": int(fields[19]) - at,
                }
                gone = {**record["parent"], "started": 1}
                path = records / f"{orphan.pid}.json"
                path.write_text(json.dumps({"process": process, "parent": gone}))
                path.chmod(0o600)
            return orphans

        first, second = await anyio.to_thread.run_sync(start_orphans)
        async with servers.use(config, "main"):
            with anyio.fail_after(30):
                await anyio.to_thread.run_sync(first.communicate)
            assert first.returncode == -9
            assert second.poll() is None
            assert await anyio.to_thread.run_sync(own.exists)
        await anyio.to_thread.run_sync(lambda: second.communicate(b"\n"))


@requirement("codex:fresh-home")
async def test_processes_that_start_at_once_in_a_fresh_home_all_work(tmp_path: Path) -> None:
    config = await codex_config(tmp_path)
    versions: list[tuple[int, ...]] = []

    async def start() -> None:
        # As in a Nacre of its own: nothing is shared but the files.
        async with AppServers() as servers, servers.use(config, "main") as client:
            await client.request("thread/list", {})
            versions.append(client.version)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(start)
    assert len(versions) == 3
