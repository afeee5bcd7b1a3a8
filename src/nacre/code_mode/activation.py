"""Whether a run is in code mode, and with which settings: the global ones under its agent's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from nacre.config.code_mode import CodeModeConfig, code_mode_config_from
from nacre.errors import ConfigError
from nacre.tools.catalog import is_control_tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nacre.tools.definition import Tool


def is_code_mode_active(
    config: CodeModeConfig, *, tools: Sequence[Tool], tools_disabled: bool = False
) -> bool:
    """Whether the model is shown `exec` and `wait`; `tools` is what policy left of this run's.

    A run without tools has nothing to hide, so it stays without tools.
    """
    if not config.enabled or tools_disabled:
        return False
    return not all(is_control_tool(tool) for tool in tools)


def code_mode_config_for(config: Mapping[str, object], agent_id: str) -> CodeModeConfig:
    """The settings of one agent: `tools.codeMode`, and over it, key by key, the agent's own.

    An agent is an entry of `agents.list` by its `id`, or a member of `agents` by its name. A
    boolean only switches code mode on or off. Raises ConfigError with the path of the setting.
    """
    tools = _object_at(config, "tools", "")
    merged = _settings(tools.get("codeMode"), "tools.codeMode")
    for agent, path in _agents(config, agent_id):
        own = _object_at(agent, "tools", path).get("codeMode")
        merged.update(_settings(own, f"{path}.tools.codeMode"))
    return code_mode_config_from(merged)


def _settings(value: object, path: str) -> dict[str, object]:
    # Read for its own path, so that a fault is reported where it was made.
    code_mode_config_from(value, path=path)
    if isinstance(value, bool):
        return {"enabled": value}
    return dict(cast("Mapping[str, object]", value or {}))


def _agents(
    config: Mapping[str, object], agent_id: str
) -> Iterator[tuple[Mapping[str, object], str]]:
    agents = _object_at(config, "agents", "")
    listed: object = agents.get("list")
    if listed is None:
        listed = []
    if not isinstance(listed, (list, tuple)):
        raise _refused("agents.list", listed, "a list")
    for index, entry in enumerate(cast("list[object]", listed)):
        path = f"agents.list[{index}]"
        agent = _object(entry, path)
        if agent.get("id") == agent_id:
            yield agent, path
    if agent_id in agents and agent_id != "list":
        yield _object_at(agents, agent_id, "agents"), f"agents.{agent_id}"


def _object_at(holder: Mapping[str, object], key: str, path: str) -> Mapping[str, object]:
    return _object(holder.get(key), f"{path}.{key}" if path else key)


def _object(value: object, path: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _refused(path, value, "an object")
    return cast("Mapping[str, object]", value)


def _refused(path: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(path, f"is of type {type(value).__name__}; allowed: {allowed}")
