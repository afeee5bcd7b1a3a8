"""A configuration that changes while it is in use."""

import logging
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio import to_thread

from nacre.config import watcher as watching
from nacre.config.config_file import ConfigFile
from nacre.config.system import SystemConfig, system_config_from
from nacre.config.watcher import ConfigChange, ConfigWatcher, changed_sections
from nacre.errors import PluginError

ENVIRONMENT = {"HOME": "/home/ada"}


class Watched:
    """A file with a watcher, and the changes that it has passed on."""

    def __init__(self, folder: Path, *, read_seconds: float = 50) -> None:
        self.path = folder / "nacre.json5"
        self.changes: list[ConfigChange] = []
        self.refusal: Exception | None = None
        self.has_changed = anyio.Event()
        self.watcher = ConfigWatcher(
            ConfigFile(path=self.path, origin="user"),
            self._on_change,
            current=config_from(),
            environment=ENVIRONMENT,
            look_every_seconds=0.01,
            read_seconds=read_seconds,
        )

    def write(self, text: str) -> None:
        self.path.write_text(text, encoding="utf-8")

    async def look_twice(self) -> None:
        await self.watcher.look()
        await self.watcher.look()

    async def _on_change(self, change: ConfigChange) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.changes.append(change)
        self.has_changed.set()


def config_from(**document: Any) -> SystemConfig:
    return system_config_from(document, environment=ENVIRONMENT, folder=Path("/etc"))


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.fixture
def impatient(tmp_path: Path) -> Watched:
    return Watched(tmp_path, read_seconds=0.1)


async def test_a_token_that_is_rotated_in_its_file_is_passed_on(
    watched: Watched, tmp_path: Path
) -> None:
    main, ci = tmp_path / "main", tmp_path / "ci"
    main.write_text("first-0123456789", encoding="utf-8")
    ci.write_text("ci-0123456789abcdef", encoding="utf-8")
    tokens = "tokens: {ci: {tokenFile: 'ci', scopes: ['read']}}"
    watched.write(f"{{gateway: {{auth: {{tokenFile: 'main', {tokens}}}}}}}")
    await watched.look_twice()
    main.write_text("second-0123456789", encoding="utf-8")
    await watched.look_twice()
    ci.write_text("ci-fedcba9876543210", encoding="utf-8")
    await watched.look_twice()
    main.unlink()
    await watched.look_twice()

    gateways = [change.new.gateway for change in watched.changes]
    assert [(it.token, it.named_tokens[0].token) for it in gateways] == [
        ("first-0123456789", "ci-0123456789abcdef"),
        ("second-0123456789", "ci-0123456789abcdef"),
        ("second-0123456789", "ci-fedcba9876543210"),
    ]


async def test_a_change_is_passed_on_with_what_was_before(watched: Watched) -> None:
    watched.write("{gateway: {port: 1}, messages: {queue: {cap: 3}}}")
    await watched.look_twice()

    (change,) = watched.changes
    assert (change.old.gateway.port, change.new.gateway.port) == (18789, 1)
    assert change.sections == ("messages", "gateway")
    assert change.needs_restart == ("gateway.port",)
    assert watched.watcher.current is change.new


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ('{gateway: {host: "::1"}}', "gateway.host"),
        ('{sandbox: {require: ["landlock"]}}', "sandbox.require"),
        ('{storage: {url: "sqlite:///:memory:"}}', "storage.url"),
        ("{tools: {codeMode: {durable: true}}}", "tools.codeMode.durable"),
        (
            "{agents: {list: [{id: 'a', tools: {codeMode: {durable: true}}}]}}",
            "tools.codeMode.durable",
        ),
    ],
)
async def test_settings_that_need_a_restart_are_named(
    watched: Watched, text: str, setting: str
) -> None:
    watched.write(text)
    await watched.look_twice()
    assert [change.needs_restart for change in watched.changes] == [(setting,)]


async def test_only_turning_durable_cells_on_needs_a_restart(watched: Watched) -> None:
    for text in ("{tools: {codeMode: {durable: true}}}", "{tools: {codeMode: {durable: false}}}"):
        watched.write(text)
        await watched.look_twice()
    restarts = [change.needs_restart for change in watched.changes]
    assert restarts == [("tools.codeMode.durable",), ()]


async def test_it_is_passed_on_once(watched: Watched) -> None:
    watched.write("{gateway: {port: 1}}")
    for _ in range(3):
        await watched.look_twice()
    assert len(watched.changes) == 1


