"""A gateway whose turns run in Codex is killed, and goes on with the same threads."""

from typing import Any

import anyio.to_thread
import psutil

from nacre.testing import Say, Stall
from tests.contract.requirements import requirement
from tests.e2e.gateways import Event, Gateway, Home
from tests.e2e.outside import PATIENCE_SECONDS


@requirement("codex:restart")
async def test_a_killed_gateway_takes_codex_along_and_the_next_one_resumes_the_thread(
    home: Home,
) -> None:
    provider = {"api": "openai-responses", "agentRuntime": {"id": "codex"}}
    agents = {"defaults": {"model": "scripted/gpt-5.5", "workspace": str(home.folder)}}
    await home.configure(tools={}, plugins={}, provider=provider, agents=agents)
    marker = home.model.script(Say("one"), [Say("two "), Stall()], Say("three"))
    async with home.gateway() as gateway:
        first = await gateway.finished(f"first {marker}", sessionKey="main")
        assert first["result"]["text"] == "one"
        thread = await thread_of(gateway, first["runId"])
        run_id = await gateway.start("second", sessionKey="main")
        await gateway.event(run_id, "text.delta")
        children = await anyio.to_thread.run_sync(
            psutil.Process(gateway.process.pid).children, True
        )
        servers = [it for it in children if "app-server" in it.cmdline()]
        assert servers
        await gateway.kill()
        _gone, alive = await anyio.to_thread.run_sync(
            lambda: psutil.wait_procs(servers, timeout=PATIENCE_SECONDS)
        )
        assert alive == []
    async with home.gateway() as gateway:
        third = await gateway.finished("third", sessionKey="main")
        assert third["result"]["text"] == "three"
        assert await thread_of(gateway, third["runId"]) == {**thread, "isNew": False}
    texts = [it.text for it in home.model.requests(marker)[-1].messages if it.role == "user"]
    said = [text for text in texts if text.split()[0] in ("first", "second", "third")]
    assert [text.split()[0] for text in said] == ["first", "second", "third"]


async def thread_of(gateway: Gateway, run_id: str) -> dict[str, Any]:
    def is_ready(event: Event) -> bool:
        return event.kind == "codex_app_server.lifecycle" and event.data["phase"] == "thread_ready"

    (ready,) = filter(is_ready, await gateway.events(run_id))
    return ready.data
