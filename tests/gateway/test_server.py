"""The gateway as a process: address, token, reload and shutdown."""

import json
import os
import shutil
import signal
import socket
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest

from nacre.config import ConfigFile, GatewayConfig, SystemConfig, check_auth
from nacre.config.system import system_config_from
from nacre.errors import ConfigError
from nacre.gateway.server import (
    GatewayOptions,
    gateway_url,
    limit_free_memory,
    load_token,
    resident_bytes,
    return_free_memory,
    serve_gateway,
    token_file,
)
from nacre.http_server import listen_on
from nacre.storage import MediaRecord, open_store
from nacre.testing import Call, Say, ScriptedProvider, Stall
from tests.gateway.processes import config_file, gateway_process, served
from tests.gateway.worlds import TOKEN

IMPATIENT = {"gateway": {"shutdownSeconds": 0}}


async def kinds(client: httpx2.AsyncClient, run_id: str) -> AsyncIterator[str]:
    async with client.stream("GET", f"/api/runs/{run_id}/events") as answer:
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                yield line.removeprefix("event: ")


async def started(client: httpx2.AsyncClient) -> str:
    answer = await client.post("/api/runs", json={"text": "hello", "sessionKey": "k"})
    return answer.json()["runId"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines are for curl")
async def test_without_any_configuration_what_it_says_to_try_works(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, "--port", "0", python=sys.executable) as gateway:
        said: list[str] = []
        while not said or "/events" not in said[-1]:
            said.append(await gateway.line())
        first = next(n for n, line in enumerate(said) if line.startswith("Try"))
        script = "\n".join(said[first + 1 :])
        tried = await anyio.run_process(["bash", "-euc", script])
        # A new token in the file replaces the generated one.
        token = next(line.split()[1] for line in said if line.strip().startswith("token "))
        await anyio.Path(token).write_text("rotated-0123456789", encoding="ascii")
        await gateway.logged("the token changed")
        again = await anyio.run_process(["bash", "-euc", script])
        gateway.signal(signal.SIGINT)
        assert await gateway.wait() == 0
    output = tried.stdout.decode()
    assert "42" in output.partition("id: 0")[0]
    assert "event: call.ended" in output
    assert "event: run.completed" in output
    assert any("demo/demo" in line for line in said)
    assert "event: run.completed" in again.stdout.decode()


async def test_a_signal_lets_runs_end_and_streams_with_them(tmp_path: Path) -> None:
    release = anyio.Event()
    async with ScriptedProvider([[Say("a "), Stall(release), Say("b")], Say("c")]) as model:
        config = await config_file(tmp_path, model)
        async with served(tmp_path, config) as (gateway, client):
            run_id = await started(client)
            seen: list[str] = []
            async for kind in kinds(client, run_id):
                seen.append(kind)
                if kind == "text.delta" and not release.is_set():
                    gateway.signal(signal.SIGTERM)
                    await gateway.logged("SIGTERM")
                    release.set()
            assert await gateway.wait() == 0
        async with served(tmp_path, config) as (_, client):
            run = (await client.get(f"/api/runs/{run_id}")).json()
    assert seen[-1] == "run.completed"
    assert (run["state"], run["result"]["text"]) == ("completed", "a b")


async def test_what_does_not_end_in_time_is_aborted_and_kept_when_the_terminal_closes(
    tmp_path: Path,
) -> None:
    async with ScriptedProvider([[Say("a "), Stall()], Say("back")]) as model:
        config = await config_file(tmp_path, model, IMPATIENT)
        async with served(tmp_path, config) as (gateway, client):
            run_id = await started(client)
            seen: list[str] = []
            async for kind in kinds(client, run_id):
                seen.append(kind)
                if kind == "text.delta":
                    # A closed terminal: the system and the shell send one each.
                    gateway.signal(signal.SIGHUP)
                    await gateway.logged("SIGHUP")
                    gateway.signal(signal.SIGHUP)
            assert await gateway.wait() == 0
        async with served(tmp_path, config) as (_, client):
            run = (await client.get(f"/api/runs/{run_id}")).json()
            next_id = await started(client)
            assert [kind async for kind in kinds(client, next_id)][-1] == "run.completed"
    assert seen[-1] == "run.aborted"
    assert (run["state"], run["result"]["text"]) == ("aborted", "a ")


async def test_a_signal_does_not_wait_for_people(tmp_path: Path) -> None:
    code = "return await tools.write({path: 'a.txt', content: 'b'})"
    patient = {"tools": {"codeMode": True}, "gateway": {"shutdownSeconds": 600}}
    async with ScriptedProvider([Call("exec", {"code": code})]) as model:
        config = await config_file(tmp_path, model, patient)
        async with served(tmp_path, config) as (gateway, client):
            run_id = await started(client)
            seen: list[str] = []
            async for kind in kinds(client, run_id):
                seen.append(kind)
                if kind == "run.waiting":
                    gateway.signal(signal.SIGTERM)
            assert await gateway.wait() == 0
        async with served(tmp_path, config) as (_, client):
            run = (await client.get(f"/api/runs/{run_id}")).json()
    assert seen[-1] == "run.aborted"
    assert (run["state"], run["result"]["finishReason"]) == ("aborted", "aborted")
    assert "waited for an answer" in run["result"]["error"]


async def test_a_second_signal_does_not_wait_and_the_session_goes_on(tmp_path: Path) -> None:
    async with ScriptedProvider([[Say("a "), Stall()], Say("back")]) as model:
        config = await config_file(tmp_path, model)
        async with served(tmp_path, config) as (gateway, client):
            run_id = await started(client)
            with pytest.raises(httpx2.TransportError):
                async for kind in kinds(client, run_id):
                    if kind == "text.delta":
                        gateway.signal(signal.SIGTERM)
                        await gateway.logged("SIGTERM")
                        gateway.signal(signal.SIGTERM)
            assert await gateway.wait() == 128 + signal.SIGTERM
        async with served(tmp_path, config) as (_, client):
            run = (await client.get(f"/api/runs/{run_id}")).json()
            next_id = await started(client)
            assert [kind async for kind in kinds(client, next_id)][-1] == "run.completed"
    assert run["state"] == "interrupted"


async def test_a_changed_file_is_taken_over_while_it_runs(tmp_path: Path) -> None:
    async with ScriptedProvider([]) as model:
        config = await config_file(tmp_path, model)
        async with served(tmp_path, config) as (gateway, client):
            await config_file(tmp_path, model, {"gateway": {"auth": {"token": "x" * 20}}})
            await gateway.logged("the configuration changed: gateway")
            assert (await client.get("/api/agents")).status_code == 401
            new = {"authorization": f"Bearer {'x' * 20}"}
            assert (await client.get("/api/agents", headers=new)).status_code == 200
            await config_file(tmp_path, model, {"gateway": {"auth": {"token": "short"}}})
            await gateway.logged("the configuration stays as it was")
            assert (await client.get("/api/agents", headers=new)).status_code == 200


async def test_who_may_call_is_judged_by_the_address_that_it_still_listens_at(
    tmp_path: Path,
) -> None:
    async with ScriptedProvider([]) as model:
        config = await config_file(tmp_path, model, {"gateway": {"host": "0.0.0.0"}})
        async with served(tmp_path, config) as (gateway, client):
            closed = {"host": "127.0.0.1", "auth": {"mode": "none"}}
            await config_file(tmp_path, model, {"gateway": closed})
            await gateway.logged("the configuration stays as it was")
            nobody = {"authorization": ""}
            assert (await client.get("/api/agents", headers=nobody)).status_code == 401


async def test_another_address_counts_from_the_next_start_on(tmp_path: Path) -> None:
    async with ScriptedProvider([]) as model:
        config = await config_file(tmp_path, model)
        async with served(tmp_path, config) as (gateway, client):
            await config_file(tmp_path, model, {"gateway": {"host": "nacre.example"}})
            line = await gateway.logged("configuration", "gateway.host")
            assert "gateway.host changed; restart the gateway to apply it" in line
            assert (await client.get("/api/agents")).status_code == 200
            await config_file(tmp_path, model)
            line = await gateway.logged("configuration", "gateway.host")
            assert "gateway.host is back at the value in use" in line


def test_a_signal_during_the_start_ends_it_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def open_half(config: SystemConfig, *, continues_turns: bool) -> AsyncGenerator[None]:
        del config, continues_turns
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await anyio.sleep_forever()
        except BaseException:
            raise OSError("half open") from None
        yield

    monkeypatch.setattr("nacre.gateway.server.open_system", open_half)
    document = {"gateway": {"port": 0, "auth": {"token": TOKEN}}}
    config = system_config_from(document, environment={}, folder=tmp_path)
    file = ConfigFile(path=tmp_path / "nacre.json5", origin="user")
    options = GatewayOptions(config=config, file=file, environment={})
    serve_gateway(options, lambda served: pytest.fail(f"{served.url} is served"))
    assert "stopped by a signal: half open" in caplog.text


async def test_uploads_that_expired_while_it_was_not_running_are_deleted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nacre.db"
    record = MediaRecord(
        id="u", session_id="", run_id="", name="a.txt", type="text/plain", size=1, created=1.0
    )
    async with open_store(url) as store:
        await store.media.add_upload(record, b"x")
    async with ScriptedProvider([]) as model:
        config = await config_file(tmp_path, model, {"storage": {"url": url}})
        async with served(tmp_path, config) as (gateway, _):
            await gateway.logged("1 expired uploads were deleted")


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with gateway_process(tmp_path, "--port", port) as gateway:
            await gateway.logged(f"is {port}: another program uses it at 127.0.0.1")
            assert await gateway.wait() == 1


async def test_everybody_is_not_served_without_a_token(tmp_path: Path) -> None:
    document = {"gateway": {"auth": {"mode": "none"}}}
    await (anyio.Path(tmp_path) / "nacre.json5").write_text(json.dumps(document), encoding="utf-8")
    async with gateway_process(tmp_path, "--host", "0.0.0.0", "--port", "0") as gateway:
        await gateway.logged("gateway.auth.mode")
        assert await gateway.wait() == 2


def test_the_url_is_one_that_this_machine_reaches() -> None:
    with listen_on("127.0.0.1", 0, setting="gateway.port") as listener:
        assert gateway_url("0.0.0.0", listener).startswith("http://127.0.0.1:")
        assert gateway_url("::1", listener).startswith("http://[::1]:")


async def test_a_generated_token_is_kept_where_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = token_file({"XDG_DATA_HOME": str(tmp_path)})

    def made_twice() -> tuple[str, str, int]:
        return load_token(path), load_token(path), stat.S_IMODE(path.stat().st_mode)

    first, second, mode = await anyio.to_thread.run_sync(made_twice)
    assert len(first) > 30
    assert (first == second, mode) == (True, 0o600)


def test_a_token_that_others_could_have_written_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef0123", encoding="utf-8")
    path.chmod(0o644)
    assert load_token(path) != "0123456789abcdef0123"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_cannot_hold_a_token_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="file/token"):
        load_token(tmp_path / "file" / "token")