async def test_a_file_that_still_changes_is_left_alone_until_it_holds_still(
    watched: Watched,
) -> None:
    for port in range(3):
        # Longer each time: two writes may fall into one tick of the file system's clock.
        watched.write(f"{{gateway: {{port: {port}}}}}{' ' * port}")
        await watched.watcher.look()
    assert watched.changes == []
    await watched.watcher.look()
    assert [change.new.gateway.port for change in watched.changes] == [2]


async def test_a_file_of_the_same_size_and_time_in_the_place_of_another_is_seen(
    watched: Watched,
) -> None:
    watched.write("{gateway: {port: 1}}")
    await watched.look_twice()
    other = watched.path.with_name("other")
    other.write_text("{gateway: {port: 2}}", encoding="utf-8")
    info = watched.path.stat()
    os.utime(other, ns=(info.st_atime_ns, info.st_mtime_ns))
    other.replace(watched.path)
    await watched.look_twice()
    assert [change.new.gateway.port for change in watched.changes] == [1, 2]


async def test_another_way_to_write_the_same_is_no_change(watched: Watched) -> None:
    watched.write("{gateway: {port: 18789}} // as it was")
    await watched.look_twice()
    assert watched.changes == []


async def test_a_broken_file_changes_nothing_and_is_told_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        for blanks in range(3):
            watched.write("{gateway: {port: -1}}" + " " * blanks)
            await watched.look_twice()
    assert watched.changes == []
    assert watched.watcher.current.gateway.port == 18789
    assert [record.getMessage() for record in caplog.records] == [
        "the configuration stays as it was: `gateway.port` is -1; "
        "allowed: whole numbers from 0 to 65535"
    ]


