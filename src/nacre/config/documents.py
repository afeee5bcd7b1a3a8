"""Reading a config document: objects by path, values in messages, and the entries of an agent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from nacre.config.fields import misplaced, object_without_showing
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NOT_AGENTS: Final = ("list", "defaults")
_MAX_SHOWN: Final = 60
# Whatever setting an address with a password was written to by mistake.
_USER_IN_URL = re.compile(r"://[^\s\"]{1,2048}@")


def object_at(value: object, path: str) -> Mapping[str, object]:
    """What stands at `path`, empty where nothing does; raises ConfigError for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise misplaced(path, value, "an object")
    return cast("Mapping[str, object]", value)


def agent_tools(
    document: Mapping[str, object], agent_id: str
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Every `tools` section of the agent, with its path: in `agents.list` by `id`, and in `agents`
    by name. Case does not matter. Raises ConfigError."""
    agents, wanted = object_at(document.get("agents"), "agents"), agent_id.casefold()
    listed = agents.get("list")
    if listed is not None and not isinstance(listed, (list, tuple)):
        raise misplaced("agents.list", listed, "a list of agents")
    for index, item in enumerate(cast("Sequence[object]", listed or ())):
        agent = object_at(item, f"agents.list[{index}]")
        if str(agent.get("id", "")).casefold() == wanted:
            path = f"agents.list[{index}].tools"
            yield path, object_at(agent.get("tools"), path)
    for key, item in agents.items():
        if key not in _NOT_AGENTS and str(key).casefold() == wanted:
            path = f"agents.{key}.tools"
            yield path, object_at(object_at(item, f"agents.{key}").get("tools"), path)


def tool_settings(
    document: Mapping[str, object], agent_id: str, key: str
) -> Iterator[tuple[str, object]]:
    """What `tools` and every `tools` section of the agent have under the key, with its path: the
    later ones go over the earlier. Raises ConfigError."""
    yield f"tools.{key}", object_at(document.get("tools"), "tools").get(key)
    for path, own in agent_tools(document, agent_id):
        yield f"{path}.{key}", own.get(key)


def refuse_unopened_servers(document: Mapping[str, object]) -> None:
    """Raises ConfigError for MCP servers in a document whose reader opens none."""
    in_mcp = object_without_showing(document.get("mcp"), "mcp").get("servers")
    for path, servers in (("mcp.servers", in_mcp), ("mcpServers", document.get("mcpServers"))):
        if servers:
            raise ConfigError(
                path,
                "names MCP servers, and the library opens none by itself; open them with "
                "`McpConnections` and pass `mcp=connections.servers()`, or `mcp=()` to do without",
            )


def shown(value: object) -> str:
    """A value in a message: its JSON, shortened, without what a URL says of its user."""
    try:
        text = _USER_IN_URL.sub("://***@", json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        text = f"of type {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
