"""Listings that are stored in the private cache, and used before a server has started."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from nacre.json_types import JsonObject, JsonValue, encode_json
from nacre.mcp_client import McpConnections
from nacre.mcp_client.listings import ListingCache, RawListing
from tests.mcp_client.peers import raw

SECRET = "correct-horse-battery"
CONFIG = raw(env={"API_TOKEN": SECRET})
LISTING = RawListing(
    tools=[{"name": "ask", "inputSchema": {"type": "object"}}],
    capabilities={"tools": {}, "prompts": {}},
    description="Answers questions",
    version="oracle 1",
)


def store(folder: Path, listing: RawListing = LISTING) -> Path | None:
    """Store the listing of CONFIG and return its file, if there is one."""
    ListingCache(folder).store(CONFIG, listing, has_secret=lambda text: SECRET in text)
    return next((path for path in folder.rglob("*.json")), None)


async def test_tools_are_known_before_the_server_starts_again(tmp_path: Path) -> None:
    async with McpConnections([CONFIG], cache_directory=tmp_path) as connections:
        (server,) = connections.servers("a")
        assert server.known_tools is None
        listed = await server.tools()
        (other,) = connections.servers("b")
        assert [tool.id for tool in other.known_tools or ()] == [tool.id for tool in listed]
    async with McpConnections([CONFIG], cache_directory=tmp_path) as connections:
        (server,) = connections.servers()
        known = server.known_tools
        assert known is not None
        assert [tool.id for tool in known] == [tool.id for tool in listed]
        assert (server.status().state, server.status().tool_count) == ("idle", len(listed))
        assert await server.tools() is known
        assert server.status().state == "ready"


async def test_a_large_cached_list_is_known_too(tmp_path: Path) -> None:
    many = replace(LISTING, tools=[{"name": f"tool{number}"} for number in range(600)])
    await anyio.to_thread.run_sync(store, tmp_path, many)
    async with McpConnections([CONFIG], cache_directory=tmp_path) as connections:
        (server,) = connections.servers()
        with anyio.fail_after(60):
            while server.known_tools is None:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert server.status().tool_count == 600


async def test_a_cached_list_is_checked_like_one_that_a_server_sends(tmp_path: Path) -> None:
    odd: list[JsonValue] = [None, 5, {"name": {}}, {"name": "a b"}, {"name": "$resources.read"}]
    schema: JsonObject = {"type": ["object"], "properties": 5}
    listing = replace(LISTING, tools=[*odd, {"name": "ask", "inputSchema": schema}])
    await anyio.to_thread.run_sync(store, tmp_path, listing)
    async with McpConnections([CONFIG], cache_directory=tmp_path) as connections:
        (server,) = connections.servers()
        assert server.known_tools is not None
        ask, *operations = server.known_tools
        assert (ask.name, ask.parameters) == ("ask", {"type": "object"})
        assert [tool.name for tool in operations] == ["$prompts.list", "$prompts.get"]
        assert "tool 'a b': left out" in server.status().problem


async def test_rules_of_the_server_apply_to_a_cached_list(tmp_path: Path) -> None:
    await anyio.to_thread.run_sync(store, tmp_path)
    config = replace(CONFIG, deny=("ask",), require_approval=("prompts.*",))
    async with McpConnections([config], cache_directory=tmp_path) as connections:
        (server,) = connections.servers()
        tools = server.known_tools or ()
        assert [tool.name for tool in tools] == ["$prompts.list", "$prompts.get"]
        assert all(tool.needs_approval for tool in tools)


def test_a_stored_listing_is_read_again_for_the_same_connection_only(tmp_path: Path) -> None:
    store(tmp_path)
    cache = ListingCache(tmp_path)
    assert cache.load_all([CONFIG]) == {CONFIG.name: LISTING}
    renamed = replace(CONFIG, name="other", timeout_seconds=1)
    assert cache.load_all([renamed]) == {"other": LISTING}
    for changed in (
        replace(CONFIG, env={"API_TOKEN": "another"}),
        replace(CONFIG, args=()),
        replace(CONFIG, cwd="/"),
        replace(CONFIG, transport="http", url="http://127.0.0.1:1/"),
    ):
        assert cache.load_all([changed]) == {}


def test_files_are_private_and_hold_no_secret(tmp_path: Path) -> None:
    file = store(tmp_path)
    assert file is not None
    assert SECRET not in f"{file.name} {file.read_text()}"
    assert (file.stat().st_mode & 0o077, file.parent.stat().st_mode & 0o077) == (0, 0)


@pytest.mark.parametrize(
    "listing",
    [
        replace(LISTING, tools=[]),
        replace(LISTING, description=f"uses {SECRET}"),
        replace(LISTING, description="x" * (8 << 20)),
        replace(LISTING, tools=[{"name": "ask", "enum": [0] * 200_001}]),
    ],
    ids=["empty", "secret", "large", "parts"],
)
def test_a_listing_that_is_not_fit_for_the_cache_is_not_stored(
    tmp_path: Path, listing: RawListing
) -> None:
    assert store(tmp_path, listing) is None


def _replace_by_link(file: Path) -> None:
    other = file.with_suffix(".other")
    file.rename(other)
    file.symlink_to(other)


def _replace_by_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def _let_others_write(file: Path) -> None:
    file.chmod(0o622)


def _make_old(file: Path) -> None:
    os.utime(file, (0, 0))


def _make_large(file: Path) -> None:
    os.truncate(file, 9 << 20)


def _write(content: bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(content)


GOOD = LISTING.to_json()


@pytest.mark.parametrize(
    "damage",
    [
        _replace_by_link,
        _replace_by_fifo,
        _let_others_write,
        _make_old,
        _make_large,
        _write(encode_json(LISTING.to_json())[:-20]),
        _write(b""),
        _write(b"\xff\xfe"),
        _write(b"[" * 100_000),
        _write(encode_json([])),
        _write(encode_json({**GOOD, "format": 2})),
        _write(encode_json({**GOOD, "tools": {}})),
        _write(encode_json({**GOOD, "tools": []})),
        _write(encode_json({**GOOD, "tools": [{"name": "a"}] * 10_001})),
        _write(encode_json({**GOOD, "capabilities": None})),
        _write(encode_json({**GOOD, "description": 5})),
    ],
)
def test_a_file_that_cannot_be_trusted_is_ignored(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    file = store(tmp_path)
    assert file is not None
    damage(file)
    assert ListingCache(tmp_path).load_all([CONFIG]) == {}
    if file.is_symlink() or not file.is_fifo():
        store(tmp_path)
        assert ListingCache(tmp_path).load_all([CONFIG]) == {CONFIG.name: LISTING}


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    store(tmp_path)
    tmp_path.chmod(0o777)
    assert ListingCache(tmp_path).load_all([CONFIG]) == {}


def test_a_cache_without_a_folder_is_no_problem(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert ListingCache(file).load_all([CONFIG]) == {}
    assert store(file) is None


def test_only_so_many_listings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nacre.mcp_client.listings._MAX_FILES", 3)
    cache = ListingCache(tmp_path)
    configs = [replace(CONFIG, name=str(number), args=(str(number),)) for number in range(5)]
    for number, config in enumerate(configs):
        cache.store(config, LISTING, has_secret=lambda _text: False)
        for path in tmp_path.rglob("*.json"):
            os.utime(path, (path.stat().st_mtime - 10, path.stat().st_mtime - 10))
        assert len(cache.load_all(configs)) == min(number + 1, 3)
    assert set(cache.load_all(configs)) == {"2", "3", "4"}