async def test_a_number_that_is_clamped_is_logged(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.write("{tools: {codeMode: {enabled: true, timeoutMs: 5}}}")
    await watched.look_twice()
    (change,) = watched.changes
    assert change.new.agents.agent("main").tools.code_mode.timeout_ms == 100
    assert caplog.messages == ["`tools.codeMode.timeoutMs` is 5; 100 is used"]


async def test_a_secret_that_is_missing_freezes_nothing(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.write(
        "{models: {providers: {own: {baseUrl: 'http://127.0.0.1:9', apiKey: '${NONE}'}}},"
        "agents: {defaults: {model: 'openai/gpt-6'}, list: [{id: 'a', model: 'own/x'}]},"
        "mcp: {servers: {s: {command: 'x', env: {T: '${NONE}'}}}}, gateway: {port: 7}}"
    )
    await watched.look_twice()
    (change,) = watched.changes
    assert change.new.gateway.port == 7
    own, openai = (change.new.models.providers[name] for name in ("own", "openai"))
    assert "uses the environment variable NONE, which is not set" in own.missing
    assert openai.missing == ""
    (server,) = change.new.mcp_servers
    assert (server.name, "variable NONE" in server.missing) == ("s", True)
    assert "stays as it was" not in caplog.text
    assert "set OPENAI_API_KEY" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "{gateway: {auth: {token: '${NONE}'}}}",
        "{storage: {url: '${NONE}'}}",
        "{agents: {defaults: {workspace: '${NONE}'}}}",
    ],
)
async def test_what_would_be_another_place_or_another_token_is_not_taken_over(
    watched: Watched, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    watched.write(text)
    await watched.look_twice()
    assert watched.changes == []
    assert "the configuration stays as it was" in caplog.text


async def test_a_file_that_was_broken_is_taken_over_once_it_is_repaired(watched: Watched) -> None:
    for text in ("{gateway: {port: 7", "{gateway: {port: 7}}"):
        watched.write(text)
        await watched.look_twice()
    assert [change.new.gateway.port for change in watched.changes] == [7]


@pytest.mark.parametrize("repaired", ["{gateway: {port: 7}}", "{} // as it was"])
async def test_a_file_that_is_repaired_is_told_to_be_sound_once(
    watched: Watched, caplog: pytest.LogCaptureFixture, repaired: str
) -> None:
    with caplog.at_level(logging.INFO):
        for text in ("{gateway: {port: 7", repaired, f"{repaired} // and more"):
            watched.write(text)
            await watched.look_twice()
    _, *sound = [record.getMessage() for record in caplog.records]
    assert sound == [f"the configuration is valid again: {watched.path} is used"]


async def test_a_file_that_is_gone_changes_nothing(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.write("{gateway: {port: 7}}")
    await watched.look_twice()
    watched.path.unlink()
    await watched.look_twice()
    assert watched.watcher.current.gateway.port == 7
    assert "is gone" in caplog.text


async def test_a_file_that_was_emptied_changes_nothing(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.write("{gateway: {port: 7}}")
    await watched.look_twice()
    watched.write("")
    await watched.look_twice()
    assert watched.watcher.current.gateway.port == 7
    assert "is gone, or empty" in caplog.text
    watched.write("{}")
    await watched.look_twice()
    assert watched.watcher.current.gateway.port == 18789


async def test_no_file_at_the_start_is_nothing_to_tell(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    await watched.look_twice()
    await watched.look_twice()
    assert caplog.records == []


async def test_whoever_is_told_may_refuse_the_change(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.refusal = PluginError("weather cannot be loaded")
    watched.write("{gateway: {port: 7}}")
    await watched.look_twice()
    assert watched.watcher.current.gateway.port == 18789
    assert "stays as it was: weather cannot be loaded" in caplog.text


async def test_a_fault_in_taking_over_does_not_end_the_watcher(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.refusal = ZeroDivisionError("a fault of our own")
    watched.write("{gateway: {port: 4000}}")
    await watched.look_twice()
    assert "it cannot be applied" in caplog.text
    watched.refusal = None
    # Longer: two writes may fall into one tick of the file system's clock.
    watched.write("{gateway: {port: 4001}} ")
    await watched.look_twice()
    assert [change.new.gateway.port for change in watched.changes] == [4001]


async def test_it_looks_by_itself(watched: Watched) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.watcher.run)
        watched.write("{gateway: {port: 7}}")
        with anyio.fail_after(30):
            await watched.has_changed.wait()
        tasks.cancel_scope.cancel()
    assert watched.watcher.current.gateway.port == 7


async def test_a_file_that_takes_for_ever_to_read_does_not_keep_the_watcher(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_reading, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()

    def read_slowly(file: ConfigFile, *, may_be_special: bool) -> dict[str, object]:
        is_reading.set()
        may_end.wait(60)
        has_ended.set()
        return {}

    monkeypatch.setattr(watching, "read_config_file", read_slowly)
    watched.write("{}")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.look_twice)
        assert await to_thread.run_sync(is_reading.wait, 30)
        tasks.cancel_scope.cancel()

    assert not has_ended.is_set()
    may_end.set()


def test_the_sections_that_differ_are_named() -> None:
    old = config_from()
    assert changed_sections(old, config_from()) == ()
    assert changed_sections(old, config_from(tools={"deny": ["x"]})) == ("tools",)
    assert changed_sections(old, config_from(tools={"fs": {"enabled": False}})) == ("tools",)
    agents = {"list": [{"id": "main", "tools": {"codeMode": True}}]}
    assert changed_sections(old, config_from(agents=agents)) == ("agents",)
    servers = {"a": {"command": "x"}}
    # However it is written.
    assert (
        changed_sections(config_from(mcp={"servers": servers}), config_from(mcpServers=servers))
        == ()
    )
    assert changed_sections(
        old,
        config_from(
            models={"providers": {"openai": {"maxRetries": 1}}},
            plugins={"enabled": False},
            storage={"url": "sqlite:////a.db"},
        ),
    ) == ("models", "plugins", "storage")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
async def test_a_pipe_in_the_place_of_the_file_does_not_end_the_watch(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.write("{gateway: {port: 1}}")
    await watched.look_twice()
    watched.path.unlink()
    os.mkfifo(watched.path)
    with anyio.fail_after(20):
        await watched.look_twice()
    assert (
        f"the configuration stays as it was: `{watched.path}` is not a regular file" in caplog.text
    )
    watched.path.unlink()
    watched.write("{gateway: {port: 2}}")
    await watched.look_twice()
    assert watched.watcher.current.gateway.port == 2


def _open_and_close(pipe: Path) -> None:
    os.close(os.open(pipe, os.O_RDWR))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
async def test_a_pipe_in_the_place_of_a_token_does_not_end_the_watch(
    impatient: Watched, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched, pipe = impatient, tmp_path / "token"
    os.mkfifo(pipe)
    watched.write("{gateway: {auth: {tokenFile: 'token'}}}")
    try:
        with anyio.fail_after(20):
            await watched.look_twice()
    finally:
        # Ends the thread that waits for a writer.
        await anyio.to_thread.run_sync(_open_and_close, pipe)
    assert "names a file that takes over 0.1 seconds to read; is it a pipe?" in caplog.text
    assert watched.changes == []