@pytest.mark.parametrize("token", ["short", "with space 0123456789", "0123456789abcdefé"])
def test_a_token_that_is_none_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_auth(GatewayConfig(token=token), {})
    assert token not in str(refused.value)


def test_a_token_of_the_environment_is_blamed_by_its_variable() -> None:
    with pytest.raises(ConfigError, match="NACRE_GATEWAY_TOKEN"):
        check_auth(GatewayConfig(token="short"), {"NACRE_GATEWAY_TOKEN": "short"})
    with pytest.raises(ConfigError, match=r"gateway\.auth\.token"):
        check_auth(GatewayConfig(token="brief"), {"NACRE_GATEWAY_TOKEN": "short"})


def test_without_a_token_only_this_machine_may_be_served() -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0"):
        check_auth(GatewayConfig(auth_mode="none", host="0.0.0.0"), {})


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of glibc")
def test_free_memory_inside_the_heap_is_returned() -> None:
    limit_free_memory()
    # Blocks of the heap, with small ones between them that stay: nothing is free at its end.
    blocks = [b"x" * (100_000 + at % 2) for at in range(1_000)]
    kept = [b"y" * 1_000 for _ in range(1_000)]
    between = [block for pair in zip(blocks, kept, strict=True) for block in pair]
    blocks.clear()
    full = resident_bytes()
    del between[::2]
    return_free_memory()
    assert resident_bytes() < full - 50_000_000
    assert len(kept) == 1_000


def test_a_large_block_is_returned_as_soon_as_it_is_free() -> None:
    limit_free_memory()
    block = b"x" * 100_000_000
    full = resident_bytes()
    del block
    assert resident_bytes() < full - 50_000_000 or not full
